"""The controller is killed over and over, at moments that nobody chose: nothing is compiled twice, and it ends Ready.

The chosen moments are in `test_controller_faults`; this one looks for those that nobody thought of.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from typing import TYPE_CHECKING

import kit
import pytest

from e2e.world import jobs_ever

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

ROUNDS = 5
# Longer than a compile of the tiny model takes on a slow machine, so that some kills come after the Job's end.
SECONDS_OF_KILLS = 90


@pytest.mark.parametrize("number", range(ROUNDS))
def test_killed_at_random_moments(world: World, number: int) -> None:
    seed = os.environ.get("PREHEAT_SEED") or secrets.token_hex(4)
    print(f"PREHEAT_SEED={seed}")
    rng = random.Random(f"{seed}/{number}")
    with world.namespace("kills") as kube:
        image = world.image("tiny")
        kube.apply(kit.deployment("tiny", image, label="tiny", replicas=0))
        kube.apply(kit.compiled_model("tiny", keepIf={"minSpeedup": "0"}))
        end = time.monotonic() + SECONDS_OF_KILLS
        kills = 0
        while time.monotonic() < end:
            # A controller needs about 3 s to start: some of these live to do much, some to do nothing.
            time.sleep(rng.uniform(0.5, 12))
            world.kill_controller()
            kills += 1
        model = kit.wait_ready_model(kube, "tiny", image=image)
        assert len(jobs_ever(kube)) == 1, f"one Job in spite of {kills} kills"
        assert [t["verdict"] for t in model["status"]["targets"]] == ["Kept"]
        kit.scale(kube, "tiny", 1)
        assert kit.measure(kube, "tiny", kit.wait_ready_pod(kube, "tiny"), calls=5).outcome == "hot"
