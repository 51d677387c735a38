"""A tag that was moved, and which image a Job compiles in: by its name, or by the digest that was seen."""

from __future__ import annotations

from typing import Any

import pytest

from preheat_operator.plan.running import digest_of_image, pinned
from unit.plan.ready import IMAGE, ONE, TWO, compile_image, compiled_in, ready, served
from unit.plan.simulation import Simulation, deployment, digest, spec


def test_the_digest_is_learned_from_the_compile_pod_and_later_jobs_compile_in_it() -> None:
    world = Simulation(body=spec(hardware=("cpu", "gpu")))
    world.settle()
    assert {compile_image(j) for j in world.open_jobs()} == {(IMAGE, "Always")}
    compiled_in(world, ONE)
    world.settle()
    assert world.status["revisions"][0]["imageDigest"] == digest("1")
    job = world.open_jobs()[0]
    world.end(job, ok=False, ends={"compile": (1, "Error", "")})
    world.wait(4000)
    world.settle()
    again = world.made[-1]
    assert again["metadata"]["labels"]["preheat.dev/attempt"] == "2"
    assert compile_image(again) == (ONE, "IfNotPresent")


def test_a_moved_tag_is_compiled_in_the_image_that_pods_run() -> None:
    world = ready()
    compiled_in(world, ONE)
    world.serve("p1", IMAGE, ONE)
    world.settle()
    assert world.causes == ["Created"]
    world.serve("p2", IMAGE, TWO)
    world.settle()
    assert world.causes == ["ImageMoved", "Created"]
    assert compile_image(world.made[-1]) == (TWO, "IfNotPresent")
    world.make_ready(digest("b"))
    assert served(world) == {IMAGE: digest("b")}, "the tag names the newest"


def test_a_node_that_keeps_the_old_image_does_not_turn_it_round() -> None:
    world = ready()
    compiled_in(world, ONE)
    world.serve("p1", IMAGE, ONE)
    world.settle()
    world.serve("p2", IMAGE, TWO)
    world.make_ready(digest("b"))
    world.serve("p3", IMAGE, ONE)
    world.settle()
    assert world.causes == ["ImageMoved", "Created"]
    world.serving_pods = [p for p in world.serving_pods if p["metadata"]["name"] != "p2"]
    world.settle()
    assert world.causes == ["Created", "ImageMoved"], "nothing runs the new one any more: the tag was moved back"
    assert len(world.made) == 2, "which needs no Job"


@pytest.mark.parametrize(
    ("image", "image_id", "status"),
    [
        (IMAGE, "sha256:" + "2" * 64, {}),
        (IMAGE, "", {}),
        ("registry/vision:other", TWO, {}),
        (IMAGE, TWO, {"phase": "Pending"}),
        (IMAGE, TWO, {"phase": "Succeeded"}),
    ],
)
def test_what_says_nothing_about_the_tag(image: str, image_id: str, status: dict[str, Any]) -> None:
    world = ready()
    compiled_in(world, ONE)
    world.settle()
    world.serve("p", image, image_id, **status)
    world.settle()
    assert world.causes == ["Created"]


def test_an_image_by_digest_cannot_move() -> None:
    world = Simulation(workload=deployment(ONE))
    world.make_ready(digest("a"))
    assert world.status["revisions"][0]["imageDigest"] == digest("1")
    world.serve("p", ONE, TWO)
    world.settle()
    assert world.causes == ["Created"]
    assert compile_image(world.made[0]) == (ONE, "IfNotPresent")


def test_an_image_that_must_not_be_pulled_is_compiled_in_by_its_name() -> None:
    world = Simulation()
    container = (world.workload or {})["spec"]["template"]["spec"]["containers"][0]
    container["imagePullPolicy"] = "Never"
    world.serve("p", IMAGE, ONE)
    world.settle()
    assert compile_image(world.made[0]) == (IMAGE, "Never")


@pytest.mark.parametrize(
    ("image", "result"),
    [
        ("vision", f"vision@{digest('1')}"),
        ("registry:5000/a/vision:1.2", f"registry:5000/a/vision@{digest('1')}"),
        ("registry:5000/a/vision", f"registry:5000/a/vision@{digest('1')}"),
        (f"a/vision:1@{digest('3')}", f"a/vision@{digest('1')}"),
    ],
)
def test_an_image_by_its_digest(image: str, result: str) -> None:
    assert pinned(image, digest("1")) == result
    assert digest_of_image(result) == digest("1")
    assert digest_of_image("docker-pullable://" + result) == digest("1")
