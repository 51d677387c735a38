"""Watches an API server, and keeps what is there at hand: many namespaces are looked at without a request each.

A watch is gone on with from where it ended, so nothing is left out; one that the server says is too old is an error.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from cluster.controller.rest import Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from apiserver.server import ApiServer
    from cluster.controller.history import History

Raw = dict[str, Any]
KINDS: Final = {
    "jobs": "/apis/batch/v1/jobs",
    "pods": "/api/v1/pods",
    "deployments": "/apis/apps/v1/deployments",
    "compiledmodels": "/apis/preheat.dev/v1alpha1/compiledmodels",
    "compiledmodelindices": "/apis/preheat.dev/v1alpha1/compiledmodelindices",
}
# A watch is asked for as long as this, so that its thread sees before long that it is to end.
_SECONDS: Final = 4


class Mirror:
    """The objects of namespaces whose names begin with `prefix`; each change is shown to a History."""

    def __init__(self, server: ApiServer, history: History, *, prefix: str) -> None:
        self._server, self._history, self._prefix = server, history, prefix
        self._objects: dict[str, dict[str, dict[str, Raw]]] = defaultdict(lambda: {kind: {} for kind in KINDS})
        self._changed = threading.Condition()
        self._over = threading.Event()
        self.changes = 0
        self.last_change = time.monotonic()
        self.trouble: list[str] = []
        self.latest: deque[str] = deque(maxlen=30)

    @contextlib.contextmanager
    def watching(self) -> Iterator[Mirror]:
        """Watch until the block ends."""
        threads = [threading.Thread(target=self._follow, args=item, daemon=True) for item in KINDS.items()]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join(timeout=30)

    def all(self, namespace: str, kind: str) -> list[Raw]:
        """Objects of a kind."""
        with self._changed:
            return list(self._objects[namespace][kind].values())

    def everywhere(self, kind: str) -> list[Raw]:
        """Objects of a kind, of all namespaces."""
        with self._changed:
            return [raw for kinds in self._objects.values() for raw in kinds[kind].values()]

    def seen(self, namespace: str) -> Seen:
        """All of a namespace, as it is now."""
        with self._changed:
            there = {kind: list(objects.values()) for kind, objects in self._objects[namespace].items()}
        return Seen(
            model=next(iter(there["compiledmodels"]), None), workload=next(iter(there["deployments"]), None),
            jobs=there["jobs"], pods=there["pods"], indices=there["compiledmodelindices"],
        )  # fmt: skip

    def versions(self) -> dict[str, str]:
        """resourceVersion of every object, by uid."""
        with self._changed:
            return {raw["metadata"]["uid"]: raw["metadata"]["resourceVersion"] for kinds in self._objects.values()
                    for objects in kinds.values() for raw in objects.values()}  # fmt: skip

    def wait(self, there: Callable[[], bool], *, seconds: float) -> bool:
        """Wait for something that changes with what is seen; whether it came."""
        deadline = time.monotonic() + seconds
        while not there():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with self._changed:
                self._changed.wait(min(left, 1.0))
        return True

    def _follow(self, kind: str, path: str) -> None:
        try:
            version = self._list(kind, path)
            while not self._over.is_set():
                version = self._watch(kind, path, version)
        except Exception as error:
            self.trouble.append(f"watching {kind}: {type(error).__name__}: {error}")

    def _list(self, kind: str, path: str) -> str:
        answer = self._server.request("GET", path)
        assert answer.ok, answer.message
        for raw in answer.body["items"]:
            self._take(kind, "ADDED", raw)
        return str(answer.body["metadata"]["resourceVersion"])

    def _watch(self, kind: str, path: str, version: str) -> str:
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={_SECONDS}&resourceVersion={version}"
        with urllib.request.urlopen(
            f"{self._server.url}{path}?{query}", context=self._server.context, timeout=60
        ) as lines:
            for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise RuntimeError(event["object"].get("message", "?"))
                version = str(event["object"]["metadata"]["resourceVersion"])
                if event["type"] != "BOOKMARK":
                    self._take(kind, event["type"], event["object"])
        return version

    def _take(self, kind: str, change: str, raw: Raw) -> None:
        metadata = raw["metadata"]
        if not metadata["namespace"].startswith(self._prefix):
            return
        self._history.saw(kind, change, raw)
        with self._changed:
            objects = self._objects[metadata["namespace"]][kind]
            if change == "DELETED":
                objects.pop(metadata["name"], None)
            else:
                objects[metadata["name"]] = raw
            self.latest.append(f"{change} {kind} {metadata['namespace']}/{metadata['name']}")
            self.changes += 1
            self.last_change = time.monotonic()
            self._changed.notify_all()
