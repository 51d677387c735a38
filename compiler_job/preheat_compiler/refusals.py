"""Has a package refuse a call without a word of its own on stderr.

Why it exists: what a package refuses, as an index out of range, eager is asked, and the caller gets eager's error. torch's text of a
package prints it as well, with the C++ functions beneath it: 19 lines for each call that somebody makes with a bad index, also where
the pod's log is switched off, and finding them took 6 ms. Who called is given the words in any case.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from preheat_runtime.parallel import INDEX

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

#: What the compile of a package is given, after its class.
_TEXTS = ["graph", "wrapper_code", "kernel_code"]
_PRINTED = """std::cerr << "Error: " << e.what() << '\\n';"""


def silent(source: str) -> str:
    """`source`, a text that Inductor made for a package, without what prints a refusal or collects the functions beneath it."""
    return INDEX.sub(_thrown, source).replace(_PRINTED, "")


def _thrown(check: re.Match[str]) -> str:
    statement, condition, said = check.groups()
    return check[0].replace(statement, f"if (__builtin_expect(!({condition}), 0)) throw std::runtime_error({said});")


@contextmanager
def refused_silently() -> Iterator[None]:
    """Inside, packages are compiled so. Imports Inductor; where it works otherwise than expected, they are as torch has them."""
    import torch._inductor.compile_fx  # as torch itself comes to it: first of all  # noqa: F401
    from torch._inductor import codecache

    owner: Any = getattr(codecache, "AotCodeCompiler", None)
    held = getattr(owner, "__dict__", {}).get("compile")
    real = getattr(held, "__func__", None)
    if not isinstance(held, classmethod) or list(inspect.signature(real).parameters)[1:4] != _TEXTS:  # type: ignore[arg-type]
        yield
        return

    @functools.wraps(real)  # type: ignore[arg-type]
    def compile(cls: Any, graph: Any, wrapper_code: str, kernel_code: str, *args: Any, **kwargs: Any) -> Any:  # noqa: A001
        return real(cls, graph, silent(wrapper_code), silent(kernel_code), *args, **kwargs)  # type: ignore[misc]

    owner.compile = classmethod(compile)
    try:
        yield
    finally:
        owner.compile = held
