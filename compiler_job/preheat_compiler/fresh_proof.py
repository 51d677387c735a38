"""Proves an artifact in fresh processes that meet it as strict pods do, and times them beside eager ones.

Why it exists: only a process that has compiled nothing shows whether the artifact alone is enough, what a pod pays for
its first answer, and what memory it needs.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from preheat_compiler import processes
from preheat_compiler.caches import FILLED
from preheat_compiler.faults import OUT_OF_MEMORY, fault_in
from preheat_compiler.intervals import median
from preheat_compiler.layout import assembler_shims, compiler_runs, lay_out, shims
from preheat_compiler.memory import MemoryGrowth, Peak, growth
from preheat_compiler.prove import last_words, pod_environment, said_by_runtime
from preheat_compiler.verdict import TargetError
from preheat_runtime import variables
from preheat_runtime.compare import Difference
from preheat_runtime.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from preheat_compiler.inputs import Sizes
    from preheat_compiler.report import Report
    from preheat_compiler.request import Request

#: What a pod pays is told, not judged, so two are enough; each costs two imports of torch.
_FRESH_PAIRS = 2
#: Where memory decides, one more, so that the median is none of the ends.
_FRESH_PAIRS_FOR_MEMORY = 3
_REMEDY = ". Pods run without it; please report this model."
#: What may be otherwise in another process.
_OF_THE_PROCESS = ("ProofFailed", "OutOfMemory")
#: No further pair is begun after so many seconds: a large model loads for minutes.
_FRESH_SECONDS = 40.0


@dataclass(frozen=True, kw_only=True)
class FirstAnswers:
    """Seconds from starting a process to its first answer: served from the artifact, and eager; medians.

    `memory` is what these processes needed while they answered at all sizes. `only_first` is why a pod that begins with
    another size than these is not warm, in words; empty where it is.
    """

    served: float
    eager: float
    memory: MemoryGrowth | None
    only_first: str = ""


@dataclass(frozen=True, kw_only=True)
class FreshProof:
    """Runs fresh processes that see one artifact as a pod does; everything they leave behind lies below `work`."""

    launcher: Path
    request_file: Path
    request: Request
    module: str
    bucket: str
    sizes: tuple[Sizes, ...]
    work: Path
    report: Report
    left: Callable[[], float]
    kind: str = "cpu"

    def first_answers(
        self, artifact: Path, *, tier: str, request_key: str, fingerprint: Mapping[str, Any], allowed: float
    ) -> FirstAnswers:
        """Prove that a pod is served (`hot` from a package, `warm` from caches) and right, and time it beside eager.

        Raises TargetError(ProofFailed) saying what was not so.
        """
        begin = time.monotonic()
        served: list[float] = []
        eager: list[float] = []
        peaks: tuple[list[Peak], list[Peak]] = ([], [])
        unsealed = ""
        judged = self.request.keep_if.max_memory_growth is not None
        lay = partial(
            lay_out, artifact=artifact, request=self.request, module=self.module, bucket=self.bucket, tier=tier,
            request_key=request_key, fingerprint=fingerprint,
        )  # fmt: skip
        for turn in range(_FRESH_PAIRS_FOR_MEMORY if judged else _FRESH_PAIRS):
            # Anew each time: a cache directory must serve a second pod from what the first one got.
            place = self.work / f"pod-{turn}"
            lay(place / "preheat")
            try:
                seen = self._served(place, tier=tier, allowed=allowed, compare=turn == 0, unsealed=unsealed)
            except TargetError as error:
                if unsealed or error.reason not in _OF_THE_PROCESS or self._of_this_job(str(error), place):
                    raise
                # Nothing says that the user's pods are so strict: what they need is proved, and the rest is told.
                unsealed = f"what went wrong with both: {str(error).removesuffix(_REMEDY)}"
                seen = self._served(place, tier=tier, allowed=allowed, compare=turn == 0, unsealed=unsealed)
            shutil.rmtree(place, ignore_errors=True)
            beside = self.work / f"eager-{turn}"
            plain, _ = self._run(
                beside, compile_="no", compare="no", more={variables.ENV_DISABLE: "1"}, sealed=not unsealed
            )
            shutil.rmtree(beside, ignore_errors=True)
            for one, seconds, peak in ((seen, served, peaks[1]), (plain, eager, peaks[0])):
                seconds.append(float(one["seconds"]))
                peak.append(Peak.from_json(one["memory"]))
            # What only tells may tell less; a gate decides by the median of all, for which there only has to be time.
            spent = time.monotonic() - begin
            if (spent > _FRESH_SECONDS and not judged) or self.left() < 3 * (served[-1] + eager[-1]):
                break
        self.report.note(
            "firstAnswers", served=[f"{each:.3f}" for each in served], eager=[f"{each:.3f}" for each in eager]
        )
        self.report.memory(eager=peaks[0], compiled=peaks[1])
        only_first = ""
        if tier == "caches" and len(self.sizes) > 1 and self.left() > 3 * served[-1]:
            place = self.work / "pod-of-another-size"
            lay(place / "preheat")
            only_first = self._only_first(place, allowed=allowed, unsealed=unsealed)
            shutil.rmtree(place, ignore_errors=True)
        return FirstAnswers(served=median(served), eager=median(eager), memory=growth(*peaks), only_first=only_first)

    def _only_first(self, place: Path, *, allowed: float, unsealed: str) -> str:
        """Why a pod whose first call has another size is not warm, in words; that is told, and refuses nothing."""
        try:
            turned = replace(self, sizes=(*self.sizes[1:], self.sizes[0]))
            turned._served(
                place, tier="caches", allowed=allowed, compare=False, unsealed=unsealed, name="another size first"
            )  # fmt: skip
        except TargetError as error:
            if error.reason not in _OF_THE_PROCESS:
                raise
            return str(error).removesuffix(_REMEDY)
        return ""

    def _served(
        self, place: Path, *, tier: str, allowed: float, compare: bool, unsealed: str, name: str = "fresh process"
    ) -> dict[str, Any]:
        work = self._own(place, sealed=not unsealed) / "work"
        work.mkdir(parents=True)
        more = {
            variables.ENV_DIR: str(place / "preheat"),
            variables.ENV_WORK_DIR: str(work),
            variables.ENV_MODEL: self.request.name,
            # Compared with eager here, and what is measured is to be the package's alone.
            variables.ENV_SERVING: "verify=Never",
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(place / "preheat" / "site"), os.environ.get("PYTHONPATH")])
            ),
        }
        filled = self.work.parent / FILLED
        there = filled.exists()
        seen, compiles = self._run(
            place,
            compile_="yes",
            compare="yes" if compare else "no",
            more=more,
            pass_on=tier == "caches",
            sealed=not unsealed,
        )
        lines = said_by_runtime(work)
        wanted = "hot" if tier == "package" else "warm"
        self.report.note(
            "proofs", name=name, said=lines, compilerRuns=compiles, imported=seen["imported"],
            conditions=_conditions(seen, unsealed),
        )  # fmt: skip
        fault = _fault(lines, wanted=wanted, compiles=compiles, imported=seen["imported"] if tier == "package" else [])
        if not fault and filled.exists() and not there:
            # Where this container lets nothing be sealed, what a pod could not write is written.
            fault = f"it wrote to {filled}, which is the compile Job's own"
        if not fault and compare and not float(seen["maximum"]) <= allowed:
            difference_seen = Difference(maximum=float(seen["maximum"]), why=seen["why"])
            fault = f"the answer differs from eager's by {difference_seen.words(allowed)}"
        if fault:
            raise TargetError(
                "ProofFailed",
                f"in a fresh process that sees only the artifact {fault}{_REMEDY}",
            )
        return seen

    def _of_this_job(self, words: str, place: Path) -> bool:
        """Whether what went wrong names a file of the compile Job's own, outside of `place`, which stands for a pod.

        No pod has such a file, so the artifact is at fault; and a try that may write there would pass.
        """
        return f"{self.work.parent}{os.sep}" in words.replace(str(place), "")

    @staticmethod
    def _own(place: Path, *, sealed: bool) -> Path:
        """What the process may write to; one folder for each try, since a sealed one's belongs to another user."""
        return place / ("own" if sealed else "own-unsealed")

    def _run(
        self, place: Path, *, compile_: str, compare: str, more: Mapping[str, str], sealed: bool, pass_on: bool = False
    ) -> tuple[dict[str, Any], int]:
        own = self._own(place, sealed=sealed)
        own.mkdir(parents=True, exist_ok=True)
        answer, output, log = own / "answer.json", place / "output", own / "compilers"
        assembled = own / "assemblers"
        environment = {**pod_environment(own, os.environ), **more}
        environment["PATH"] = os.pathsep.join(
            [str(shims(own / "bin", log=log, pass_on=pass_on)), environment.get("PATH", "")]
        )
        if compile_ == "yes" and self.kind == "cuda":
            environment.update(assembler_shims(own / "bin-of-triton", log=assembled))
        arguments = ["--request", str(self.request_file), "--module", self.module, "--bucket", self.bucket]
        arguments += ["--sizes", json.dumps([dict(each.by_dim) for each in self.sizes])]
        arguments += [
            "--compile",
            compile_,
            "--compare",
            compare,
            "--started",
            repr(time.monotonic()),
            "--answer",
            str(answer),
            "--seal",
            "yes" if sealed else "no",
            "--writable",
            str(own),
            "--noted",
            str(assembled),
        ]
        ended = processes.run(
            self.launcher,
            "fresh" if compile_ == "yes" else "eager",
            arguments,
            seconds=self.left(),
            environment=environment,
            output=output,
            own_group=False,
        )
        said = output.read_text(encoding="utf-8", errors="replace")
        try:
            seen = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            if ended.timed_out:
                raise TargetError(
                    "Timeout", "a fresh process did not answer in time. Raise spec.compile.timeoutSeconds."
                ) from None
            words = f"a fresh process that loads the model {ended.how}: {last_words(redact(said))}"
            fault = OUT_OF_MEMORY if ended.out_of_memory else fault_in(words)
            # A device, or room, may only have been missing for one that is as strict as this.
            if fault is not None and fault.reason == "OutOfMemory":
                raise TargetError(fault.reason, f"{words}. {fault.remedy}") from None
            raise TargetError("ProofFailed", words) from None
        return seen, compiler_runs(log) + compiler_runs(assembled, *seen["noted"])


def _conditions(seen: Mapping[str, Any], unsealed: str) -> dict[str, Any]:
    """Which of a strict pod's conditions the process saw to hold, and why another did not."""
    without: dict[str, Any] = {"readOnlyFileSystem": False, "nonRoot": os.getuid() != 0, "why": [unsealed]}
    sealed = seen["seal"] or without
    why = [f"{name} was not empty" for name in seen["notEmpty"]]
    if seen["compiler"] is not None:
        why.append(f"{seen['compiler']} runs")
    return {
        **sealed,
        "emptyHome": not seen["notEmpty"],
        "noCompiler": seen["compiler"] is None,
        "why": [*sealed["why"], *why],
    }


def _fault(lines: list[dict[str, Any]], *, wanted: str, compiles: int, imported: list[str]) -> str:
    """What a served answer had that it must not have, in words; empty when all is well."""
    if not lines:
        return "the runtime was not loaded, or not asked"
    for line in lines:
        if line.get("outcome") != wanted:
            return f"an answer was {line.get('outcome') or line.get('when')}, not {wanted} ({line.get('reason')})"
    if compiles:
        return f"a compiler ran {compiles} times"
    return f"the first answer imported {', '.join(imported)}" if imported else ""
