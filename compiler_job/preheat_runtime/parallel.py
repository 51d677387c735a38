r"""Lets what a CPU kernel refuses reach whoever called it, also out of code that several threads run.

Why it exists: a C++ exception must not leave a parallel region of OpenMP's; where one would, the process is ended on the spot
(SIGABRT). Inductor's kernels throw when an index is out of range, which eager answers with an IndexError, and
`cpp.dynamic_threads` puts every kernel into such a region: one token id too large, and the pod was gone. So the text of a
kernel is changed before it is compiled. Inside a region, the iteration whose index is out of range is left before anything is
read or written there, and once the region has ended it is thrown; whatever else may throw is caught and thrown on in the same
way, which takes a kernel up to 4 % longer. Kernels too small for a second thread get no region, as torch has it without
`cpp.dynamic_threads`.

The text is read by its directives and braces alone; what is not as expected there stays as torch wrote it.
"""

from __future__ import annotations

import functools
import inspect
import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from .first_graph import before_first_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: From where to where the text is replaced, and by what.
_Change = tuple[int, int, str]

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+omp[ \t]+(\w+)(.*)$", re.MULTILINE)
#: What is skipped or counted to find where a block ends: comments, texts, characters, braces.
_PIECES = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|[{}]""", re.DOTALL
)  # fmt: skip
_LOOP = re.compile(r"\s*for\s*\(")
_BLOCK = re.compile(r"\s*\{")
#: What may throw: checks, `assert_async`, and whole numbers that are divided, by 0 it may be.
_THROWS = re.compile(
    r"\b(?:AOTI_)?TORCH_CHECK\w*\s*\(|\bthrow\b|\b(?:floor_divide_integral|remainder_integral|mod)\s*\("
)
#: The check of an index, a line for itself: its condition, and what it says.
INDEX = re.compile(
    r'^[ \t]*((?:AOTI_)?TORCH_CHECK\((.+), ("index out of bounds: [^"\n]*")\);)[ \t]*$', re.MULTILINE
)  # fmt: skip
_LANES = re.compile(r" \| ~\(\((\w+)\)\.all_masked\(\)\), ")
_LANE = re.compile(r" \| ~\((\w+)\), ")
#: What stands before a block that a `goto` may leave; it may not leave a lambda.
_PLAIN = re.compile(r"[{};]\s*(?:#pragma GCC [^\n]*\n\s*)?(?:(?:for|if)[ (][^\n]*|else)?\s*$")
_NEAR: Final = 500
# Names that torch's text has none of.
_LEFT: Final = "preheat_left"
_BEFORE: Final = (
    f"{{ std::atomic<const char*> {_LEFT}{{nullptr}}; std::atomic<bool> preheat_failed{{false}}; "
    "std::exception_ptr preheat_thrown;\n"
)
_TRY: Final = " if (!preheat_failed.load(std::memory_order_relaxed)) try {"
_CATCH: Final = "} catch (...) { if (!preheat_failed.exchange(true)) preheat_thrown = std::current_exception(); } "
_AFTER: Final = (
    f"\nif (const char* said = {_LEFT}.load()) throw std::runtime_error(said);"
    "\nif (preheat_thrown) std::rethrow_exception(preheat_thrown); }"
)

# torch has a kernel note a division by 0 where one variable of the whole process points. Calls of packages run at the
# same time: one would be answered wrong, and another refused for it. Without a place to note it, it is thrown.
_NOTE = "inductor_cpu_integer_div_error"
_NOTED = (f"std::atomic<int> {_NOTE}{{0}};", f"{_NOTE}_flag = &{_NOTE};", f"{_NOTE}_flag = nullptr;",
          f"inductor_cpu_throw_if_integer_div_error({_NOTE});")  # fmt: skip
_OWN_NOTE: Final = f"#define {_NOTE}_flag preheat_integer_div_error_flag\n"


def thrown_on(source: str) -> str:
    """`source`, the C++ text of kernels, with all its parallel regions so that what is refused inside is thrown after them."""
    if _LEFT in source or not _THROWS.search(source):
        return source
    ends = _blocks(source)
    directives = list(_DIRECTIVE.finditer(source))
    regions = [
        (each, found)
        for each in directives
        if each[1] == "parallel" and (found := _body(source, ends, each)) is not None
    ]
    # A region's own text need not have the check: some call functions that stand before it.
    outside = source
    for begin, (_, end) in reversed([(each.start(), found) for each, found in regions]):
        outside = outside[:begin] + outside[end:]
    anywhere = _THROWS.search(outside) is not None
    changes: list[_Change] = []
    for each, (inner, end) in regions:
        if anywhere or _THROWS.search(source, each.start(), end):
            inside = [other for other in directives if each.end() <= other.start() < end]
            bodies = _bodies(source, ends, inner, inside)
            if bodies:
                changes += [(each.start(), each.start(), _BEFORE), (end, end, _AFTER)]
                for begin in bodies:
                    changes += _changed(source, ends, begin, inside, thrower=anywhere)
    for begin, end, text in sorted(changes, reverse=True):
        source = source[:begin] + text + source[end:]
    return source


def _changed(
    source: str, ends: dict[int, int], begin: int, directives: list[re.Match[str]], *, thrower: bool
) -> list[_Change]:  # fmt: skip
    """The changes to one block that nothing must be thrown out of; `thrower`: it may call what throws."""
    end, label = ends[begin], f"preheat_next_{begin}"
    changes: list[_Change] = []
    kept = source[begin:end]
    if not any(begin < each.start() < end for each in directives):  # such a loop must not be left at all
        for check in reversed(list(INDEX.finditer(source, begin, end))):
            around = [each for each, last in ends.items() if begin < each < check.start() < last]
            if all(_PLAIN.search(source, max(begin, each - _NEAR), each) for each in around):
                left = f"if (__builtin_expect(!({check[2]}), 0)) {{ {_LEFT}.store({check[3]}); goto {label}; }}"
                changes.append((check.start(1), check.end(1), left))
                kept = kept[: check.start() - begin] + kept[check.end() - begin :]
    opened, closed = (" {", f"}} {label}:; ") if changes else ("", "")
    if thrower or _THROWS.search(kept):
        opened, closed = _TRY + opened, closed + _CATCH
    changes += [(begin + 1, begin + 1, opened), (end, end, closed)]
    return changes


def masked_checked(source: str) -> str:
    """`source` with checks of indices that are made where a mask is on.

    torch writes `(in range) | ~(mask)` for one index of many lanes, or of one: never false, since `~true` is -2. Such an index
    was read outside its table. Lanes that are vectors have a `~` of their own, which is right.
    """

    def meant(check: re.Match[str]) -> str:
        text = _LANES.sub(r" | (\1).all_zero(), ", check[0])
        return _LANE.sub(r" | !(\1), ", text)

    return INDEX.sub(meant, source)


def divisions_thrown(source: str) -> str:
    """`source`, the text of a package's kernel, without the variable of the whole process that notes a division by 0.

    The text must not be compiled with precompiled headers.
    """
    lines = source.splitlines(keepends=True)
    kept = [line for line in lines if line.strip() not in _NOTED]
    if len(lines) - len(kept) != len(_NOTED) or any(_NOTE in line for line in kept):
        return source
    return _OWN_NOTE + "".join(kept)


def _blocks(source: str) -> dict[int, int]:
    """Where each block begins, to where it ends: the places of its braces."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for piece in _PIECES.finditer(source):
        if piece[0] == "{":
            opened.append(piece.start())
        elif piece[0] == "}" and opened:
            ends[opened.pop()] = piece.start()
    return ends


