"""An index out of range, which eager refuses, in a package and in what a warm pod compiles: an error, and the process lives on.

Each way is tried in a process of its own, since what is looked for is its end. Run by any Python with a torch and our
packages for Jobs on its path:

    python bad_index.py package FOLDER        # or: warm, in the environment of a warm pod
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

#: Whether this torch refuses a division by 0 by itself; where it does not, the processor ends the process.
DIVIDES = "inductor_cpu_integer_div_error" in Path(
    torch.__path__[0], "include/torch/csrc/inductor/cpp_prefix.h"
).read_text(encoding="utf-8")
BAD = 7


class Lookup(nn.Module):
    """A kernel too small for two threads, and one that is large enough; a division of whole numbers; an index under a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Embedding(1000, 16), nn.Embedding(1000, 256)

    def forward(self, few: torch.Tensor, many: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, ...]:
        padded = nn.functional.pad(self.small.weight[by], (1, 1))
        return self.small(few) * 2, nn.functional.gelu(self.large(many)), many // by, padded


class Calls:
    """What the model is called with, and what became of each call."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = Lookup().eval()
        self.good = (torch.randint(0, 1000, (1, 8)), torch.randint(0, 1000, (8, 64)), torch.randint(1, 9, (8, 64)))
        self.refused = [
            self._bad(0, 7, 1000), self._bad(0, 0, -1), self._bad(1, 0, 1000), self._bad(1, -1, -1),
            self._bad(1, slice(None), 2**40), self._bad(2, 9, 0) if DIVIDES else self._bad(0, 7, 1000), self._bad(2, 9, 5000),
        ]  # fmt: skip

    def _bad(self, which: int, place: int | slice, value: int) -> list[torch.Tensor]:
        args = [each.clone() for each in self.good]
        args[which].view(-1)[place] = value
        return args

    def said(self, call: Callable[[], Any]) -> str | None:
        """What is wrong with a call's outcome: the error and the first line of its words; None if it is eager's answer."""
        try:
            found = call()
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        far = max(float((mine - theirs).abs().max()) for mine, theirs in zip(found, self.net(*self.good), strict=True))
        return None if far < 1e-5 else f"off by {far}"

    def all_of(self, compiled: Callable[..., Any]) -> list[str | None]:
        """Each bad call, and after each a good one."""
        each_call = (partial(compiled, *args) for each in self.refused for args in (each, self.good))
        return [self.said(call) for call in each_call]

    def at_once(self, compiled: Callable[..., Any]) -> list[str]:
        """What is wrong with calls of several threads, of which two divide by 0: what one is refused for is not told another."""
        wrong = []

        def work(args: Any, *, refused: bool) -> None:
            with torch.no_grad():
                for _ in range(500):
                    said = self.said(lambda: compiled(*args))
                    if (said is not None) != refused:
                        wrong.append(said or "answered")

        kinds = [(self.refused[5], True), (self.good, False)] * 2
        threads = [threading.Thread(target=work, args=(args,), kwargs={"refused": refused}) for args, refused in kinds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return wrong


def package(folder: str) -> dict[str, Any]:
    """Of a package, with one thread and with two, and of calls at the same time."""
    from preheat_compiler.package import ExampleCall, build_package, load_package

    calls = Calls()
    build_package(calls.net, ExampleCall(args=calls.good), dynamic_shapes=None, out=Path(folder), cpu_isa="X86_64_V3")
    answer: dict[str, Any] = {"divides": DIVIDES, "kind": "NativeError"}
    with torch.no_grad():
        loaded = load_package(Path(folder), calls.net)
        for threads in (2, 1):
            torch.set_num_threads(threads)
            answer[f"{threads} threads"] = calls.all_of(loaded)
        answer["at once"] = calls.at_once(loaded)
    return answer


def warm() -> dict[str, Any]:
    """Of what torch compiles with the settings of a warm pod."""
    from preheat_runtime.warm import settle

    settle("X86_64_V3")
    calls = Calls()
    with torch.no_grad():
        return {"divides": DIVIDES, "kind": "RuntimeError", "warm": calls.all_of(torch.compile(calls.net))}


def faults(*words: str, python: str = sys.executable, **environ: str) -> list[str]:
    """What is not as it must be where that Python runs this file with these words: none, if all is well."""
    done = subprocess.run(
        [python, __file__, *words], env={**os.environ, **environ}, capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip
    if done.returncode:
        return [f"ended with {done.returncode}: {done.stderr[-3000:]}"]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    divides, kind, at_once = answer.pop("divides"), answer.pop("kind"), answer.pop("at once", [])
    found = [f"at once: {each}" for each in at_once]
    if kind == "NativeError":
        printed = [line for line in done.stderr.splitlines() if "Error" in line or "frame #" in line]
        found += [f"a refused call printed {line}" for line in printed[:3]]
    words_of = ["index out of bounds"] * BAD
    if divides:
        words_of[5] = "ZeroDivisionError"
    for name, said in answer.items():
        found += [f"{name}: a right call after a refused one: {each}" for each in said[1::2] if each is not None]
        for number, (text, each) in enumerate(zip(words_of, said[::2], strict=True)):
            if each is None or not each.startswith(f"{kind}: ") or text not in each:
                found.append(f"{name}: call {number} was to be refused by {kind} with {text!r}: {each or 'answered'}")
    return found


if __name__ == "__main__":
    print(json.dumps({"package": package, "warm": warm}[sys.argv[1]](*sys.argv[2:])))
