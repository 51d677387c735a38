"""What a person reads in the CompiledModel when compiling fails, or cannot begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kit
import pytest

from e2e.world import wait_degraded

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = pytest.mark.cluster


def test_a_factory_that_fails_names_the_line_and_a_retry_is_not_needed(world: World, kube: kit.Kube) -> None:
    kube.apply(kit.deployment("tiny", world.image("tiny"), label="tiny", env={"TINY_SEED": "none"}, replicas=0))
    kube.apply(kit.compiled_model("tiny"))
    found = wait_degraded(kube, "AllTargetsFailed", timeout=300)
    assert "FactoryFailed" in found["message"]
    assert "model.py" in found["message"], "the user's own file"
    model = kube.get("compiledmodel", "tiny")
    assert model is not None
    (target,) = model["status"]["targets"]
    assert (target["verdict"], target["reason"]) == ("Failed", "FactoryFailed")
    assert "model.py" in target["message"]


def test_a_quota_that_refuses_the_compile_pod_is_quoted(world: World, kube: kit.Kube) -> None:
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}},
    }  # fmt: skip
    kube.apply(quota, kit.deployment("tiny", world.image("tiny"), label="tiny", replicas=0))
    kube.apply(kit.compiled_model("tiny"))
    assert "exceeded quota: none" in wait_degraded(kube, "JobRefused", timeout=300)["message"]