def _body(source: str, ends: dict[int, int], directive: re.Match[str]) -> tuple[int, int] | None:
    """Where the block begins that each iteration runs, and the end of all that the directive is for; None if not understood."""
    collapsed = re.search(r"\bcollapse\((\d+)\)", directive[2])
    is_loop = "for" in (directive[1], *directive[2].split()[:1])
    place, begins = directive.end(), []
    for _ in range(int(collapsed[1]) if collapsed else 1):
        if is_loop:
            head = _LOOP.match(source, place)
            if head is None:
                return None
            place, depth = head.end(), 1
            while depth and place < len(source):
                depth += {"(": 1, ")": -1}.get(source[place], 0)
                place += 1
        block = _BLOCK.match(source, place)
        if block is None or block.end() - 1 not in ends:
            return None
        place = block.end()
        begins.append(place - 1)
    return begins[-1], ends[begins[0]] + 1


def _bodies(
    source: str, ends: dict[int, int], inner: int, directives: list[re.Match[str]]
) -> list[int] | None:  # fmt: skip
    """The blocks of a region that what is thrown must not leave; None where one is not understood."""
    shared = [each for each in directives if each[1] != "simd"]
    if not shared:
        return [inner]
    if any(each[1] not in ("for", "single") for each in shared):
        return None  # a thread that left would leave the others waiting at a barrier
    found = [_body(source, ends, each) for each in shared]
    return None if None in found else [each[0] for each in found if each is not None]


