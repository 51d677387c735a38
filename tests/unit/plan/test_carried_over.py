"""New weights are checked on the revision that is there, and what is right with them is carried over."""

from __future__ import annotations

from typing import Any

import pytest

from unit.plan.ready import IMAGE, ONE, TWO, compile_image, compiled_in, ready, request, served
from unit.plan.simulation import Simulation, deployment, digest, spec


def test_new_weights_are_checked_on_the_revision_that_is_there() -> None:
    world = ready(weights={"revision": "6"})
    assert "base" not in request(world.made[0])
    world.body = spec(weights={"revision": "7"})
    job = world.make_ready(digest("b"), carried=1)
    assert request(job)["base"] == digest("a")
    newest = world.status["revisions"][0]
    assert (newest["weights"], newest["cause"], newest["hardware"][0]["carried"]) == ("7", "WeightsChanged", 1)
    assert served(world) == {IMAGE: digest("b")}
    (message,) = (c["message"] for c in world.status["conditions"] if c["type"] == "Ready")
    assert "1 of them carried over" in message


@pytest.mark.parametrize(
    "other",
    [
        lambda w: setattr(w, "workload", deployment("registry/vision:2")),
        lambda w: w.workload["spec"]["template"]["spec"]["containers"][0].update(args=["x"]),
        lambda w: w.annotations.update({"preheat.dev/rebuild": "x"}),
        lambda w: w.serve("p", IMAGE, TWO),
    ],
)
def test_what_changed_with_the_weights_is_compiled(other: Any) -> None:
    world = ready(weights={"revision": "6"})
    compiled_in(world, ONE)
    world.settle()
    world.body = spec(weights={"revision": "7"})
    other(world)
    world.settle()
    assert "base" not in request(world.made[-1])


def test_another_spec_is_checked_on_what_there_is_and_with_other_weights_on_what_has_the_same_spec() -> None:
    world = ready(weights={"revision": "6"})
    world.body = spec(weights={"revision": "6"}, keepIf={"minSpeedup": "0"})
    job = world.make_ready(digest("b"))
    assert (request(job)["base"], world.causes[0]) == (digest("a"), "SpecChanged")
    world.body = spec(weights={"revision": "7"})
    job = world.make_ready(digest("c"), carried=1)
    assert request(job)["base"] == digest("a"), "not the newest one, whose targets were asked for otherwise"


def test_weights_are_checked_in_the_image_that_was_compiled_in() -> None:
    world = ready(weights={"revision": "6"})
    compiled_in(world, ONE)
    world.settle()
    world.body = spec(weights={"revision": "7"})
    world.settle()
    assert compile_image(world.made[-1]) == (ONE, "IfNotPresent")


def test_old_weights_again_need_no_job() -> None:
    world = ready(weights={"revision": "6"})
    world.body = spec(weights={"revision": "7"})
    world.make_ready(digest("b"))
    world.body = spec(weights={"revision": "6"})
    plan = world.pass_once()
    assert [a.reason for a in plan.announcements] == ["Returned"]
    assert world.settle().create == ()
    assert served(world) == {IMAGE: digest("a")}


@pytest.mark.parametrize("carried", [True, -1, 129, "1", None, 2.0])
def test_a_count_that_is_none_is_zero(carried: object) -> None:
    world = Simulation()
    world.make_ready(digest("a"), carried=carried)  # type: ignore[arg-type]
    assert world.status["revisions"][0]["hardware"][0]["carried"] == 0
