"""A simulation whose first revision is ready, and what is read of its Jobs and of the index that pods are served by."""

from __future__ import annotations

import json
from typing import Any

from preheat_operator.plan.index import index_text
from unit.plan.simulation import Simulation, digest, spec

IMAGE = "registry/vision:1"
ONE, TWO = (f"registry/vision@{digest(c)}" for c in "12")


def ready(**body: Any) -> Simulation:
    world = Simulation(body=spec(**body))
    world.make_ready(digest("a"))
    return world


def compiled_in(world: Simulation, image_id: str) -> None:
    """Say of every compile pod which image it runs."""
    for pod in world.pods.values():
        pod["status"].setdefault("initContainerStatuses", []).append(
            {"name": "compile", "imageID": image_id, "state": {"running": {"startedAt": "x"}}}
        )


def served(world: Simulation) -> dict[str, str]:
    lines = index_text(models=[world.model], paused=False).models.splitlines()
    said = (line.split(" ")[0].removeprefix("vision|").partition("=") for line in lines if "|" in line)
    return {image: manifest for image, _, manifest in said}


def compile_image(job: dict[str, Any]) -> tuple[str, str]:
    container = next(c for c in job["spec"]["template"]["spec"]["initContainers"] if c["name"] == "compile")
    return container["image"], container["imagePullPolicy"]


def request(job: dict[str, Any]) -> dict[str, Any]:
    env = job["spec"]["template"]["spec"]["containers"][0]["env"]
    text = next(e["value"] for e in env if e["name"] == "PREHEAT_REQUEST")
    found: dict[str, Any] = json.loads(text)
    return found
