"""What a kernel refuses is thrown after its parallel region, whatever the region is made of; the rest stays as torch wrote it."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch

from preheat_runtime import parallel
from preheat_runtime.parallel import divisions_thrown, masked_checked, thrown_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHECK = 'TORCH_CHECK((0 <= at) & (at < 8L), "index out of bounds: 0 <= at < 8L");'
LOOP = "for(long x0=static_cast<long>(0L); x0<n; x0+=static_cast<long>(1L))"
#: Regions as Inductor writes them, and as its templates do; `in` are the indices of `table`.
REGIONS = {
    "a loop": f"""
    #pragma omp parallel
    {{
        int tid = omp_get_thread_num();
        {{
            #pragma omp for
            {LOOP}
            {{
                #pragma GCC ivdep
                for(long x1=0; x1<2; x1+=1)
                {{
                    {{
                        auto at = in[x0];
                        {CHECK}
                        out[x0] = table[at];
                    }}
                }}
            }}
        }}
    }}""",
    "two loops as one": f"""
    #pragma omp parallel num_threads(2)
    {{
        #pragma omp for collapse(2)
        {LOOP}
        {{
            for(long x1=0; x1<2; x1+=1)
            {{
                auto at = in[x0];
                {CHECK}
                out[x0] = table[at];
            }}
        }}
    }}""",
    "a loop, and what one thread does": f"""
    #pragma omp parallel
    {{
        #pragma omp for
        {LOOP}
        {{
            out[x0] = 0;
        }}
        #pragma omp single
        {{
            {LOOP}
            {{
                auto at = in[x0];
                {CHECK}
                out[x0] = table[at];
            }}
        }}
    }}""",
    "a lambda": f"""
    #pragma omp parallel
    {{
        #pragma omp for
        {LOOP}
        {{
            auto tmp =
            [&]
            {{
                auto at = in[x0];
                {CHECK}
                return table[at];
            }}
            ()
            ;
            out[x0] = tmp;
        }}
    }}""",
    "a loop for vector code": f"""
    #pragma omp parallel
    {{
        #pragma omp for
        {LOOP}
        {{
            #pragma omp simd
            for (long x1 = 0; x1 < 2; x1++) {{ out[x0] += x1; }}
            auto at = in[x0];
            {CHECK}
            out[x0] = table[at];
        }}
    }}""",
    "an assertion with braces in its words": f"""
    #pragma omp parallel
    {{
        #pragma omp for
        {LOOP}
        {{
            auto at = in[x0]; // }} it's
            ((0 <= at) & (at < 8) ? 0 : (throw std::runtime_error("index out of bounds: }}}}\\"{{"), 0));
            out[x0] = table[at];
        }}
    }}""",
    "a region and loop in one": f"""
    #pragma omp parallel for num_threads(2)
    {LOOP} {{
        auto at = in[x0];
        {CHECK}
        out[x0] = table[at];
    }}""",
    "a region without a loop": f"""
    # pragma omp parallel
    {{
        for (long x0 = omp_get_thread_num(); x0 < n; x0 += omp_get_num_threads()) {{
            auto at = in[x0];
            {CHECK}
            out[x0] = table[at];
        }}
    }}""",
    "a function that checks": f"""
    #pragma omp parallel
    {{
        #pragma omp for
        {LOOP}
        {{
            out[x0] = looked_up(in[x0]);
        }}
    }}""",
}
BEFORE = {
    "a function that checks": f"inline float looked_up(long at)\n{{\n    {CHECK}\n    return table[at];\n}}\n",
}
PROGRAM = """
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <omp.h>
#include <stdexcept>
#define TORCH_CHECK(cond, ...) if (!(cond)) throw std::runtime_error(__VA_ARGS__)
const float table[8] = {0, 10, 20, 30, 40, 50, 60, 70};
%s
int main(int count, char** words) {
  void (*const kernels[])(const long*, float*, long) = {%s};
  omp_set_num_threads(std::atoi(words[1]));
  static long in[4096];
  static float out[4096];
  for (auto kernel : kernels)
    for (long bad : {-1L, 0L, 4095L, 4096L, -1L}) {
      for (long i = 0; i < 4096; ++i) in[i] = (bad == 4096 || i == bad) ? (i %% 2 ? -1 : 8000000000) : i %% 8;
      try {
        kernel(in, out, 4096);
        long right = 0;
        for (long i = 0; i < 4096; ++i) right += out[i] == 10 * (i %% 8);
        std::printf("%%ld\\n", right);
      } catch (const std::runtime_error& error) { std::printf("%%.20s\\n", error.what()); }
    }
}
"""


def source(name: str, number: int) -> str:
    return f"""{BEFORE.get(name, "")}
extern "C" void kernel_{number}(const long* in, float* out, long n)
{{{REGIONS[name]}
}}
"""


def run(kernels: list[str], threads: int, folder: Path) -> subprocess.CompletedProcess[str]:
    program = folder / f"program-{len(kernels)}"
    if not program.exists():
        text = program.with_suffix(".cpp")
        names = ", ".join(f"kernel_{number}" for number in range(len(kernels)))
        text.write_text(PROGRAM % ("\n".join(kernels), names))
        subprocess.run(["g++", "-std=c++17", "-O1", "-fopenmp", text, "-o", program], check=True)
    return subprocess.run([program, str(threads)], capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_what_is_refused_inside_is_thrown_after_the_region_and_the_next_call_is_answered(tmp_path: Path) -> None:
    kernels = [thrown_on(source(name, number)) for number, name in enumerate(REGIONS)]
    refused = "index out of bounds:"
    for threads in (1, 2, 4):
        done = run(kernels, threads, tmp_path)
        assert done.returncode == 0, done.stderr
        said = done.stdout.splitlines()
        each = {name: said[5 * number : 5 * number + 5] for number, name in enumerate(REGIONS)}
        assert each == {name: ["4096", refused, refused, refused, "4096"] for name in REGIONS}
    ended = run([source("a loop", 0)], 1, tmp_path)
    assert (ended.returncode, "terminate called" in ended.stderr) == (-6, True), (
        "without the change it ends the process"
    )


def test_what_costs_time_is_only_where_there_is_no_other_way() -> None:
    tried = {name for name in REGIONS if "catch" in thrown_on(source(name, 0))}
    assert tried == {
        "a lambda", "a loop for vector code", "an assertion with braces in its words", "a function that checks"
    }  # fmt: skip


def test_it_is_changed_once() -> None:
    for name in REGIONS:
        changed = thrown_on(source(name, 0))
        assert changed != source(name, 0)
        assert thrown_on(changed) == changed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int a;\n",
        source("a loop", 0).replace(CHECK, ""),
        # Who left would leave the others waiting.
        source("a loop", 0).replace("int tid", "#pragma omp barrier\nint tid"),
        source("a loop", 0).replace("#pragma omp for", "#pragma omp sections"),
        # Loops that are not where they should be, and braces that do not match.
        source("a loop", 0).replace("#pragma omp for", "#pragma omp for\nint a;"),
        source("a loop", 0).replace("#pragma omp for", "#pragma omp for collapse(3)"),
        source("a region and loop in one", 0).replace(") {", ") work();"),
        source("a loop", 0).replace("}", ""),
        source("a loop", 0).replace(LOOP, "for(long x0=(0; x0<n;)"),
    ],
)
def test_what_is_not_as_expected_stays_as_it_is(text: str) -> None:
    assert thrown_on(text) == text


DIVIDES = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel(const int64_t* in_ptr0, int64_t* out_ptr0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    #pragma omp parallel
    {
        #pragma omp for
        for(int64_t x0=0; x0<8; x0+=1)
        {
            out_ptr0[x0] = floor_divide_integral(in_ptr0[x0], in_ptr0[x0 + 8]);
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
"""


def test_a_division_by_zero_is_not_noted_where_another_call_reads_it() -> None:
    changed = divisions_thrown(DIVIDES)
    assert changed.startswith("#define inductor_cpu_integer_div_error_flag preheat_")
    assert "inductor_cpu" not in changed.partition("\n")[2]
    assert "catch" in thrown_on(changed)


@pytest.mark.parametrize("gone", ["_flag = nullptr", "std::atomic<int> ", "throw_if_"])
def test_where_torch_notes_it_in_another_way_it_still_does(gone: str) -> None:
    other = DIVIDES.replace(gone, f"another{gone}")
    assert divisions_thrown(other) == other
    assert divisions_thrown("int a;\n") == "int a;\n"


@pytest.mark.parametrize(
    ("torchs", "meant"),
    [
        ("((0 <= tmp18) & (tmp18 < 1000L)) | ~((tmp9).all_masked())", "((0 <= tmp18) & (tmp18 < 1000L)) | (tmp9).all_zero()"),
        ("((0 <= tmp18) & (tmp18 < 1000L)) | ~(tmp9)", "((0 <= tmp18) & (tmp18 < 1000L)) | !(tmp9)"),
        ("((Mask<2>((low <= tmp3) & (tmp3 < high))) | ~(tmp9)).all_masked()",) * 2,
        ("(0 <= tmp2) & (tmp2 < 1000L)",) * 2,
    ],
)  # fmt: skip
def test_an_index_under_a_mask_is_checked(torchs: str, meant: str) -> None:
    line = '    TORCH_CHECK({}, "index out of bounds: 0 <= tmp18 < 1000L");\n'
    assert masked_checked(line.format(torchs)) == line.format(meant)
    assert masked_checked(f"a = b | ~(tmp9), c;\n{line.format(torchs)}").startswith("a = b | ~(tmp9), c;\n")


class Backend:
    """As the object that torch.compile gives its graphs to."""

    def __call__(self, graph: str, inputs: int) -> tuple[str, int]:
        return graph, inputs


@pytest.mark.parametrize("fails", [False, True])
def test_it_begins_with_the_first_graph_and_once(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    @contextmanager
    def kept() -> Iterator[None]:
        begun.append(True)
        if fails:
            raise ImportError("no such module")
        yield

    monkeypatch.setattr(torch, "_TorchCompileInductorWrapper", Backend)
    monkeypatch.setattr(Backend, "__call__", Backend.__call__)
    monkeypatch.setattr(parallel, "kept_in_regions", kept)
    monkeypatch.setattr(parallel, "_held", [])
    made = Backend()
    parallel.hold()
    parallel.hold()
    assert begun == []
    assert [made("g", 1), made("g", inputs=2)] == [("g", 1), ("g", 2)]
    assert begun == [True]


def test_a_torch_that_compiles_in_another_way_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_held", [])
    monkeypatch.setattr(torch, "_TorchCompileInductorWrapper", "something else")
    parallel.hold()
    monkeypatch.delattr(torch, "_TorchCompileInductorWrapper")
    parallel.hold()
    assert parallel._held == []
