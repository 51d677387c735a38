"""Pods that run on something else than their revision was made for are a cause of a new one; few or divided ones are none."""

from __future__ import annotations

from typing import Any

import pytest

from preheat_operator.api.served import Served
from preheat_operator.plan.changed import environments
from preheat_operator.plan.watched import witnesses
from preheat_runtime.reasons import class_of
from unit.plan.pods import HOT, WRONG, pod
from unit.plan.simulation import START, Simulation, deployment, digest, spec

FIRST, SECOND, THIRD = (digest(c) for c in "abc")
NEW, NEWER = {"torch": "2.16.0", "python": "3.12"}, {"torch": "2.17.0", "python": "3.12"}
OTHER_GPU = {"machine": "x86_64", "cpuIsa": "X86_64_V3", "gpu": "NVIDIA H100"}
NO_GPU_TOLD = {"machine": "x86_64", "cpuIsa": "X86_64_V4"}


def differs(reason: str = "TorchDiffers", node: dict[str, str] | None = None) -> Served:
    return Served(answers={f"cold/{reason}": 1}, node=NEW if node is None else node)


def pods(count: int, manifest: str, served: Served, prefix: str = "p") -> list[Any]:
    return [pod(f"{prefix}{n}", served=served, manifest=manifest) for n in range(count)]


def found(*served: Served) -> dict[str, str]:
    seen = [pod(f"p{n}", served=each, manifest=FIRST) for n, each in enumerate(served)]
    return environments(witnesses(seen, now=START))


@pytest.mark.parametrize(
    ("served", "said"),
    [
        ([differs(), differs()], "torch 2.16.0, Python 3.12"),
        ([differs("PythonDiffers"), differs()], "torch 2.16.0, Python 3.12"),
        ([differs("GpuDiffers", OTHER_GPU)] * 2, "x86_64, CPU class X86_64_V3, GPU NVIDIA H100"),
        ([differs("CpuDiffers", NO_GPU_TOLD)] * 2, "x86_64, CPU class X86_64_V4"),
        ([differs(node=NEW | OTHER_GPU), differs(node=NEW | NO_GPU_TOLD)], "torch 2.16.0, Python 3.12"),
        ([differs(), differs(), *[Served()] * 8], "torch 2.16.0, Python 3.12"),
        ([differs(), differs(), *[Served()] * 9], None),
        ([differs()], None),
        ([differs(), differs(), HOT], None),
        ([differs(), differs(), Served(answers={"warm/Caches": 1})], None),
        ([differs(), differs(), Served(answers={"eager/Rejected": 1})], None),
        ([differs(), differs(node=NEWER)], None),
        ([differs(), differs("GpuDiffers", OTHER_GPU)], None),
        ([differs(node={}), differs(node={})], None),
        ([differs("CpuDiffers", NEW)] * 2, None),
        ([Served(answers={"cold/ModelDiffers": 1}, node=NEW)] * 2, None),
        ([Served()] * 3, None),
        ([], None),
    ],
)
def test_two_pods_and_a_fifth_must_say_the_same_and_none_be_served(served: list[Served], said: str | None) -> None:
    assert found(*served) == ({} if said is None else {FIRST: said})


def ready() -> Simulation:
    world = Simulation()
    world.make_ready(FIRST)
    return world


@pytest.mark.parametrize(
    ("reason", "node", "cause", "words"),
    [
        ("TorchDiffers", NEW, "TorchChanged", "pods say that they run with torch 2.16.0, Python 3.12"),
        (
            "GpuDiffers",
            OTHER_GPU,
            "HardwareChanged",
            "pods say that they run on x86_64, CPU class X86_64_V3, GPU NVIDIA H100",
        ),
    ],
)
def test_it_is_compiled_once_more_and_pods_get_that(reason: str, node: dict[str, str], cause: str, words: str) -> None:
    world = ready()
    world.served = pods(2, FIRST, differs(reason, node))
    plan = world.pass_once()
    (told,) = (a for a in plan.announcements if a.reason == cause)
    assert words in told.message
    assert world.causes == [cause, "Created"]
    world.make_ready(SECOND)
    newest, first = world.status["revisions"]
    assert (newest["manifest"], first["manifest"]) == (SECOND, FIRST)
    assert newest["environment"] in words
    assert "environment" not in first
    # Those that run on go on saying it; what has it is ready.
    world.settle()
    assert world.open_jobs() == []
    world.served += pods(3, SECOND, HOT, "q")
    world.settle()
    assert world.causes == [cause, "Created"]


