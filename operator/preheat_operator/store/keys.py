"""The layout of the bucket: the one place that spells a key (docs/contracts.md, 8)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from preheat_runtime.manifest import is_digest

LAYOUT_VERSION: Final = "v1"
_HEX = re.compile(r"[0-9a-f]{64}")
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_MODEL = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Keys:
    """Keys below the prefix of one tenant. Every part that comes from elsewhere is checked before it is used.

    `below` is a prefix of the bucket with a `/` at its end, where the store shares the bucket with other things.
    """

    tenant: str
    below: str = ""

    @property
    def prefix(self) -> str:
        """What a bucket policy for this tenant is scoped to."""
        return f"{self.below}{LAYOUT_VERSION}/{self.tenant}/"

    @property
    def tenant_marker(self) -> str:
        """Key of the object that says that the tenant exists; whoever may write it may publish."""
        return f"{self.prefix}tenant.json"

    def blob(self, sha256: str) -> str:
        """Key of a piece, by the hash of its stored bytes."""
        return f"{self.prefix}blobs/sha256/{_hex(sha256)}"

    def manifest(self, digest: str) -> str:
        """Key of a manifest, by its digest (`sha256:<hex>`)."""
        if not is_digest(digest):
            raise ValueError(f"{digest!r} is no digest")
        return f"{self.prefix}manifests/sha256/{digest.removeprefix('sha256:')}.json"

    def request(self, request_key: str) -> str:
        """Key of the index entry that answers a request."""
        return f"{self.prefix}index/{_hex(request_key)}.json"

    def job(self, uid: str) -> str:
        """Key of the index entry that says what a Job published."""
        if not is_job_uid(uid):
            raise ValueError(f"{uid!r} is no uid of a Job")
        return f"{self.prefix}index/job-{uid}.json"

    def name(self, model: str) -> str:
        """Key of the pointer from a CompiledModel's name to its newest manifests, for use without a cluster."""
        if not is_model_name(model):
            raise ValueError(f"{model!r} is no name of a CompiledModel")
        return f"{self.prefix}names/{model}.json"


def is_model_name(text: str) -> bool:
    """Whether the text can be the name of a CompiledModel, as the API server takes it."""
    return _MODEL.fullmatch(text) is not None and ".." not in text


def is_job_uid(text: str) -> bool:
    """Whether the text can be the uid of a Kubernetes object."""
    return _UID.fullmatch(text) is not None


def _hex(text: str) -> str:
    if not _HEX.fullmatch(text):
        raise ValueError(f"{text!r} is no sha256 in hexadecimal")
    return text
