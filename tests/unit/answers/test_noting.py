"""What pods say reaches the pods themselves: merged, seldom, never another pod, and wrong answers before all else."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from preheat_operator.answers import noting
from preheat_operator.answers.identity import Pod
from preheat_operator.answers.message import Message, parse
from preheat_operator.answers.noting import AGAIN_AFTER_SECONDS, FIRST_AFTER_SECONDS, Notes, NotNoted
from preheat_operator.api.names import ANNOTATION_SERVED
from preheat_operator.cluster.client import ApiError

POD = Pod(namespace="prod", name="vision-1", uid="u1")
PATH = "/api/v1/namespaces/prod/pods/vision-1"


def said(**changes: Any) -> Message:
    record = {"event": "preheat", "when": "first-answer", "outcome": "hot", "reasonClass": "Package", "firstAnswerSeconds": 0.1,
              "module": "main", "bucket": "one", "hardware": "cpu"}  # fmt: skip
    return parse(json.dumps({"v": 1, "model": "vision", "records": [record]} | changes).encode())


WRONG = said(records=[{"event": "preheat-mismatch", "module": "main", "bucket": "one", "hardware": "cpu"}])


@dataclass
class Cluster:
    """Pods with versions: a patch of another version is a conflict, as in the API server."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    patches: list[dict[str, Any]] = field(default_factory=list)
    fails: list[Exception] = field(default_factory=list)
    meanwhile: list[str] = field(default_factory=list)

    def add(self, uid: str = "u1", model: str = "vision") -> None:
        labels = {"preheat.dev/model": model} if model else {}
        self.pods[PATH] = {"metadata": {"uid": uid, "resourceVersion": "1", "labels": labels}}

    async def get(self, path: str) -> dict[str, Any] | None:
        if self.fails:
            raise self.fails.pop(0)
        return copy.deepcopy(self.pods.get(path))

    async def merge_patch(self, path: str, body: dict[str, Any]) -> None:
        metadata = self.pods[path]["metadata"]
        if self.meanwhile:
            self.write(path, self.meanwhile.pop(0))
        given = body["metadata"]
        assert set(given) == {"uid", "resourceVersion", "annotations"}, "nothing else of a pod is touched"
        if (given["uid"], given["resourceVersion"]) != (metadata["uid"], metadata["resourceVersion"]):
            raise ApiError(status=409, reason="Conflict", message="changed")
        self.patches.append(body)
        self.write(path, given["annotations"][ANNOTATION_SERVED])

    def write(self, path: str, text: str) -> None:
        metadata = self.pods[path]["metadata"]
        metadata.setdefault("annotations", {})[ANNOTATION_SERVED] = text
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    @property
    def noted(self) -> dict[str, Any]:
        text = (self.pods[PATH]["metadata"].get("annotations") or {}).get(ANNOTATION_SERVED)
        return json.loads(text) if text else {}


class World:
    def __init__(self, **more: Any) -> None:
        self.now = 1000.0
        self.cluster = Cluster()
        self.cluster.add()
        self.notes = self.server(**more)

    def server(self, **more: Any) -> Notes:
        return Notes(api=self.cluster, clock=lambda: self.now, wall=lambda: 3600.0 * 500 + self.now, **more)  # type: ignore[arg-type]

    async def later(self, seconds: float) -> None:
        self.now += seconds
        await self.notes.write_due()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noting, "_RETRY_SECONDS", 0.01)


async def test_what_comes_together_is_written_once_and_then_seldom() -> None:
    world = World()
    for _ in range(3):
        await world.notes.add(POD, said())
    await world.later(FIRST_AFTER_SECONDS - 0.1)
    assert world.cluster.patches == []
    await world.later(0.2)
    assert world.cluster.noted == {"v": 1, "answers": {"hot/Package": 2}, "first": {"main/one/cpu": "0.1"}}
    await world.notes.add(POD, said())
    await world.later(AGAIN_AFTER_SECONDS - 1)
    assert len(world.cluster.patches) == 1
    await world.later(1)
    assert world.cluster.noted["answers"] == {"hot/Package": 4}, "the one that was too little is counted as well"


