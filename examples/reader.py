"""Reads objects of a cluster over a connection that stays: what is waited for is read again and again.

`kubectl get` takes a tenth of a second of a processor each time, which on a small machine is taken from the pods that
are waited for.
"""

from __future__ import annotations

import functools
import json
from typing import Any
from urllib.parse import quote

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

# What kubectl finds out by discovery: group and plural of the kinds that are read here.
_PATHS = {
    "compiledmodel": ("apis/preheat.dev/v1alpha1", "compiledmodels"),
    "compiledmodelindex": ("apis/preheat.dev/v1alpha1", "compiledmodelindices"),
    "deployment": ("apis/apps/v1", "deployments"),
    "event": ("api/v1", "events"),
    "job": ("apis/batch/v1", "jobs"),
    "pod": ("api/v1", "pods"),
    "resourcequota": ("api/v1", "resourcequotas"),
    "secret": ("api/v1", "secrets"),
    "service": ("api/v1", "services"),
}
_BY_NAME = _PATHS | {plural: (group, plural) for group, plural in _PATHS.values()}


def read(kubeconfig: str, namespace: str, kind: str, *, name: str = "", selector: str = "") -> dict[str, Any] | None:
    """Return one object, or the list of those that `selector` selects; None where there is none.

    Raises RuntimeError with what the server said, KeyError for a kind that is not read here.
    """
    group, plural = _BY_NAME[kind]
    api = _client(kubeconfig)
    url = f"{api.configuration.host}/{group}/namespaces/{quote(namespace)}/{plural}"
    url += f"/{quote(name)}" if name else f"?labelSelector={quote(selector)}"
    what = f"get {kind} {name or selector}"
    try:
        answer = api.call_api("GET", url, header_params={"Accept": "application/json"}, _request_timeout=60)
        found: dict[str, Any] = json.loads(answer.read())
    except (HTTPError, ApiException, ValueError) as error:
        raise RuntimeError(f"{what}: {error}") from error
    if answer.status == 404 and name:
        return None
    if answer.status != 200:
        raise RuntimeError(f"{what}: {answer.status} {found.get('message', '')}")
    return found


@functools.cache
def _client(kubeconfig: str) -> client.ApiClient:
    return config.new_client_from_config(kubeconfig)
