"""How a gate is taken off, and what the server does with pods whose time is over; the API server is played here."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from preheat_operator.cluster.client import ApiError
from preheat_operator.cluster.gates import UNSCHEDULED, let_go
from preheat_operator.cluster.overdue import Overdue
from preheat_operator.plan.gates import Opening
from preheat_operator.plan.objects import read_pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GATE = "preheat.dev/artifact"


def raw(name: str = "a", *, gates: tuple[str, ...] = (GATE,), age: float = 0, wait: str = "90") -> dict[str, Any]:
    created = datetime.now(UTC) - timedelta(seconds=age)
    return {
        "metadata": {
            "name": name, "namespace": "prod", "uid": f"uid-{name}", "labels": {"preheat.dev/model": "vision"},
            "creationTimestamp": created.isoformat(),
            "annotations": {"preheat.dev/manifest": "pending", "preheat.dev/wait-seconds": wait, "team/x": "y"},
        },
        "spec": {"schedulingGates": [{"name": gate} for gate in gates], "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending"},
    }  # fmt: skip


@dataclass
class Pods:
    """Plays the API server: keeps pods, and applies JSON patches as it does, to the last operation or not at all."""

    pods: dict[str, dict[str, Any]]
    fails: list[int] = field(default_factory=list)
    patches: int = 0
    selectors: list[tuple[str, str, str]] = field(default_factory=list)

    async def pages(self, path: str, *, labels: str, fields: str) -> AsyncIterator[list[dict[str, Any]]]:
        self.selectors.append((path, labels, fields))
        for pod in list(self.pods.values()):
            yield [copy.deepcopy(pod)]

    async def get(self, path: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.pods.get(path.rsplit("/", 1)[1]))

    async def json_patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        self.patches += 1
        if self.fails:
            status = self.fails.pop(0)
            raise ApiError(status=status, reason="x", message="x")
        pod = copy.deepcopy(self.pods[path.rsplit("/", 1)[1]])
        for operation in operations:
            *parents, last = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
            target: Any = pod
            for part in parents:
                target = target[int(part)] if isinstance(target, list) else target[part]
            key: Any = int(last) if isinstance(target, list) else last
            if operation["op"] == "test":
                if target[key] != operation["value"]:
                    raise ApiError(status=422, reason="Invalid", message="test failed")
            elif operation["op"] == "remove":
                del target[key]
            else:
                target[key] = operation["value"]
        self.pods[path.rsplit("/", 1)[1]] = pod


def opening(pod: dict[str, Any], manifest: str = "sha256:x") -> Opening:
    return Opening(pod=read_pod(pod), manifest=manifest, injected="yes")


async def test_annotations_and_gate_go_in_one_patch_and_nothing_else_changes() -> None:
    before = raw(gates=("a.example/b", GATE, "c.example/d"))
    api = Pods({"a": before})
    assert await let_go(api, opening(before))  # type: ignore[arg-type]
    assert api.patches == 1
    after = api.pods["a"]
    assert [g["name"] for g in after["spec"]["schedulingGates"]] == ["a.example/b", "c.example/d"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"] | {
        "preheat.dev/manifest": "sha256:x",
        "preheat.dev/injected": "yes",
    }


async def test_a_pod_without_annotations_gets_them() -> None:
    before = raw()
    del before["metadata"]["annotations"]
    api = Pods({"a": before})
    assert await let_go(api, opening(before))  # type: ignore[arg-type]
    assert set(api.pods["a"]["metadata"]["annotations"]) == {"preheat.dev/manifest", "preheat.dev/injected"}


async def test_somebody_else_was_first_or_the_pod_is_another_or_gone() -> None:
    before = raw()
    for now in ({}, {"a": raw(gates=())}, {"a": raw() | {"metadata": raw()["metadata"] | {"uid": "other"}}}):
        api = Pods(dict(now))
        assert not await let_go(api, opening(before))  # type: ignore[arg-type]
        assert api.patches == 0


@pytest.mark.parametrize("status", [409, 422])
async def test_a_conflict_is_looked_at_again_and_not_for_ever(status: int) -> None:
    before = raw()
    api = Pods({"a": before}, fails=[status])
    assert await let_go(api, opening(before))  # type: ignore[arg-type]
    assert api.patches == 2
    api = Pods({"a": before}, fails=[status] * 99)
    with pytest.raises(ApiError, match="keeps changing"):
        await let_go(api, opening(before))  # type: ignore[arg-type]
    assert api.patches < 10


async def test_gone_meanwhile_is_nothing_and_a_refusal_is_told() -> None:
    before = raw()
    assert not await let_go(Pods({"a": before}, fails=[404]), opening(before))  # type: ignore[arg-type]
    with pytest.raises(ApiError):
        await let_go(Pods({"a": before}, fails=[403]), opening(before))  # type: ignore[arg-type]


async def test_a_pod_that_fails_without_artifacts_is_told_without_a_gate_to_take_off() -> None:
    before = raw(gates=())
    api = Pods({"a": before})
    assert await let_go(api, opening(before))  # type: ignore[arg-type]
    assert api.pods["a"]["metadata"]["annotations"]["preheat.dev/manifest"] == "sha256:x"


def gated(api: Pods) -> set[str]:
    return {name for name, pod in api.pods.items() if {"name": GATE} in pod["spec"]["schedulingGates"]}


async def test_only_what_is_overdue_is_released_and_it_starts_cold() -> None:
    api = Pods({
        "new": raw("new", age=0), "late": raw("late", age=99), "over": raw("over", age=101),
        "other": raw("other", age=9999, gates=("x.example/y",)), "unreadable": raw("unreadable", age=500, wait="?"),
        "long": raw("long", age=500, wait="86400"),
    })  # fmt: skip
    going = raw("going", age=9999)
    going["metadata"]["deletionTimestamp"] = going["metadata"]["creationTimestamp"]
    api.pods["going"] = going
    assert await Overdue(api=api).once() == 2  # type: ignore[arg-type]
    assert gated(api) == {"new", "late", "going", "long"}
    assert api.pods["over"]["metadata"]["annotations"]["preheat.dev/manifest"] == "none"
    assert "within the 90 s" in api.pods["over"]["metadata"]["annotations"]["preheat.dev/injected"]
    assert api.selectors == [("/api/v1/pods", "preheat.dev/model", UNSCHEDULED)]
    assert await Overdue(api=api).once() == 0  # type: ignore[arg-type]


async def test_one_pod_that_cannot_be_released_does_not_keep_the_others() -> None:
    api = Pods({name: raw(name, age=999) for name in "abc"}, fails=[403])
    assert await Overdue(api=api).once() == 2  # type: ignore[arg-type]
    assert gated(api) == {"a"}


async def test_it_goes_on_after_a_failure() -> None:
    class Broken(Pods):
        broken = True

        async def pages(self, path: str, *, labels: str, fields: str) -> AsyncIterator[list[dict[str, Any]]]:
            if self.broken:
                self.broken = False
                raise ApiError(status=500, reason="x", message="x")
            async for page in super().pages(path, labels=labels, fields=fields):
                yield page

        async def json_patch(self, path: str, operations: list[dict[str, Any]]) -> None:
            await super().json_patch(path, operations)
            released.set()

    released = asyncio.Event()
    api = Broken({"a": raw(age=999)})
    task = asyncio.create_task(Overdue(api=api, interval=0.001).run())  # type: ignore[arg-type]
    await asyncio.wait_for(released.wait(), timeout=30)
    assert not gated(api)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
