"""The main job: both examples on the real cluster, the label the only difference between a cold pod and a hot one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import kit
import pytest

from e2e.world import CALM

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = pytest.mark.cluster

# Any two of eager, cold and hot may differ by rounding in another order; both models answer values around 1.
TOLERANCE = 1e-3
# torch itself logs each import when asked to: an unmodified script, and its logs tell what was imported.
SHOW_IMPORTS = {"PYTHONPROFILEIMPORTTIME": "1"}


def imports(kube: kit.Kube, pod: str) -> set[str]:
    """Every module that the pod's process imported."""
    lines = kube.run("logs", pod, "-c", "server").splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def compiled_something(kube: kit.Kube, pod: str) -> str:
    """The files that a compiler of torch left behind in the pod; empty when none ran.

    Importing torchvision already makes the folders, so only files count.
    """
    return kube.run("exec", pod, "-c", "server", "--", "find", "/tmp", "-type", "f", "-path", "*torchinductor*").strip()


def deployed(kube: kit.Kube, name: str) -> dict[str, Any]:
    """The pod template of a Deployment, as the API server has it."""
    found = kube.get("deployment", name)
    assert found is not None
    template: dict[str, Any] = found["spec"]["template"]
    return template


def test_an_image_classifier_starts_hot(world: World, kube: kit.Kube) -> None:
    image = world.image("vision")
    eager = kit.start_one(kube, "vision", image, label="", env={"COMPILE": "0", **SHOW_IMPORTS}, name="eager", calls=5)
    assert eager.outcome == ""
    assert compiled_something(kube, eager.pod) == ""
    # torchvision itself imports parts of torch's compiler; what serving adds to that is what counts.
    anyway = imports(kube, eager.pod)
    assert "torch.nn" in anyway, "the log shows imports"
    kit.scale(kube, "eager", 0)
    kube.apply(kit.deployment("vision", image, env=SHOW_IMPORTS, replicas=0))
    # Machines differ in what compiling gains; here the way to a hot pod is what is tested.
    kube.apply(kit.compiled_model("vision", keepIf={"minSpeedup": "0"}))
    model = kit.wait_ready_model(kube, "vision", image=image)
    target = model["status"]["targets"][0]
    assert target["verdict"] == "Kept"
    assert float(target["speedup"]) > 0
    assert int(target["size"]) > 100_000

    hot = kit.start_one(kube, "vision", image, label="vision", env=SHOW_IMPORTS, calls=5)
    assert hot.injected == "yes"
    assert hot.outcome == "hot", hot.reason
    assert hot.answer["classes"] == eager.answer["classes"]
    assert hot.answer["logits"] == pytest.approx(eager.answer["logits"], abs=TOLERANCE)

    added = imports(kube, hot.pod) - anyway
    assert "preheat_runtime.serve" in added
    assert not {m for m in added if m.startswith(("torch._inductor", "torch._dynamo", "triton"))}
    assert compiled_something(kube, hot.pod) == ""

    with_label = deployed(kube, "vision")
    kit.scale(kube, "vision", 0)
    kube.apply(kit.deployment("vision", image, env=SHOW_IMPORTS, replicas=0))
    assert with_label["metadata"]["labels"].pop("preheat.dev/model") == "vision"
    assert deployed(kube, "vision") == with_label, "the label is the only difference"


@pytest.mark.soak
def test_an_image_classifier_without_the_label_compiles_and_answers_the_same(world: World, kube: kit.Kube) -> None:
    """In the gate the pitch tracker shows this: torch takes a minute for this model, half of that one."""
    image = world.image("vision")
    eager = kit.start_one(kube, "vision", image, label="", env={"COMPILE": "0"}, name="eager", calls=5)
    kit.scale(kube, "eager", 0)
    cold = kit.start_one(kube, "vision", image, label="", calls=5)
    assert cold.outcome == ""
    assert cold.answer["logits"] == pytest.approx(eager.answer["logits"], abs=TOLERANCE)
    assert compiled_something(kube, cold.pod) != ""


def cents(hertz: float, reference: float) -> float:
    return 1200 * math.log2(hertz / reference)


def test_a_pitch_tracker_hears_440_hertz_hot_and_rejected(world: World, pitches: dict[str, kit.Kube]) -> None:
    image, env = world.image("pitch"), {**CALM, **SHOW_IMPORTS}
    kube = pitches["kept"]
    kept = kit.wait_ready_model(kube, "pitch", image=image)["status"]["targets"][0]
    assert kept["verdict"] == "Kept"
    hot = kit.start_one(kube, "pitch", image, label="pitch", env=env, name="shown", calls=5)
    assert hot.outcome == "hot", hot.reason
    assert abs(cents(hot.answer["hertz"], 440)) < 20
    assert not {m for m in imports(kube, hot.pod) if m.startswith(("torch._inductor", "torch._dynamo", "triton"))}
    assert compiled_something(kube, hot.pod) == ""

    with_label = deployed(kube, "shown")
    cold = kit.start_one(kube, "pitch", image, label="", env=env, name="shown", calls=5)
    assert with_label["metadata"]["labels"].pop("preheat.dev/model") == "pitch"
    assert deployed(kube, "shown") == with_label, "the label is the only difference"
    assert cold.outcome == ""
    assert compiled_something(kube, cold.pod) != ""
    assert abs(cents(cold.answer["hertz"], 440)) < 20

    kit.scale(kube, "shown", 0)
    kube = pitches["rejected"]
    rejected = kit.wait_ready_model(kube, "pitch", image=image)["status"]["targets"][0]
    assert (rejected["verdict"], rejected["reason"]) == ("Rejected", "SpeedupBelowMinimum")
    eager = kit.start_one(kube, "pitch", image, label="pitch", env=env, name="shown", calls=5)
    assert eager.outcome == "eager"
    assert "1000" in eager.reason, "the reason names what was asked for"
    assert abs(cents(eager.answer["hertz"], 440)) < 20
    assert eager.answer["hertz"] == pytest.approx(hot.answer["hertz"], rel=1e-4)
    assert not {m for m in imports(kube, eager.pod) if m.startswith("torch._inductor")}
    kit.scale(kube, "shown", 0)