@contextmanager
def kept_in_regions(*, packages: bool = False) -> Iterator[None]:
    """Inside, Inductor's CPU kernels end no process by what they throw.

    `packages`: they are a package's, where precompiled headers are off. Imports Inductor. Where it works otherwise than
    expected, that part stays as it is.
    """
    import torch._inductor.compile_fx  # as torch itself comes to it: first of all  # noqa: F401
    from torch._inductor import config
    from torch._inductor.codegen import cpp

    def change(source: str) -> str:
        return thrown_on(masked_checked(divisions_thrown(source) if packages else source))

    with ExitStack() as patched:
        for name, method, parameters, wrap in (
            ("CppScheduling", "define_kernel", ["self", "src_code"], functools.partial(_defining, change)),
            ("CppKernel", "decide_parallel_depth", ["self", "max_parallel_depth", "threads"],
             functools.partial(_deciding, config)),
        ):  # fmt: skip
            owner = getattr(cpp, name, None)
            real = getattr(owner, "__dict__", {}).get(method)
            if inspect.isfunction(real) and list(inspect.signature(real).parameters)[: len(parameters)] == parameters:
                setattr(owner, method, wrap(real))
                patched.callback(setattr, owner, method, real)
        yield


_held: list[Any] = []


def hold() -> None:
    """From the next graph on that torch.compile gives Inductor, kernels end this process by nothing that they throw.

    Inductor is imported then, as torch would, and not before. Costs nothing after the first time; never raises.
    """
    regions = kept_in_regions()
    if not _held and before_first_graph(regions.__enter__):
        _held.append(regions)  # it would end with the last that refers to it


def _defining(change: Callable[[str], str], real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def define_kernel(self: Any, src_code: str, *args: Any, **kwargs: Any) -> Any:
        return real(self, change(src_code), *args, **kwargs)

    return define_kernel


def _deciding(config: Any, real: Callable[..., Any]) -> Callable[..., Any]:
    """No region where two threads would not have enough to do; that is known only of sizes that do not vary.

    Compiled with one thread, a kernel without a region of its own would run in all threads of the region before it.
    """

    @functools.wraps(real)
    def decide_parallel_depth(self: Any, max_parallel_depth: Any, threads: int) -> Any:
        decided = real(self, max_parallel_depth, threads)
        fixed = all(getattr(each, "is_number", isinstance(each, int)) for each in self.call_ranges)
        if threads > 1 and decided.parallel_depth and config.cpp.dynamic_threads and fixed:
            with config.patch({"cpp.dynamic_threads": False}):
                by_size = real(self, max_parallel_depth, 2)
            if not by_size.parallel_depth:
                return by_size
        return decided

    return decide_parallel_depth
