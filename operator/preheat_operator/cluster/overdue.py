"""Releases pods whose time is over, should the controller not do it.

A pod that waits must not depend on one process: with the controller gone, unable to list, or scaled to zero, every
replica of the server does this. It gives nothing to a pod but leave to start cold, and it is late on purpose, so that
while there is a controller its words are the ones a person reads.
"""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from preheat_operator.api import names
from preheat_operator.cluster import resources
from preheat_operator.cluster.client import ApiError
from preheat_operator.cluster.gates import UNSCHEDULED, let_go
from preheat_operator.plan import gates
from preheat_operator.plan.objects import read_pod

if TYPE_CHECKING:
    from preheat_operator.cluster.client import Api

_LOG = logging.getLogger(__name__)
INTERVAL_SECONDS: Final = 10.0
GRACE: Final = timedelta(seconds=10)


class Overdue:
    """Looks at all labelled pods without a node, every `interval` seconds, give or take a third."""

    def __init__(self, *, api: Api, interval: float = INTERVAL_SECONDS, grace: timedelta = GRACE) -> None:
        self._api = api
        self._interval = interval
        self._grace = grace

    async def run(self) -> None:
        """Release for ever; an error is logged, and the next look is another try."""
        while True:
            # Replicas start together; they need not look together.
            await asyncio.sleep(self._interval * random.uniform(0.67, 1.33))  # noqa: S311 - spreads load
            try:
                await self.once()
            except Exception:
                _LOG.exception("pods that wait could not be looked at; trying again")

    async def once(self) -> int:
        """Release every pod that is overdue; answers how many there were. Holds one page of pods at a time."""
        count = 0
        async for page in self._api.pages(resources.pods(), labels=names.LABEL_MODEL, fields=UNSCHEDULED):
            for pod in map(read_pod, page):
                if not pod.gated or pod.deleting or datetime.now(UTC) < gates.deadline(pod) + self._grace:
                    continue
                try:
                    count += await let_go(self._api, gates.overdue(pod))
                except ApiError as error:
                    # One pod that cannot be released must not keep the others.
                    _LOG.warning("pod %s/%s is overdue and cannot be released: %s", pod.namespace, pod.name, error)
        return count
