"""Looking at everything from time to time, because events can be missed and time passes without events.

Its success is also the health of the controller: a process whose watches hang still lists, one that cannot list is
of no use and is restarted.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.cluster import resources
from preheat_operator.cluster.keys import Key, ModelKey, NamespaceKey

if TYPE_CHECKING:
    from preheat_operator.cluster.client import Api
    from preheat_operator.cluster.queue import WorkQueue

_LOG = logging.getLogger(__name__)
# A missed turn is bad luck, three are a broken controller.
_TURNS_UNTIL_STALE = 3


class Resync:
    """Puts every key into the queue, every `interval` seconds, spread over half of it."""

    def __init__(self, *, api: Api, queue: WorkQueue[Key], interval: float) -> None:
        self._api = api
        self._queue = queue
        self._interval = interval
        self._last_success = time.monotonic()

    @property
    def stale_seconds(self) -> float | None:
        """For how long nothing could be listed, once that is too long; None while all is well."""
        age = time.monotonic() - self._last_success
        return age if age > _TURNS_UNTIL_STALE * self._interval else None

    async def run(self) -> None:
        """Resync for ever; an error is logged and tried again, soon."""
        spread = 0.0
        while True:
            try:
                await self.once(spread=spread)
            except Exception:
                _LOG.exception("resync failed; trying again")
                await asyncio.sleep(min(10.0, self._interval))
                continue
            self._last_success = time.monotonic()
            spread = self._interval / 2
            await asyncio.sleep(self._interval * random.uniform(0.9, 1.1))  # noqa: S311 - spreads load

    async def once(self, *, spread: float) -> None:
        """Put every model, every namespace with an index and every held pod's model into the queue, within `spread`."""
        models = {_key(raw) for raw in await self._api.list_all(resources.compiled_models())}
        namespaces = {key.namespace for key in models}
        for raw in await self._api.list_all(resources.indices()):
            namespaces.add(str(raw["metadata"]["namespace"]))
        # Compile pods whose model is gone: the event of its deletion may have been missed, and they hold a finalizer.
        for raw in await self._api.list_all(resources.pods(), labels=names.LABEL_COMPILED_MODEL):
            metadata = raw["metadata"]
            if names.FINALIZER_RESULT in (metadata.get("finalizers") or ()):
                models.add(ModelKey(metadata["namespace"], metadata["labels"][names.LABEL_COMPILED_MODEL]))
        for key in models:
            self._queue.add(key, delay=random.uniform(0, spread))  # noqa: S311 - spreads load
        for namespace in namespaces:
            self._queue.add(NamespaceKey(namespace), delay=random.uniform(0, spread))  # noqa: S311 - spreads load


def _key(raw: dict[str, object]) -> ModelKey:
    metadata = raw["metadata"]
    if not isinstance(metadata, dict):
        raise TypeError("an object without metadata")
    return ModelKey(str(metadata["namespace"]), str(metadata["name"]))
