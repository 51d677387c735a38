"""An index out of range, which eager refuses, in a package and in what a warm pod compiles: an error, and the process lives on.

Each runs in a process of its own, since what is looked for is its end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from preheat_runtime.environment import cache_environment
from preheat_runtime.parallel import kept_in_regions

pytestmark = pytest.mark.torch

MODEL = """
import json, sys, threading
import torch
from torch import nn

class Lookup(nn.Module):
    '''A kernel too small for two threads, and one that is large enough; a division of whole numbers; an index under a mask.'''
    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Embedding(1000, 16), nn.Embedding(1000, 256)
    def forward(self, few, many, by):
        padded = nn.functional.pad(self.small.weight[by], (1, 1))
        return self.small(few) * 2, nn.functional.gelu(self.large(many)), many // by, padded

torch.manual_seed(0)
net = Lookup().eval()
FEW, MANY, BY = (1, 8), (8, 64), (8, 64)
GOOD = (torch.randint(0, 1000, FEW), torch.randint(0, 1000, MANY), torch.randint(1, 9, BY))

def bad(which, place, value):
    args = [each.clone() for each in GOOD]
    args[which].view(-1)[place] = value
    return args

def outcome(call):
    try:
        return call()
    except Exception as error:
        return error

def said(found):
    '''What is wrong with a call's outcome: the error and the first line of its words; None if it is eager's answer.'''
    if isinstance(found, Exception):
        return type(found).__name__ + ': ' + str(found).splitlines()[0]
    far = max(float((mine - theirs).abs().max()) for mine, theirs in zip(found, net(*GOOD)))
    return None if far < 1e-5 else f'off by {far}'

REFUSED = [bad(0, 7, 1000), bad(0, 0, -1), bad(1, 0, 1000), bad(1, -1, -1), bad(1, slice(None), 2**40), bad(2, 9, 0), bad(2, 9, 5000)]

def all_of(compiled):
    return [said(outcome(lambda: compiled(*args))) for each in REFUSED for args in (each, GOOD)]
"""

PACKAGE = """
from pathlib import Path
from preheat_compiler.package import ExampleCall, build_package, load_package

out = Path(sys.argv[1])
build_package(net, ExampleCall(args=GOOD), dynamic_shapes=None, out=out, cpu_isa="X86_64_V3")
answer = {}
with torch.no_grad():
    package = load_package(out, net)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        answer[threads] = all_of(package)
    # Calls of a package run at the same time; what one is refused for must not be told another.
    torch.set_num_threads(1)
    wrong = []
    def work(args, refused):
        for _ in range(500):
            with torch.no_grad():
                found = outcome(lambda: package(*args))
            if isinstance(found, Exception) != refused:
                wrong.append(said(found) or 'answered')
    threads = [threading.Thread(target=work, args=(args, refused)) for args, refused in [(REFUSED[5], True), (GOOD, False)] * 2]
    [each.start() for each in threads]
    [each.join() for each in threads]
    answer['at once'] = wrong
print(json.dumps(answer))
"""

WARM = """
from preheat_runtime.warm import settle

settle("X86_64_V3")
with torch.no_grad():
    print(json.dumps(all_of(torch.compile(net))))
"""

#: torch from 2.15 on refuses a division by 0 by itself; before, the processor ends the process.
DIVIDES = "inductor_cpu_integer_div_error" in Path(
    torch.__path__[0], "include/torch/csrc/inductor/cpp_prefix.h"
).read_text(encoding="utf-8")


def run(script: str, *words: str, **environ: str) -> object:
    model = MODEL if DIVIDES else MODEL.replace("bad(2, 9, 0)", "bad(0, 7, 1000)")
    done = subprocess.run(
        [sys.executable, "-c", model + script, *words], env={**os.environ, **environ}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def refused(said: list[str | None], kind: str) -> None:
    """Each bad call is refused in the check's words, and each good call after it is answered as eager answers it."""
    assert said[1::2] == [None] * 7
    assert [str(each).partition(":")[0] for each in said[::2]] == [kind] * 7
    words = (
        ["index out of bounds: 0 <= "] * 5
        + ["ZeroDivisionError" if DIVIDES else "index out of bounds"]
        + ["index out of bounds"]
    )
    assert [word in str(each) for word, each in zip(words, said[::2], strict=True)] == [True] * 7, said


@pytest.mark.timeout(900)
def test_a_package_refuses_it_and_answers_the_next_call(tmp_path: Path) -> None:
    answer = run(PACKAGE, str(tmp_path / "out"))
    assert isinstance(answer, dict)
    refused(answer["1"], "NativeError")
    refused(answer["2"], "NativeError")
    assert answer["at once"] == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_warm_pod_refuses_it_and_answers_the_next_call(threads: str, tmp_path: Path) -> None:
    """With the setting that puts every kernel into a parallel region; torch itself refuses in another process's words."""
    environ = {**cache_environment(), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": threads}
    said = run(WARM, **environ)
    assert isinstance(said, list)
    refused(said, "RuntimeError")


def test_inductor_is_as_it_was_afterwards() -> None:
    from torch._inductor.codegen import cpp

    before = cpp.CppScheduling.define_kernel, cpp.CppKernel.decide_parallel_depth
    with kept_in_regions(packages=True):
        inside = cpp.CppScheduling.define_kernel, cpp.CppKernel.decide_parallel_depth
        assert not set(before) & set(inside), "this torch's Inductor works otherwise: kernels would end the process"
    assert (cpp.CppScheduling.define_kernel, cpp.CppKernel.decide_parallel_depth) == before