async def test_nothing_new_writes_nothing() -> None:
    world = World()
    counts = [{"shape": "float32[2,64]", "count": 64, "module": "main"}]
    await world.notes.add(POD, said(records=[], uncovered=counts, answered=1000))
    await world.later(FIRST_AFTER_SECONDS)
    assert world.cluster.noted["uncovered"] == {"main|float32[2,64]": 64}
    assert world.cluster.noted["answered"] == 512
    for _ in range(20):
        await world.notes.add(POD, said(records=[], uncovered=[counts[0] | {"count": 1}]))
        await world.later(AGAIN_AFTER_SECONDS)
    assert len(world.cluster.patches) == 1
    await world.notes.add(POD, said(records=[]))
    assert world.notes._waiting[POD.uid].due is None, "a report that says nothing is no work"


async def test_a_wrong_answer_is_on_the_pod_before_its_sender_is_told() -> None:
    world = World()
    await world.notes.add(POD, WRONG)
    assert world.cluster.noted == {"v": 1, "wrong": ["main/one/cpu"]}


@pytest.mark.parametrize(
    "error",
    [
        ApiError(status=500, reason="x", message="y"),
        ApiError(status=403, reason="x", message="y"),
        OSError(),
        TimeoutError(),
    ],
)
async def test_and_when_it_cannot_be_the_sender_comes_again(error: Exception) -> None:
    world = World()
    world.cluster.fails = [error]
    with pytest.raises(NotNoted):
        await world.notes.add(POD, WRONG)
    assert len(world.notes) == 0, "it is not counted twice when it comes again"
    await world.notes.add(POD, WRONG)
    assert world.cluster.noted["wrong"] == ["main/one/cpu"]


async def test_anything_else_waits_for_the_api_server() -> None:
    world = World()
    await world.notes.add(POD, said())
    world.cluster.fails = [OSError(), ApiError(status=503, reason="x", message="y")]
    for _ in range(3):
        await world.later(AGAIN_AFTER_SECONDS)
    assert world.cluster.noted["answers"] == {"hot/Package": 1}


async def test_two_servers_write_to_one_pod() -> None:
    world = World()
    other = world.server()
    await world.notes.add(POD, said())
    await other.add(POD, said())
    world.now += FIRST_AFTER_SECONDS
    await asyncio.gather(world.notes.write_due(), other.write_due())
    assert world.cluster.noted["answers"] == {"hot/Package": 2}
    await asyncio.gather(world.notes.add(POD, WRONG), other.add(POD, WRONG))
    assert world.cluster.noted["wrong"] == ["main/one/cpu"]
    assert world.cluster.noted["answers"] == {"hot/Package": 2}


async def test_who_was_quicker_is_not_overwritten() -> None:
    world = World()
    world.cluster.meanwhile = ['{"v":1,"wrong":["a/b/c"]}', "garbage", '{"v":1,"wrong":["d/e/f"]}']
    await world.notes.add(POD, WRONG)
    assert world.cluster.noted["wrong"] == ["d/e/f", "main/one/cpu"]


@pytest.mark.parametrize(("uid", "model"), [("u2", "vision"), ("u1", "other"), ("u1", "")])
async def test_another_pod_of_the_name_or_another_model_is_left_alone(uid: str, model: str) -> None:
    world = World()
    world.cluster.add(uid, model)
    await world.notes.add(POD, WRONG)
    await world.notes.add(POD, said())
    await world.later(FIRST_AFTER_SECONDS)
    assert world.cluster.patches == []
    assert len(world.notes) == 0, "and is forgotten"


async def test_a_pod_that_is_gone_is_forgotten() -> None:
    world = World()
    world.cluster.pods.clear()
    await world.notes.add(POD, WRONG)
    await world.later(FIRST_AFTER_SECONDS)
    assert len(world.notes) == 0


async def test_memory_and_writes_are_bounded() -> None:
    world = World(most=100)
    for number in range(300):
        await world.notes.add(Pod(namespace="prod", name=f"p{number}", uid=f"p{number}"), said())
    assert len(world.notes) == 100
    asked: list[str] = []

    async def get(path: str) -> None:
        asked.append(path)

    world.cluster.get = get  # type: ignore[method-assign, assignment]
    for _ in range(10):
        await world.notes.write_due() if asked else await world.later(FIRST_AFTER_SECONDS)
    assert len(asked) == 40, "the burst, and no time passed for more"


async def test_what_nobody_may_write_there_is_replaced() -> None:
    world = World()
    world.cluster.write(PATH, "x" * 10_000)
    await world.notes.add(POD, WRONG)
    assert world.cluster.noted == {"v": 1, "wrong": ["main/one/cpu"]}
