"""Which events about serving pods are worth a look at their model."""

from __future__ import annotations

from typing import Any

from preheat_operator.plan.attention import SeenPods


def pod(image_id: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "labels": {"preheat.dev/model": "vision"}},
        "spec": {"containers": [{"name": "server", "image": "i:1"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "server", "imageID": image_id}], **status},
    }


def test_an_image_is_news_once_for_each_model_and_namespace() -> None:
    seen = SeenPods()
    assert [seen.news("prod", pod("a")) for _ in range(3)] == ["vision", None, None]
    assert seen.news("prod", pod("b")) == "vision"
    assert seen.news("prod", pod("a")) is None
    assert seen.news("test", pod("a")) == "vision"
    seen.forget("prod", "vision")
    assert seen.news("prod", pod("a")) == "vision"


def test_what_does_not_run_or_is_nobodys_is_no_news() -> None:
    seen = SeenPods()
    assert seen.news("prod", pod("a", phase="Succeeded")) is None
    assert seen.news("prod", pod("a", phase="Pending")) == "vision", "its template may be"
    assert seen.news("prod", pod("a", phase="Pending")) is None
    assert seen.news("prod", {"metadata": {}, "status": {"phase": "Running"}}) is None
    assert (
        seen.news("prod", {**pod("a"), "metadata": {"labels": {"preheat.dev/model": "v"}, "deletionTimestamp": "x"}})
        is None
    )
    assert seen.news("prod", {}) is None


def test_memory_is_bounded() -> None:
    seen = SeenPods()
    for number in range(2000):
        assert seen.news("prod", pod(str(number))) == "vision"
    assert len(seen._seen["prod", "vision"]) <= 259
