"""The chart's pre-delete hook: leaves nothing behind that only a running controller could finish.

Compile pods hold a finalizer that the controller removes; without it they, and with them their namespaces, could never
be deleted; and pods that wait for artifacts would wait until somebody who is gone releases them. The controller still
runs while hooks do, so it is stopped first: it would make the Jobs and indices anew. Without an index admission holds
no pod back, so the indices go before the pods that wait are released. What was published stays in the store, CompiledModels stay in the cluster, and serving pods are not touched.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Final

from preheat_operator.api import names
from preheat_operator.cluster import resources
from preheat_operator.cluster.apply import release_pod, stop_job
from preheat_operator.cluster.client import Api, ApiError, connect
from preheat_operator.cluster.gates import UNSCHEDULED, let_go
from preheat_operator.plan.gates import Opening
from preheat_operator.plan.objects import read_job, read_pod

if TYPE_CHECKING:
    from collections.abc import Callable

# Of the hook's own deadline: what ends by itself can still say why it failed.
SHARE_OF_DEADLINE: Final = 0.8
_POLL_SECONDS = 1.0
_UNINSTALLED: Final = f"{names.INJECTED_NO_PREFIX}Preheat was uninstalled while it waited"


class UninstallError(Exception):
    """Something could not be cleared away in time; the message says what, and how to do it by hand."""


async def uninstall(api: Api, *, namespace: str, controller: str, seconds: float, say: Callable[[str], None]) -> None:
    """Stop the controller, then delete indices and Jobs and release pods. Raises UninstallError or ApiError.

    `namespace` and `controller` name the controller's Deployment; `seconds` bounds the whole; `say` gets a line for
    each thing done. May be run again.
    """
    deadline = time.monotonic() + seconds
    await _stop_controller(api, namespace, controller, deadline=deadline, say=say)
    while True:
        removed = (
            await _delete_indices(api, say=say)
            + await _open_gates(api, say=say)
            + await _delete_jobs(api, say=say)
            + await _release_pods(api, say=say)
        )
        if not removed:
            break
        # The Job controller may have been making a pod just then, admission have read the old index: only a pass that
        # finds nothing is the last.
        if time.monotonic() > deadline:
            raise UninstallError(
                f"Jobs or pods labelled {names.LABEL_COMPILED_MODEL}, indices or pods that wait keep appearing: is "
                "another Preheat installed?"
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _delete_indices(api: Api, *, say: Callable[[str], None]) -> int:
    found = await api.list_all(resources.indices())
    for raw in found:
        where = str(raw["metadata"]["namespace"])
        await api.delete(resources.index(where))
        say(f"deleted the index of namespace {where}")
    return len(found)


async def _open_gates(api: Api, *, say: Callable[[str], None]) -> int:
    count = 0
    for raw in await api.list_all(resources.pods(), labels=names.LABEL_MODEL, fields=UNSCHEDULED):
        pod = read_pod(raw)
        if pod.gated and not pod.deleting:
            count += await let_go(api, Opening(pod=pod, manifest=names.MANIFEST_NONE, injected=_UNINSTALLED))
    if count:
        say(f"released {count} pods that waited")
    return count


async def _stop_controller(
    api: Api, namespace: str, controller: str, *, deadline: float, say: Callable[[str], None]
) -> None:
    deployment = await api.get(resources.deployment(namespace, controller))
    if deployment is None:
        say(f"Deployment {namespace}/{controller} is not there")
        return
    await api.merge_patch(resources.deployment(namespace, controller, "scale"), {"spec": {"replicas": 0}})
    labels = deployment["spec"]["selector"].get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    while pods := [p for p in await api.list_all(resources.pods(namespace), labels=selector) if _runs(p)]:
        if time.monotonic() > deadline:
            left = ", ".join(str(p["metadata"]["name"]) for p in pods)
            raise UninstallError(f"the controller does not stop ({left}): delete its pods, then uninstall again")
        await asyncio.sleep(_POLL_SECONDS)
    say(f"stopped Deployment {namespace}/{controller}")


async def _delete_jobs(api: Api, *, say: Callable[[str], None]) -> int:
    count = 0
    for raw in await api.list_all(resources.jobs(), labels=names.LABEL_COMPILED_MODEL):
        job = read_job(raw)
        # Without our key it only looks like one of ours.
        if job.target_key and not job.deleting:
            await stop_job(api, str(raw["metadata"]["namespace"]), job)
            count += 1
    if count:
        say(f"deleted {count} compile Jobs")
    return count


async def _release_pods(api: Api, *, say: Callable[[str], None]) -> int:
    count = 0
    for raw in await api.list_all(resources.pods(), labels=names.LABEL_COMPILED_MODEL):
        pod = read_pod(raw)
        if pod.holds_result:
            await release_pod(api, pod.namespace, pod)
            count += 1
    if count:
        say(f"released {count} compile pods")
    return count


def _runs(raw: dict[str, object]) -> bool:
    return not read_pod(raw).finished


def main() -> int:
    """Entry point; answers the exit code."""
    logging.basicConfig(level=logging.WARNING)
    namespace, controller = os.environ.get("PREHEAT_NAMESPACE", ""), os.environ.get("PREHEAT_CONTROLLER", "")
    if not namespace or not controller:
        _say("PREHEAT_NAMESPACE and PREHEAT_CONTROLLER must name the controller's Deployment; the chart sets them")
        return 2
    timeout = os.environ.get("PREHEAT_UNINSTALL_TIMEOUT", "")
    if not timeout.isdecimal():
        _say(
            f"PREHEAT_UNINSTALL_TIMEOUT: {timeout!r} is no number of seconds; it is the value uninstall.timeoutSeconds"
        )
        return 2
    try:
        asyncio.run(_main(namespace, controller, seconds=int(timeout) * SHARE_OF_DEADLINE))
    except (UninstallError, ApiError) as error:
        _say(f"failed: {error}")
        return 1
    return 0


async def _main(namespace: str, controller: str, *, seconds: float) -> None:
    async with connect() as api:
        await uninstall(api, namespace=namespace, controller=controller, seconds=seconds, say=_say)


def _say(line: str) -> None:
    sys.stdout.write(f"uninstall: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
