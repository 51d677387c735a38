"""Notes on a pod how it was served, so that the controller can decide from it, and nobody has to remember it.

Why it exists: two servers take reports, either may be replaced, and the controller asks neither. What a pod said is
written on that pod, the one its token is bound to: merged with what is there, seldom, and only when it says something
new. A wrong answer is the exception: its sender is not told that it arrived before it is written.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from preheat_operator.answers.limits import Limiter, Rate
from preheat_operator.api import names, served
from preheat_operator.api.served import HOUR_SECONDS, Served
from preheat_operator.cluster import resources
from preheat_operator.cluster.client import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from preheat_operator.answers.identity import Pod
    from preheat_operator.answers.message import Message
    from preheat_operator.cluster.client import Api

_LOG: Final = logging.getLogger(__name__)
FIRST_AFTER_SECONDS: Final = 2.0
"""From a pod's report to writing it: what its processes report together is written once."""
AGAIN_AFTER_SECONDS: Final = 30.0
"""Between two writes to one pod."""
WRITES: Final = Rate(burst=40, per_second=20)
"""Of all pods together; the API server has other things to do."""
_MAX_PODS: Final = 10_000
_AT_ONCE: Final = 8
_TRIES: Final = 6
_RETRY_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 0.5
_QUIET_SECONDS: Final = 60.0
_UNLUCKY: Final = (ApiError, aiohttp.ClientError, TimeoutError, OSError)


class NotNoted(Exception):
    """The API server did not take it; the sender may come again."""


@dataclass(kw_only=True)
class _Waiting:
    """What of a pod is not written yet; `due` is None while it is too little to be written."""

    pod: Pod
    model: str
    more: Served
    due: float | None
    written: float


class Notes:
    """What pods said, on its way to the pods. Of more than `most` pods the longest unheard is forgotten."""

    def __init__(
        self, *, api: Api, clock: Callable[[], float], wall: Callable[[], float], most: int = _MAX_PODS
    ) -> None:
        """`clock` is monotonic; `wall` gives seconds since 1970. Both may be a test's."""
        self._api = api
        self._clock = clock
        self._wall = wall
        self._most = most
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self._rate = Limiter(WRITES)
        self._complained = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting)

    async def add(self, pod: Pod, message: Message) -> None:
        """Take a report. With a wrong answer in it, it is on the pod when this returns. Raises NotNoted."""
        more = message.served(self._hour())
        if more == Served(hour=more.hour):
            return
        if more.wrong:
            try:
                async with asyncio.timeout(_RETRY_SECONDS * 100):
                    await self._write(pod, message.model, Served(hour=more.hour, wrong=more.wrong))
            except _UNLUCKY as error:
                self._complain(error)
                raise NotNoted("it could not be noted on the pod") from None
        self._put(pod, message.model, more)

    def _put(self, pod: Pod, model: str, more: Served, *, due: bool = True) -> None:
        entry = self._waiting.pop(pod.uid, None)
        if entry is None:
            entry = _Waiting(pod=pod, model=model, more=more, due=None, written=float("-inf"))
        else:
            entry.more = served.gather(entry.more, more, hour=self._hour())
        if due and entry.due is None:
            entry.due = max(self._clock() + FIRST_AFTER_SECONDS, entry.written + AGAIN_AFTER_SECONDS)
        self._waiting[pod.uid] = entry
        while len(self._waiting) > self._most:
            self._waiting.popitem(last=False)

    async def run(self) -> None:
        """Write what is due, for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.write_due()
            except Exception:  # a fault of ours with one pod must not silence all others
                _LOG.exception("what pods said could not be written")

    async def write_due(self) -> None:
        """Write what is due, as far as the rate allows."""
        now = self._clock()
        due = [entry for entry in self._waiting.values() if entry.due is not None and entry.due <= now]
        allowed = [entry for entry in due[: 4 * _AT_ONCE] if self._rate.allows("all", now)]
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(entry: _Waiting) -> None:
            async with slots:
                await self._write_waiting(entry)

        await asyncio.gather(*(one(entry) for entry in allowed))

    async def _write_waiting(self, entry: _Waiting) -> None:
        more, entry.more, entry.due, entry.written = entry.more, Served(), None, self._clock()
        try:
            left = await self._write(entry.pod, entry.model, more)
        except _UNLUCKY as error:
            self._complain(error)
            # Nothing is lost but the moment.
            self._put(entry.pod, entry.model, more)
            return
        if left is None:
            self._waiting.pop(entry.pod.uid, None)
        else:
            self._put(entry.pod, entry.model, left, due=False)

    async def _write(self, pod: Pod, model: str, more: Served) -> Served | None:
        """Merge it into what is on the pod; what was too little to be written, or None when the pod is not there.

        Raises ApiError and what the network raises.
        """
        path = resources.pods(pod.namespace, pod.name)
        for attempt in range(_TRIES):
            raw = await self._api.get(path)
            metadata: dict[str, Any] = (raw or {}).get("metadata") or {}
            # Of another pod of the same name, or of another model, nothing was proved.
            labels = metadata.get("labels") or {}
            if metadata.get("uid") != pod.uid or labels.get(names.LABEL_MODEL) != model:
                return None
            text = (metadata.get("annotations") or {}).get(names.ANNOTATION_SERVED)
            merged, left = served.merge(served.parse(text) or Served(), more, hour=self._hour())
            rendered = merged.render()
            if rendered == text:
                return left
            body = {
                "metadata": {
                    "uid": pod.uid,
                    "resourceVersion": metadata.get("resourceVersion"),
                    "annotations": {names.ANNOTATION_SERVED: rendered},
                }
            }
            try:
                await self._api.merge_patch(path, body)
            except ApiError as error:
                if error.status == 404:
                    return None
                if error.status != 409 or attempt == _TRIES - 1:
                    raise
                # The kubelet, or the other server, was quicker.
                await asyncio.sleep(_RETRY_SECONDS * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311
                continue
            return left
        raise AssertionError("unreachable")

    def _hour(self) -> int:
        return int(self._wall() // HOUR_SECONDS)

    def _complain(self, error: BaseException) -> None:
        """Say it to people, but not for each pod."""
        if self._clock() - self._complained >= _QUIET_SECONDS:
            self._complained = self._clock()
            _LOG.warning("how a pod was served could not be noted on it: %s: %s", type(error).__name__, error)
