"""Says in what a job's outcome is not what the table promises.

Why it exists: the test and `benchmarks/matrix.py` hold every architecture to the same promises, none of which is a matter
of the machine's speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from architectures.job import Job, Served

#: Relative error of float32 answers; the driver's default gate as well, but this one is on figures of our own.
MAX_ERROR = 1e-3
OUTCOME = {"package": "hot", "caches": "warm"}


def faults(job: Job, served: Served | None) -> list[str]:
    """Everything that is not as it must be; `served` is what a fresh process said, None when nothing was kept."""
    return [*_of_verdict(job), *_of_report(job), *(_of_served(job, served) if served is not None else ())]


def _of_verdict(job: Job) -> Iterator[str]:
    wanted, target = job.architecture, job.target
    said = f"{target['verdict']} {target['reason']}: {target['message']}"
    if (target["verdict"], target["reason"]) not in wanted.verdicts:
        yield f"expected one of {sorted(wanted.verdicts)}, got {said}"
    # A Rejected target has no tier in its result; report.json's fallbacks say by which way it went.
    tier = wanted.tier if target["verdict"] == "Kept" else None
    if target["tier"] != tier:
        yield f"expected tier {tier}, got {target['tier']}: {said}"
    for words in wanted.says:
        if words not in target["message"]:
            yield f"the message does not say {words!r}: {said}"


def _of_report(job: Job) -> Iterator[str]:
    wanted, report = job.architecture, job.report
    if wanted.tier is None:
        if "package" in report or "speed" in report:
            yield "it was built, though it cannot be judged"
        return
    if job.target["verdict"] == "Failed":
        return  # said already
    if (wanted.tier == "package") != ("package" in report and "fallbacks" not in report):
        yield f"expected it to be built as {wanted.tier}, report.json has {report.get('fallbacks')}"
    if wanted.tier == "package" and report.get("package", [{}])[0].get("constants") != wanted.constants:
        yield f"expected {wanted.constants} constants, got {report.get('package')}"
    errors = [float(each["maximum"]) for each in report.get("errors", ()) if "random" not in each["inputs"]]
    if not errors or not max(errors) <= MAX_ERROR:
        yield f"the driver's own errors are {errors}"
    if job.target["verdict"] == "Kept":
        yield from _of_proofs(wanted.tier, report)


def _of_proofs(tier: str, report: dict[str, Any]) -> Iterator[str]:
    fresh = [proof for proof in report["proofs"] if proof["name"] == "fresh process"]
    outcomes = {line["outcome"] for proof in fresh for line in proof["said"]}
    if outcomes != {OUTCOME[tier]}:
        yield f"the driver's fresh processes were {outcomes or 'none'}, not {OUTCOME[tier]}"
    moved = [proof["answerMoved"] for proof in report["proofs"] if proof["name"] == "random weights"]
    if tier == "package" and not (moved and float(moved[0]) > MAX_ERROR):
        yield f"random weights moved the answer by {moved}, so that proof saw nothing"


def _of_served(job: Job, served: Served) -> Iterator[str]:
    wanted = job.architecture
    outcome = OUTCOME[job.target["tier"]]
    if set(served.outcomes) != {outcome}:
        yield f"a fresh process was served {served.outcomes}, not {outcome}"
    if outcome == "hot" and served.answer["imported"]:
        yield f"a hot process imported {served.answer['imported']}"
    if not max(served.answer["errors"]) <= MAX_ERROR:
        yield f"served answers differ from eager's by {served.answer['errors']}"
    if served.answer["kinds"] != [wanted.kind]:
        yield f"expected answers of type {wanted.kind}, got {served.answer['kinds']}"
