"""What makes a new revision, one cause a test; and what a person may ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from preheat_operator.api.enums import Cause
from preheat_operator.plan import revision as revisions
from preheat_operator.plan.index import index_text
from preheat_operator.plan.revision import history
from preheat_operator.plan.running import digest_of_image, pinned
from unit.plan.simulation import START, Simulation, deployment, digest, spec

IMAGE = "registry/vision:1"
ONE, TWO = (f"registry/vision@{digest(c)}" for c in "12")
KEPT = "main|one|Kept|Faster|1.7500|0.1200|1900000"


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
    return dict(line.split(" ")[0].removeprefix("vision|").split("=", 1) for line in lines if "|" in line)  # type: ignore[misc]


def compile_image(job: dict[str, Any]) -> tuple[str, str]:
    container = next(c for c in job["spec"]["template"]["spec"]["initContainers"] if c["name"] == "compile")
    return container["image"], container["imagePullPolicy"]


def request(job: dict[str, Any]) -> dict[str, Any]:
    env = job["spec"]["template"]["spec"]["containers"][0]["env"]
    text = next(e["value"] for e in env if e["name"] == "PREHEAT_REQUEST")
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda w: setattr(w, "body", spec(keepIf={"minSpeedup": "1.2"})), "SpecChanged"),
        (lambda w: setattr(w, "workload", deployment("registry/vision:2")), "ImageChanged"),
        (lambda w: setattr(w, "body", spec(weights={"revision": "7"})), "WeightsChanged"),
        (lambda w: w.workload["spec"]["template"]["spec"]["containers"][0].update(args=["x"]), "TemplateChanged"),
        (lambda w: w.annotations.update({"preheat.dev/rebuild": "now"}), "Rebuild"),
        (lambda w: (compiled_in(w, ONE), w.settle(), w.serve("p", IMAGE, TWO)), "ImageMoved"),
    ],
)
def test_each_cause_is_told_in_status_and_by_one_event(change: Any, cause: str) -> None:
    world = ready()
    assert world.causes == ["Created"]
    change(world)
    plan = world.pass_once()
    assert world.causes == [cause, "Created"]
    first = plan.announcements[0]
    assert (first.warning, first.reason) == (False, cause)
    old, new = (world.status["revisions"][i]["name"] for i in (1, 0))
    assert new in first.message
    assert old in first.message
    assert all(a.reason != cause for a in world.settle().announcements)
    assert served(world) == {IMAGE: digest("a")}, "the old one is given while the new one is compiled"


def test_a_release_that_asks_in_another_format_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ready()
    monkeypatch.setattr(revisions, "FORMAT_VERSION", 2)
    world.settle()
    assert world.causes == ["FormatChanged", "Created"]


def test_every_cause_has_words() -> None:
    from preheat_operator.plan.need import news

    world = ready()
    (current,) = world.model.status.revisions
    for cause in Cause:
        (event,) = news(revision=current.model_copy(update={"cause": cause.value}), previous=())
        assert event.message.startswith(f"revision {current.name} is needed: ")


# A tag that was moved.


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


# Weights.


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


# Debounce.


@pytest.mark.parametrize("b_ran", [0, 1, 3])
def test_there_and_back_leaves_no_job_of_what_was_left(b_ran: int) -> None:
    world = ready()
    world.workload = deployment("registry/vision:2")
    for _ in range(b_ran):
        world.pass_once()
    world.workload = deployment(IMAGE)
    world.settle()
    assert world.open_jobs() == []
    assert [r["image"] for r in world.status["revisions"]] == [IMAGE]
    assert world.condition("Ready") == ("True", "RevisionReady")


def test_a_superseded_job_is_stopped_while_the_new_one_begins() -> None:
    world = Simulation()
    world.settle()
    world.workload = deployment("registry/vision:2")
    plan = world.pass_once()
    assert len(plan.create) == len(plan.stop) == 1
    assert [j["metadata"]["labels"]["preheat.dev/revision"] for j in world.open_jobs()] == [
        world.status["revisions"][0]["name"]
    ]


# What a person may ask for.


def test_a_rebuild_is_made_once_for_each_token_and_going_back_stays_hot() -> None:
    world = ready()
    world.annotations["preheat.dev/rebuild"] = "monday"
    world.make_ready(digest("b"))
    assert world.causes == ["Rebuild", "Created"]
    assert (world.status["rebuild"], world.status["revisions"][0]["rebuild"]) == ("monday", "monday")
    assert served(world) == {IMAGE: digest("b")}
    world.settle()
    world.annotations.clear()
    world.settle()
    assert len(world.made) == 2
    world.annotations["preheat.dev/rebuild"] = "monday"
    world.settle()
    assert len(world.made) == 2, "a token that was heard asks for nothing"
    world.annotations["preheat.dev/rebuild"] = "tuesday"
    world.settle()
    assert len(world.made) == 3
    assert world.causes[0] == "Rebuild"


def test_a_rebuild_starts_a_failed_revision_again() -> None:
    world = Simulation()
    world.settle()
    world.end(world.open_jobs()[0], ok=False, ends={"compile": (66, "Error", "")}, reason="PodFailurePolicy")
    world.settle()
    assert world.status["revisions"][0]["state"] == "Failed"
    world.annotations["preheat.dev/rebuild"] = "1"
    world.make_ready(digest("b"))
    assert world.causes == ["Rebuild"]


def test_after_a_rebuild_other_changes_are_what_they_are() -> None:
    world = ready()
    world.annotations["preheat.dev/rebuild"] = "1"
    world.make_ready(digest("b"))
    world.workload = deployment("registry/vision:2")
    world.make_ready(digest("c"))
    assert world.causes[0] == "ImageChanged"
    world.workload = deployment(IMAGE)
    world.settle()
    assert (world.causes[0], len(world.made)) == ("Rebuild", 3)


@pytest.mark.parametrize("token", ["", " \n", "x" * 70_000, "\x00\u202e", "a\nb"])
def test_any_token_is_bounded_and_comes_to_rest(token: str) -> None:
    world = ready()
    world.annotations["preheat.dev/rebuild"] = token
    world.settle()
    assert len(world.status.get("rebuild") or "") <= 63
    assert len(world.made) == (2 if (token.strip() and token.isprintable()) or "\n" in token.strip() else 1)


def two_ready() -> tuple[Simulation, str, str]:
    world = ready()
    world.body = spec(keepIf={"minSpeedup": "1.2"})
    world.make_ready(digest("b"))
    new, old = (r["name"] for r in world.status["revisions"])
    return world, old, new


def test_a_pin_is_what_pods_of_that_image_get_and_is_seen() -> None:
    world, old, new = two_ready()
    assert served(world) == {IMAGE: digest("b")}
    world.annotations["preheat.dev/pin"] = old
    world.settle()
    assert served(world) == {IMAGE: digest("a")}
    assert world.status["pinned"] == old
    assert world.condition("Ready") == ("True", "Pinned")
    assert world.condition("Degraded") == ("False", "AsExpected")
    (message,) = (c["message"] for c in world.status["conditions"] if c["type"] == "Ready")
    assert old in message
    assert new in message
    world.annotations.clear()
    world.settle()
    assert served(world) == {IMAGE: digest("b")}
    assert "pinned" not in world.status
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert len(world.made) == 2


def test_a_pin_holds_while_the_next_one_is_compiled_and_for_its_image_alone() -> None:
    world, old, _ = two_ready()
    world.annotations["preheat.dev/pin"] = old
    world.body = spec(keepIf={"minSpeedup": "1.3"})
    world.settle()
    assert world.condition("Ready") == ("True", "Pinned")
    assert world.condition("Progressing") == ("True", "Compiling")
    world.make_ready(digest("c"))
    assert served(world) == {IMAGE: digest("a")}
    world.workload = deployment("registry/vision:2")
    world.make_ready(digest("d"))
    assert served(world) == {IMAGE: digest("a"), "registry/vision:2": digest("d")}
    assert world.condition("Ready") == ("True", "RevisionReady")


def test_a_pinned_revision_outlives_the_history_limit() -> None:
    world, old, _ = two_ready()
    world.annotations["preheat.dev/pin"] = old
    for number in range(2, 6):
        world.body = spec(keepIf={"minSpeedup": f"1.{number}1"}, revisionHistoryLimit=2)
        world.make_ready(digest(str(number)))
    assert [r["name"] for r in world.status["revisions"]].index(old) == 2
    assert served(world) == {IMAGE: digest("a")}
    world.annotations.clear()
    world.settle()
    assert len(world.status["revisions"]) == 2


@pytest.mark.parametrize("name", ["nobody", "vision-00000000", "x" * 5000, "\x00"])
def test_a_pin_to_what_is_not_there_needs_a_person_and_changes_nothing(name: str) -> None:
    world, _, new = two_ready()
    world.annotations["preheat.dev/pin"] = name
    world.settle()
    assert served(world) == {IMAGE: digest("b")}
    wanted = ("True", "PinNotFound") if name.isprintable() else ("False", "AsExpected")
    assert world.condition("Degraded") == wanted
    assert world.condition("Ready") == ("True", "RevisionReady")
    if name.isprintable():
        (message,) = (c["message"] for c in world.status["conditions"] if c["type"] == "Degraded")
        assert new in message


def test_when_a_revision_came_to_its_end_is_recorded_once() -> None:
    world = Simulation()
    world.settle()
    assert "finished" not in world.status["revisions"][0]
    world.wait(60)
    world.make_ready(digest("a"))
    world.wait(60)
    world.settle()
    revision = world.status["revisions"][0]
    assert revision["created"].startswith(START.isoformat()[:16])
    assert revision["finished"][:16] == "2026-01-01T00:01"


def test_history_keeps_what_was_asked_for() -> None:
    world, old, _ = two_ready()
    current, previous = world.model.status.revisions[0], world.model.status.revisions
    assert [r.name for r in history(current=current, previous=previous, limit=1)] == [current.name]
    assert [r.name for r in history(current=current, previous=previous, limit=1, keep=old)] == [current.name, old]