@pytest.mark.parametrize(
    ("words", "node", "cause"),
    [
        ("main/one/cpu: torch 2.16.0 in the pod, artifact has 2.14.1", NEW, "TorchChanged"),
        ("main/one/cpu: CPU lacks avx512f, which code for X86_64_V4 needs", NO_GPU_TOLD, "HardwareChanged"),
    ],
)
def test_pods_of_an_image_without_a_compiler_are_heard_as_others_are(
    words: str, node: dict[str, str], cause: str
) -> None:
    reason = class_of("eager", f"{words}; there is no C++ compiler in the image, so the model runs eagerly")
    world = ready()
    world.served = pods(2, FIRST, Served(answers={f"eager/{reason}": 1}, node=node))
    world.pass_once()
    assert world.causes == [cause, "Created"]


def test_a_compile_that_saw_the_old_one_again_is_not_repeated() -> None:
    world = ready()
    world.served = pods(2, FIRST, differs())
    world.make_ready(SECOND)
    world.served = pods(4, SECOND, differs())
    world.settle()
    assert world.open_jobs() == []
    assert world.condition("Degraded") == ("True", "PodsMiss")


def test_and_back_needs_no_job_and_turns_nothing_round() -> None:
    world = ready()
    world.served = pods(2, FIRST, differs())
    world.make_ready(SECOND)
    world.served = pods(2, SECOND, differs(node=NEWER), "q")
    world.make_ready(THIRD)
    assert world.causes == ["TorchChanged", "TorchChanged", "Created"]
    # The volume is turned back, while two pods of before still run with the second.
    old = world.served
    world.served = [*old, *pods(2, THIRD, differs(), "r")]
    world.settle()
    assert world.status["revisions"][0]["manifest"] == THIRD
    world.served = pods(2, THIRD, differs(), "r")
    world.settle()
    assert world.status["revisions"][0]["manifest"] == SECOND
    assert world.open_jobs() == []


def test_another_image_begins_anew_and_what_was_found_is_found_again() -> None:
    world = ready()
    world.served = pods(2, FIRST, differs())
    world.make_ready(SECOND)
    world.workload = deployment("registry/vision:2")
    world.make_ready(THIRD)
    assert "environment" not in world.status["revisions"][0]
    world.workload = deployment("registry/vision:1")
    world.settle()
    assert world.status["revisions"][0]["manifest"] == SECOND
    assert world.open_jobs() == []


def test_a_rebuild_and_what_was_taken_back_are_left_as_they_are() -> None:
    world = ready()
    world.served = pods(2, FIRST, differs())
    world.make_ready(SECOND)
    world.served = pods(2, SECOND, WRONG)
    world.settle()
    world.served = pods(2, FIRST, differs())
    world.settle()
    assert world.status["revisions"][0]["state"] == "TakenBack"
    assert world.open_jobs() == []
    world.annotations["preheat.dev/rebuild"] = "again"
    world.make_ready(THIRD)
    assert world.causes == ["Rebuild", "TorchChanged", "Created"]


def test_while_it_is_compiled_what_pods_say_starts_nothing_more() -> None:
    world = Simulation(body=spec(suspend="Disabled"))
    world.make_ready(FIRST)
    world.served = pods(2, FIRST, differs())
    world.settle()
    (job,) = world.open_jobs()
    world.served = pods(2, FIRST, differs(node=NEWER))
    world.settle()
    assert world.open_jobs() == [job]
