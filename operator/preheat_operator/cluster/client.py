"""A thin client of the API server: paths and plain dictionaries, one error type.

The typed half of `kubernetes.aio` is not used, on purpose: it drops fields it does not know when it reads, and refuses
them when it writes, so a newer cluster or a user's newer field would be lost. What is used is its configuration,
authentication with token refresh, and transport.
"""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

Raw = dict[str, Any]

FIELD_MANAGER: Final = "preheat-controller"
_JSON: Final = "application/json"
_APPLY: Final = "application/apply-patch+yaml"
_JSON_PATCH: Final = "application/json-patch+json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_PAGE = 500
_TIMEOUT_SECONDS = 30.0
_EXPIRED = 410


class ApiError(Exception):
    """The API server refused or failed a request. `status` is the HTTP code, `reason` Kubernetes' own word for it."""

    def __init__(self, *, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_refusal(self) -> bool:
        """Whether the same request would be refused again: it is wrong or forbidden, not merely unlucky."""
        return self.status in (400, 403, 404, 409, 413, 422)


class Api:
    """Requests to one API server. Every method raises ApiError; absent objects are answers, where noted."""

    def __init__(self, client: kubernetes_client.ApiClient, *, manager: str = FIELD_MANAGER) -> None:
        """`manager` is whom the API server names as the author of changed fields."""
        self._client = client
        self._manager = manager

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None, content: str = _JSON
    ) -> Raw:
        """One request; the answer's JSON object."""
        data = await self._data(method, path, query, body, {"Accept": _JSON, "Content-Type": content})
        answer = json.loads(data) if data else {}
        return answer if isinstance(answer, dict) else {}

    async def text(self, path: str, *, query: Mapping[str, str] | None = None) -> str:
        """A GET that is answered with text: a log. What is no UTF-8 in it is replaced."""
        return (await self._data("GET", path, query, None, {"Accept": "*/*"})).decode("utf-8", "replace")

    async def _data(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Any, headers: dict[str, str]
    ) -> bytes:
        serialized = await self._client.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        response = await self._client.call_api(*serialized, _request_timeout=_TIMEOUT_SECONDS)
        data: bytes = await response.read()
        if 200 <= response.status < 300:
            return data
        raise _error(response.status, response.reason, data)

    async def get(self, path: str) -> Raw | None:
        """An object; None when it is not there."""
        try:
            return await self.request("GET", path)
        except ApiError as error:
            if error.status == 404 and error.reason == "NotFound":
                return None
            raise

    async def list_all(self, path: str, *, labels: str = "", fields: str = "") -> list[Raw]:
        """All objects of a collection that match the selectors, read page by page, consistently."""
        try:
            return await self._list(path, labels=labels, fields=fields)
        except ApiError as error:
            if error.status != _EXPIRED:
                raise
        # The pages' snapshot was compacted away meanwhile: begin again, once.
        return await self._list(path, labels=labels, fields=fields)

    async def _list(self, path: str, *, labels: str, fields: str) -> list[Raw]:
        return [item async for page in self.pages(path, labels=labels, fields=fields) for item in page]

    async def pages(self, path: str, *, labels: str = "", fields: str = "") -> AsyncIterator[list[Raw]]:
        """The objects of a collection that match the selectors, page by page, of one moment.

        Reading slowly can end with an ApiError of status 410: begin again.
        """
        query = {"limit": str(_PAGE)}
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        while True:
            page = await self.request("GET", path, query=query)
            yield page.get("items") or []
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = str(token)

    async def create(self, path: str, body: Raw, *, dry_run: bool = False) -> Raw:
        """Create an object in a collection; `dry_run` checks it in the API server and stores nothing."""
        query = {"fieldManager": self._manager, "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return await self.request("POST", path, query=query, body=body)

    async def apply(self, path: str, body: Raw) -> Raw:
        """Server-side apply: the object gets these fields from us, and loses those we set before and no longer do."""
        query = {"fieldManager": self._manager, "force": "true"}
        return await self.request("PATCH", path, query=query, body=body, content=_APPLY)

    async def merge_patch(self, path: str, body: Raw, *, manager: str = "") -> Raw:
        """JSON merge patch."""
        query = {"fieldManager": manager or self._manager}
        return await self.request("PATCH", path, query=query, body=body, content=_MERGE_PATCH)

    async def json_patch(self, path: str, operations: list[Raw]) -> Raw:
        """JSON patch; with a `test` operation it changes only what was seen."""
        query = {"fieldManager": self._manager}
        return await self.request("PATCH", path, query=query, body=operations, content=_JSON_PATCH)

    async def delete(self, path: str, *, uid: str = "") -> bool:
        """Delete an object, its dependents in the background; False when it, or the one with this uid, is not there."""
        body: Raw = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self.request("DELETE", path, body=body)
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True


@asynccontextmanager
async def connect(*, manager: str = FIELD_MANAGER) -> AsyncIterator[Api]:
    """The API server of this pod's cluster, or of `KUBECONFIG` outside of one."""
    configuration = kubernetes_client.Configuration()
    kubeconfig = os.environ.get("KUBECONFIG")
    if os.environ.get("KUBERNETES_SERVICE_HOST") and not kubeconfig:
        kubernetes_config.load_incluster_config(client_configuration=configuration)
    else:
        await kubernetes_config.load_kube_config(
            config_file=kubeconfig, client_configuration=configuration, persist_config=False
        )
    async with kubernetes_client.ApiClient(configuration) as client:
        yield Api(client, manager=manager)


def path_of(
    *, group: str = "", version: str = "v1", plural: str, namespace: str = "", name: str = "", sub: str = ""
) -> str:
    """The URL path of a resource, a collection (no name) or a subresource; every part is escaped."""
    parts = ["apis", group, version] if group else ["api", version]
    if namespace:
        parts += ["namespaces", namespace]
    parts += [part for part in (plural, name, sub) if part]
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _error(status: int, reason: str | None, data: bytes) -> ApiError:
    try:
        body = json.loads(data)
    except ValueError:
        body = {}
    if not isinstance(body, dict):
        body = {}
    message = body.get("message") or data[:512].decode("utf-8", "replace")
    return ApiError(status=status, reason=str(body.get("reason") or reason or ""), message=str(message))
