"""`preheat why`: why a pod is cold, or that it is not, from what the cluster says of it; with the caller's own rights."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from preheat_operator.api import names
from preheat_operator.cli import exits
from preheat_operator.cli.asking import ask, namespace
from preheat_operator.cli.errors import CommandError
from preheat_operator.cli.output import table, write, write_json
from preheat_operator.cluster import resources
from preheat_operator.cluster.client import ApiError, connect
from preheat_operator.explain.decide import Explanation, explain
from preheat_operator.explain.gathered import Gathered

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from preheat_operator.cluster.client import Api

#: First answers stand at the beginning of a log, later ones at its end.
_LOG_BYTES: Final = 4 * 2**20
_LOG_LINES: Final = 2000


def main(options: argparse.Namespace) -> int:
    """Gather, explain, print; returns the exit code. Raises CommandError."""
    found = ask(_gather(namespace(options.namespace), options.pod.removeprefix("pod/")))
    explanation = explain(found)
    if options.output == "json":
        write_json(as_json(found, explanation))
    else:
        for line in lines(found, explanation):
            write(line)
    return exits.OK


def as_json(found: Gathered, explanation: Explanation) -> dict[str, object]:
    """The explanation for programs."""
    return {
        "pod": found.metadata.get("name"),
        "namespace": found.namespace,
        "container": found.container,
        "image": found.image,
        "model": found.label,
        "manifest": found.manifest or None,
        **asdict(explanation),
    }


def lines(found: Gathered, explanation: Explanation) -> Iterator[str]:
    """The explanation in words."""
    yield from table(
        [
            ["pod", f"{found.namespace}/{found.metadata.get('name')}, container {found.container}"],
            ["image", found.image],
            ["model", found.label or "-"],
            ["manifest", found.manifest or "-"],
            ["served", explanation.outcome],
            ["why", f"{explanation.why} ({explanation.cause})"],
            ["remedy", explanation.remedy],
            *(["also", note] for note in explanation.notes),
        ]
    )


async def _gather(namespace: str, name: str) -> Gathered:
    async with connect() as api:
        pod = await api.get(resources.pods(namespace, name))
        if pod is None:
            raise CommandError(f"there is no pod {name} in namespace {namespace}", code=exits.MISSING)
        unread: list[str] = []
        seen = Gathered(pod=pod)
        model = None
        if seen.label:
            try:
                model = await api.get(resources.compiled_models(namespace, seen.label))
            except ApiError as error:
                unread.append(f"CompiledModel {seen.label} could not be read: {error.message}")
        fetch_log = serving_log = None
        if seen.injected == names.INJECTED_YES:
            fetch_log = await _log(api, namespace, name, names.CONTAINER_FETCH, unread)
            serving_log = await _log(api, namespace, name, seen.container, unread)
        return Gathered(pod=pod, model=model, fetch_log=fetch_log, serving_log=serving_log, unread=tuple(unread))


async def _log(api: Api, namespace: str, pod: str, container: str, unread: list[str]) -> str | None:
    """The beginning and the end of a container's log; None when it cannot be read."""
    path = f"{resources.pods(namespace, pod)}/log"
    try:
        head = await api.text(path, query={"container": container, "limitBytes": str(_LOG_BYTES)})
        if len(head.encode()) < _LOG_BYTES:
            return head
        tail = await api.text(path, query={"container": container, "tailLines": str(_LOG_LINES)})
    except ApiError as error:
        unread.append(f"the log of {container} could not be read: {error.message}")
        return None
    return f"{head}\n{tail}"
