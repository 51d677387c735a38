"""What must hold at every change that the API server tells of: fed with objects as a watch gives them, it collects what is wrong.

A watch gives the changes of one kind in the order in which they were made, so what is judged here was so for everybody at
that moment, and not only when somebody happened to look.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Raw = dict[str, Any]
FINAL = ("Ready", "TakenBack")


@dataclass(frozen=True, kw_only=True)
class Published:
    """What a Job put into the store: for which model's revision, of which image."""

    uid: str
    revision: str
    image: str


@dataclass
class History:
    """`wrong` is what must not have been; empty when all is well. Safe to be fed by several threads."""

    wrong: list[str] = field(default_factory=list)
    published: dict[str, Published] = field(default_factory=dict)
    jobs_made: int = 0
    became_ready: set[tuple[str, str]] = field(default_factory=set)
    taken_back: set[tuple[str, str]] = field(default_factory=set)
    _barred: set[tuple[str, str]] = field(default_factory=set)
    _jobs: dict[str, Raw] = field(default_factory=dict)
    _models: dict[str, list[tuple[int, Raw]]] = field(default_factory=lambda: defaultdict(list))
    _manifests: dict[tuple[str, str], str] = field(default_factory=dict)
    _births: list[tuple[int, str, tuple[str, str, str]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def publishes(self, digest: str, what: Published) -> None:
        """A Job is about to say that it published this; to be told before anybody can read it."""
        with self._lock:
            self.published[digest] = what

    def saw(self, kind: str, change: str, raw: Raw) -> None:
        """One change of a Job, pod, CompiledModel or index: ADDED, MODIFIED or DELETED."""
        look = {"jobs": self._job, "pods": self._pod, "compiledmodels": self._model,
                "compiledmodelindices": self._index}.get(kind)  # fmt: skip
        if look is not None:
            with self._lock:
                look(change, raw)

    def finish(self) -> None:
        """What can be judged only when all is known: whether a Job was made for what was ready at that moment."""
        with self._lock:
            for at, name, (uid, revision, hardware) in self._births:
                known = [status for version, status in self._models[uid] if version <= at]
                states = {r["name"]: r["state"] for r in _revisions(known[-1])} if known else {}
                if states.get(revision) in FINAL:
                    self.wrong.append(f"Job {name} was made for {hardware} of {revision}, which was {states[revision]}")

    def _job(self, change: str, raw: Raw) -> None:
        metadata = raw["metadata"]
        if change == "DELETED":
            self._jobs.pop(metadata["uid"], None)
            return
        if metadata["uid"] not in self._jobs:
            self.jobs_made += 1
            self._births.append((int(metadata["resourceVersion"]), metadata["name"], _target(raw)))
        self._jobs[metadata["uid"]] = raw
        same = [j for j in self._jobs.values() if _target(j) == _target(raw) and is_at_work(j)]
        if len(same) > 1:
            names = ", ".join(sorted(j["metadata"]["name"] for j in same))
            _, revision, hardware = _target(raw)
            self.wrong.append(f"two Jobs at once for {hardware} of {revision}: {names}")

    def _model(self, change: str, raw: Raw) -> None:
        if change == "DELETED":
            return
        uid = raw["metadata"]["uid"]
        before = self._models[uid][-1][1] if self._models[uid] else {}
        status = raw.get("status") or {}
        self._models[uid].append((int(raw["metadata"]["resourceVersion"]), status))
        where = f"{raw['metadata']['namespace']} at {raw['metadata']['resourceVersion']}"
        revisions = _revisions(status)
        for position, revision in enumerate(revisions):
            self._revision(uid, revision, where)
            if position and revision["state"] not in FINAL:
                self.wrong.append(f"{where}: {revision['name']} is {revision['state']}, and not the newest")
        self._lost(uid, _revisions(before), revisions, limit=raw["spec"].get("revisionHistoryLimit", 5), where=where)

    def _revision(self, uid: str, revision: Raw, where: str) -> None:
        name, state, manifest = revision["name"], revision["state"], revision.get("manifest")
        key = (uid, name)
        if state == "TakenBack":
            self.taken_back.add(key)
            self._barred.add(key)
        elif key in self._barred:
            self.wrong.append(f"{where}: {name} was taken back, and is {state}")
        if state == "Ready":
            self.became_ready.add(key)
        elif state != "TakenBack" and key in self._manifests:
            self.wrong.append(f"{where}: {name} was ready, and is {state}")
        if state not in FINAL:
            return
        what = self.published.get(manifest or "")
        if what is None or (what.uid, what.revision) != key:
            told = f"it is {what}" if what else "there is no such manifest"
            self.wrong.append(
                f"{where}: {name} of {uid} is {state} with manifest {manifest}, which nobody published for it: {told}"
            )
        if self._manifests.setdefault(key, manifest or "") != (manifest or ""):
            self.wrong.append(f"{where}: {name} had manifest {self._manifests[key]}, and has {manifest}")

    def _lost(self, uid: str, before: list[Raw], now: list[Raw], *, limit: int, where: str) -> None:
        """What was ready goes only when there is no more room for it."""
        there = {r["name"] for r in now}
        lost = [r for r in before if r["state"] in FINAL and r["name"] not in there]
        if lost and sum(r["state"] in FINAL for r in now) < limit:
            self.wrong.append(f"{where}: {', '.join(r['name'] for r in lost)} went, and there was room")
        for revision in lost:
            # From now on it is as if it had never been: it may be wanted, and made, again.
            self._manifests.pop((uid, revision["name"]), None)
            self._barred.discard((uid, revision["name"]))

    def _index(self, change: str, raw: Raw) -> None:
        if change == "DELETED":
            return
        for image, manifest in index_lines(raw.get("models", "")).items():
            self._given(manifest, image, f"the index of {raw['metadata']['namespace']}")

    def _pod(self, change: str, raw: Raw) -> None:
        metadata = raw["metadata"]
        if change == "DELETED" or "preheat.dev/model" not in metadata.get("labels", {}):
            return
        manifest = metadata.get("annotations", {}).get("preheat.dev/manifest", "none")
        if manifest != "pending":
            self._given(manifest, raw["spec"]["containers"][0]["image"], f"pod {metadata['name']}")

    def _given(self, manifest: str, image: str, who: str) -> None:
        what = self.published.get(manifest)
        if manifest != "none" and (what is None or what.image != image):
            self.wrong.append(f"{who} has {manifest} for image {image}, for which nobody published it")


def is_at_work(job: Raw) -> bool:
    """Whether a Job is neither finished nor going."""
    ended = any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in _conditions(job))
    return not ended and "deletionTimestamp" not in job["metadata"]


def index_lines(text: str) -> dict[str, str]:
    """Image to manifest, of an index's text; of tests, where there is one model in a namespace."""
    lines = [line.partition("|")[2].split(" ")[0] for line in text.splitlines() if "|" in line]
    return {line.rpartition("=")[0]: line.rpartition("=")[2] for line in lines}


def _target(job: Raw) -> tuple[str, str, str]:
    labels = job["metadata"]["labels"]
    owner = job["metadata"]["ownerReferences"][0]["uid"]
    return owner, labels["preheat.dev/revision"], labels["preheat.dev/hardware"]


def _revisions(status: Raw) -> list[Raw]:
    return list(status.get("revisions") or ())


def _conditions(raw: Raw) -> list[Raw]:
    return list((raw.get("status") or {}).get("conditions") or ())
