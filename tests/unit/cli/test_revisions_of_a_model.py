"""What `preheat history` tells and what `rebuild`, `rollback`, `pin` and `unpin` ask for. On a real API server:
tests/cluster/controller/test_asked.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from preheat_operator.cli import asked, exits
from preheat_operator.cli.errors import CommandError
from preheat_operator.cli.history import entry, rows
from unit.plan.pods import HOT, WRONG, pod
from unit.plan.simulation import Simulation, deployment, digest, spec

if TYPE_CHECKING:
    from unit.cli.conftest import Place

IMAGE = "registry/vision:1"


def lived() -> tuple[Simulation, list[str]]:
    """A model with three revisions of one image and one of another, and their names in the order they were made."""
    world = Simulation(body=spec(weights={"revision": "6"}))
    names = []
    for change in ("", "weights", "spec", "image"):
        world.wait(60)
        if change == "weights":
            world.body = spec(weights={"revision": "7"})
        if change == "spec":
            world.body = spec(weights={"revision": "7"}, keepIf={"minSpeedup": "0"})
        if change == "image":
            world.workload = deployment("registry/vision:2")
        world.make_ready(digest(str(len(names) + 1)), carried=1 if change == "weights" else 0)
        names.append(world.status["revisions"][0]["name"])
    return world, names


def test_history_tells_what_caused_each_and_who_is_given_it() -> None:
    world, names = lived()
    world.annotations["preheat.dev/pin"] = names[1]
    world.settle()
    head, *lines = rows(world.model)
    told = [dict(zip(head, line, strict=True)) for line in lines]
    assert [t["REVISION"] for t in told] == names[::-1]
    assert [t["CAUSE"] for t in told] == ["ImageChanged", "SpecChanged", "WeightsChanged", "Created"]
    assert [t["PODS"] for t in told] == ["Given", "None", "Pinned", "None"]
    assert [t["KEPT"] for t in told] == ["1/1", "1/1", "1/1 (1 carried over)", "1/1"]
    assert [t["WEIGHTS"] for t in told] == ["7", "7", "7", "6"]
    assert told[0]["MANIFEST"] == "sha256:" + "4" * 12
    first = entry(world.model, world.model.status.revisions[-1])
    assert (first["pods"], first["manifest"], first["created"][:16]) == ("None", digest("1"), "2026-01-01T00:01")


def test_history_tells_how_many_pods_run_with_each_and_why_one_was_taken_back() -> None:
    world, _ = lived()
    world.served = [
        *(pod(f"w{n}", served=WRONG, manifest=digest("4")) for n in range(2)),
        pod("h", served=HOT, manifest=digest("3")),
    ]
    world.settle()
    head, *lines = rows(world.model)
    told = [dict(zip(head, line, strict=True)) for line in lines]
    assert [t["SERVED"] for t in told] == ["2 of 2 bad at 2026-01-01T00:04:00Z", "1 now, 1 at most", "-", "-"]
    assert (told[0]["STATE"], told[0]["PODS"]) == ("TakenBack", "None")


def test_a_revision_under_way_has_no_figures_yet() -> None:
    world = Simulation()
    world.settle()
    head, line = rows(world.model)
    told = dict(zip(head, line, strict=True))
    assert (told["STATE"], told["TOOK"], told["KEPT"], told["MANIFEST"], told["PODS"]) == (
        "Compiling", "-", "-", "-", "None",
    )  # fmt: skip


def test_a_pin_names_a_ready_revision_or_is_refused() -> None:
    world, names = lived()
    annotations, words = asked.pin(world.model, names[0])
    assert annotations == {"preheat.dev/pin": names[0]}
    assert IMAGE in words
    for wrong in ("nobody", None, ""):
        with pytest.raises(CommandError, match="no ready revision") as refused:
            asked.pin(world.model, wrong)
        assert refused.value.code == exits.MISSING
        assert names[3] in str(refused.value)


def test_a_rollback_goes_to_the_one_before_what_pods_get_and_on_from_there() -> None:
    world, names = lived()
    world.workload = deployment(IMAGE)
    world.settle()
    for expected in (names[1], names[0]):
        annotations, _ = asked.rollback(world.model, None)
        assert annotations == {"preheat.dev/pin": expected}
        world.annotations.update({k: v for k, v in annotations.items() if v is not None})
        world.settle()
    with pytest.raises(CommandError, match="kubectl rollout undo"):
        asked.rollback(world.model, None)
    assert asked.rollback(world.model, names[2])[0] == {"preheat.dev/pin": names[2]}


def test_there_is_no_way_back_from_the_only_revision_of_an_image() -> None:
    world, _ = lived()
    for model in (world.model, Simulation().model):
        with pytest.raises(CommandError, match="no earlier ready revision"):
            asked.rollback(model, None)


def test_unpinning_takes_the_annotation_away_and_each_rebuild_has_a_token_of_its_own() -> None:
    model = Simulation().model
    assert asked.unpin(model, None)[0] == {"preheat.dev/pin": None}
    tokens = {asked.rebuild(model, None)[0]["preheat.dev/rebuild"] for _ in range(2)}
    assert len(tokens) == 2
    assert all(token is not None and len(token) <= 63 for token in tokens)


@pytest.mark.parametrize(
    "words",
    [["history", "vision"], ["rebuild", "vision"], ["rollback", "vision"], ["pin", "vision", "r"], ["unpin", "vision"]],
)
def test_without_a_cluster(place: Place, words: list[str]) -> None:
    ended = place.preheat(*words, KUBECONFIG=str(place.folder / "none"))
    assert ended.code == exits.USAGE
    assert "KUBECONFIG" in ended.err


@pytest.mark.parametrize("words", [["pin", "vision"], ["history"], ["unpin", "vision", "r"]])
def test_a_wrong_command_line_is_refused(place: Place, words: list[str]) -> None:
    assert place.preheat(*words).code == exits.USAGE
