"""Who reports: what TokenReview must say of a token, and how long that is taken for true.

A token has an audience of its own, so it is good for nothing but reporting, and one for anything else is no good here. It
is bound to a pod, so it ends with the pod, and one made by hand for a service account is refused.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
MAX_TOKEN_CHARACTERS: Final = 16384


@dataclass(frozen=True, kw_only=True)
class Pod:
    """The pod that a token is bound to."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class Refused:
    """A token that is no good here, and why, without anything of the token."""

    why: str


def bearer(header: str | None) -> str | None:
    """The token of an Authorization header; None when there is none that could be one."""
    scheme, _, token = (header or "").partition(" ")
    token = token.strip()
    plausible = scheme.lower() == "bearer" and 0 < len(token) <= MAX_TOKEN_CHARACTERS
    return token if plausible and token.isascii() and token.isprintable() and " " not in token else None


def question(token: str, audience: str) -> dict[str, Any]:
    """The TokenReview to create."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    }


def verdict(review: Mapping[str, Any], audience: str) -> Pod | Refused:
    """What the API server's answer means."""
    status = review.get("status") or {}
    if status.get("authenticated") is not True:
        return Refused("the API server does not know this token for this audience")
    # An authenticator that knows no audiences leaves the list empty; then the token may be one for anything.
    if audience not in (status.get("audiences") or []):
        return Refused("the token is for another audience")
    user = status.get("user") or {}
    username, extra = str(user.get("username") or ""), user.get("extra") or {}
    namespace, _, account = username.removeprefix(_SERVICE_ACCOUNT).partition(":")
    if not username.startswith(_SERVICE_ACCOUNT) or not namespace or not account:
        return Refused("the token is not a service account's")
    name, uid = (next(iter(extra.get(key) or []), "") for key in (_POD_NAME, _POD_UID))
    if not name or not uid:
        return Refused("the token is not bound to a pod")
    return Pod(namespace=namespace, name=str(name), uid=str(uid))


class Known:
    """Verdicts by the hash of their token, each for a while: bounded in number, the longest unused goes first.

    A pod that is gone may so report for as long as `accepted_seconds`; a token that was just refused is not asked about
    again for `refused_seconds`.
    """

    def __init__(self, *, most: int = 10_000, accepted_seconds: float = 120.0, refused_seconds: float = 10.0) -> None:
        self._most = most
        self._seconds = {Pod: accepted_seconds, Refused: refused_seconds}
        self._entries: OrderedDict[bytes, tuple[float, Pod | Refused]] = OrderedDict()

    def get(self, token: str, now: float) -> Pod | Refused | None:
        """The verdict on a token, if it was given lately."""
        key = _hash(token)
        found = self._entries.get(key)
        if found is None:
            return None
        if now >= found[0]:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return found[1]

    def put(self, token: str, verdict: Pod | Refused, now: float) -> None:
        """Remember a verdict."""
        self._entries[_hash(token)] = (now + self._seconds[type(verdict)], verdict)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
