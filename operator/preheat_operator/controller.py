"""The controller process: routes what Kopf sees to the work queue, and nothing else.

Kopf is used for its watches alone. Its state-keeping handlers, timers and daemons write annotations and finalizers
and can stop for good on one failed patch; here an event only says which key to look at, and deciding starts from
reading. So no handler returns a value, patches an object or fails.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import sys
from typing import TYPE_CHECKING, Any

import kopf
from prometheus_client import disable_created_metrics, start_http_server

from preheat_operator.api import names
from preheat_operator.api.enums import WorkloadKind
from preheat_operator.cluster import resources
from preheat_operator.cluster.client import ApiError, connect
from preheat_operator.cluster.keys import Key, ModelKey, NamespaceKey
from preheat_operator.cluster.queue import WorkQueue
from preheat_operator.cluster.reconciler import Reconciler
from preheat_operator.cluster.resync import Resync
from preheat_operator.plan.attention import Told, needs_attention
from preheat_operator.settings import Settings, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from preheat_operator.cluster.client import Api

_LOG = logging.getLogger(__name__)
# What many pods of a roll-out say at once is read once.
_LISTEN_SECONDS = 5.0


class Backoffs:
    """Seconds between attempts to reach the API server: growing, capped, spread, and without an end.

    Kopf ends the process when its list of delays is used up, which would turn an outage of the API server into crash
    loops. It iterates over this anew for each request.
    """

    def __iter__(self) -> Iterator[float]:
        for attempt in itertools.count():
            yield min(0.5 * 2 ** min(attempt, 8), 30.0) * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load


def kopf_settings() -> kopf.OperatorSettings:
    """Kopf's settings: bounded watches, endless patience, no Events, and only the labelled pods and Jobs."""
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = 500
    settings.watching.label_selectors["batch", "v1", "jobs"] = names.LABEL_COMPILED_MODEL
    settings.watching.label_selectors["", "v1", "pods"] = names.LABEL_MODEL
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoffs()
    settings.posting.enabled = False
    # All that is watched must be there when we start; so we need no right to list namespaces and CRDs.
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = 30
    return settings


def routes(reconciler: Reconciler, resync: Resync) -> kopf.OperatorRegistry:
    """Which events wake which keys."""
    registry = kopf.OperatorRegistry()
    queue = reconciler.queue
    told = Told()

    async def on_model(namespace: str, name: str, **_: Any) -> None:
        queue.add(ModelKey(namespace, name))

    async def on_job(namespace: str, labels: Mapping[str, str], **_: Any) -> None:
        queue.add(ModelKey(namespace, labels.get(names.LABEL_COMPILED_MODEL, "")))

    async def on_pod(namespace: str, body: Mapping[str, Any], type: str | None, **_: Any) -> None:  # noqa: A002 - Kopf's word
        if needs_attention(body):
            queue.add(NamespaceKey(namespace))
        if model := told.news(body, gone=type == "DELETED"):
            queue.add(ModelKey(namespace, model), delay=_LISTEN_SECONDS)
        news = reconciler.seen.news(namespace, body)
        if news is not None:
            queue.add(ModelKey(namespace, news))

    async def on_index(namespace: str, **_: Any) -> None:
        queue.add(NamespaceKey(namespace))

    async def on_workload(kind: WorkloadKind, namespace: str, name: str) -> None:
        for key in reconciler.followers.get((kind.value, namespace, name), ()):
            queue.add(key)

    async def on_deployment(namespace: str, name: str, **_: Any) -> None:
        await on_workload(WorkloadKind.DEPLOYMENT, namespace, name)

    async def on_stateful_set(namespace: str, name: str, **_: Any) -> None:
        await on_workload(WorkloadKind.STATEFUL_SET, namespace, name)

    async def probe(**_: Any) -> None:
        stale = resync.stale_seconds
        if stale is not None:
            raise kopf.PermanentError(f"nothing could be listed for {stale:.0f} s")

    kopf.on.login(registry=registry)(kopf.login_via_client)
    kopf.on.event(names.GROUP, names.VERSION, names.COMPILED_MODEL_PLURAL, registry=registry)(on_model)
    kopf.on.event(names.GROUP, names.VERSION, names.COMPILED_MODEL_INDEX_PLURAL, registry=registry)(on_index)
    kopf.on.event("batch", "v1", "jobs", registry=registry)(on_job)
    kopf.on.event("", "v1", "pods", registry=registry)(on_pod)
    kopf.on.event("apps", "v1", "deployments", registry=registry)(on_deployment)
    kopf.on.event("apps", "v1", "statefulsets", registry=registry)(on_stateful_set)
    kopf.on.probe(registry=registry)(probe)
    return registry


async def run(settings: Settings) -> None:
    """Run until a signal ends it. Raises ApiError when the CRDs are not installed, OSError when it cannot listen."""
    async with connect() as api:
        await _require_crds(api)
        queue: WorkQueue[Key] = WorkQueue()
        reconciler = Reconciler(api=api, queue=queue, installation=settings.installation)
        resync = Resync(api=api, queue=queue, interval=settings.resync_seconds)
        watches = kopf.operator(
            registry=routes(reconciler, resync),
            settings=kopf_settings(),
            clusterwide=True,
            standalone=True,
            # Otherwise it is made from the name of the user, and an arbitrary uid has none.
            identity="preheat-controller",
            liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz",
        )
        # In a thread of its own, which ends with the process.
        serving, _ = start_http_server(settings.metrics_port, registry=reconciler.figures.registry)
        work = (watches, queue.run(reconciler, workers=settings.workers), resync.run())
        tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
        try:
            # Whatever ends first ends the process: half a controller would look alive and do nothing.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            serving.shutdown()
            serving.server_close()


async def _require_crds(api: Api) -> None:
    """The watches are set up once, at the start; without CRDs there would be none until the next one."""
    for path in (resources.compiled_models(), resources.indices()):
        await api.request("GET", path, query={"limit": "1"})


def main() -> int:
    """Entry point; answers the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Kopf reports every event it hands on; that is what the work queue is there to make quiet.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        settings = Settings.from_env(os.environ)
    except SettingsError as error:
        _LOG.error("%s", error)
        return 2
    try:
        asyncio.run(run(settings))
    except ApiError as error:
        _LOG.error("the API server does not serve what the controller needs; are the CRDs installed? %s", error)
        return 1
    except OSError as error:
        _LOG.error("it cannot listen: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
