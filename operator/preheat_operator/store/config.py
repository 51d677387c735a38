"""Where the store is and who we are there, read from the environment of a container.

The chart's values reach every container as `PREHEAT_STORE_*` (docs/contracts.md, 2). They are checked here once, with
the name of the variable in the message, so that a typing error in a values file is read as such and not as a network
failure an hour later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from preheat_operator.api import names
from preheat_operator.store.errors import StoreCredentialsMissingError, StoreDeniedError

if TYPE_CHECKING:
    from collections.abc import Mapping

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,253}")
_KEY_ID = "AWS_ACCESS_KEY_ID"
_SECRET = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - the name of a file
_TOKEN = "AWS_SESSION_TOKEN"  # noqa: S105 - the name of a file


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """The store as the chart describes it. `endpoint` None means AWS; paths None mean: not given."""

    endpoint: str | None
    bucket: str
    region: str
    tenant: str
    credentials: Path | None
    ca: Path | None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> StoreConfig:
        """Read `PREHEAT_STORE_*`. Raises StoreDeniedError naming the variable and the chart value behind it."""
        endpoint = env.get(names.ENV_STORE_ENDPOINT, "").strip()
        if endpoint:
            check_endpoint(endpoint, names.ENV_STORE_ENDPOINT)
        bucket = env.get(names.ENV_STORE_BUCKET, "").strip()
        if not is_bucket(bucket):
            raise StoreDeniedError(f"PREHEAT_STORE_BUCKET: {bucket!r} is no name of a bucket; set the chart's value")
        tenant = env.get(names.ENV_STORE_TENANT, "").strip()
        if not is_tenant(tenant):
            raise StoreDeniedError(f"PREHEAT_STORE_TENANT: {tenant!r} is no tenant; it is <clusterId>.<namespace>")
        credentials = env.get(names.ENV_STORE_CREDENTIALS, "").strip()
        ca = env.get(names.ENV_STORE_CA, "").strip()
        if ca and not Path(ca).is_file():
            raise StoreDeniedError(f"PREHEAT_STORE_CA: there is no file {ca}; its Secret or ConfigMap may be missing")
        return cls(
            endpoint=endpoint or None,
            bucket=bucket,
            region=env.get(names.ENV_STORE_REGION, "").strip() or "us-east-1",
            tenant=tenant,
            credentials=Path(credentials) if credentials else None,
            ca=Path(ca) if ca else None,
        )


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """An access key. Never printed: repr hides all but the presence of a token."""

    key_id: str
    secret: str
    token: str | None

    def __repr__(self) -> str:
        return f"Credentials(token={'yes' if self.token else 'no'})"


def read_credentials(folder: Path | None) -> Credentials | None:
    """Read the files of the mounted Secret; None when it is not there at all (`optional: true`).

    Raises StoreCredentialsMissingError when the Secret is there in part, naming the key it lacks.
    """
    if folder is None:
        return None
    key_id, secret, token = (_read(folder / name) for name in (_KEY_ID, _SECRET, _TOKEN))
    if key_id is None and secret is None:
        return None
    for name, value in ((_KEY_ID, key_id), (_SECRET, secret)):
        if not value:
            raise StoreCredentialsMissingError(f"the Secret mounted at {folder} lacks the key {name}")
    return Credentials(key_id=key_id or "", secret=secret or "", token=token or None)


def _read(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except (OSError, ValueError) as error:
        raise StoreCredentialsMissingError(f"{path} cannot be read: {type(error).__name__}") from None
    if any(not 33 <= ord(character) <= 126 for character in text):
        raise StoreCredentialsMissingError(f"{path} holds blanks or other characters no access key has")
    return text


def is_bucket(text: str) -> bool:
    """Whether the text can be the name of a bucket."""
    return _BUCKET.fullmatch(text) is not None


def is_tenant(text: str) -> bool:
    """Whether the text can name a tenant, the part of the store that one namespace has."""
    return _TENANT.fullmatch(text) is not None and ".." not in text


def check_endpoint(endpoint: str, variable: str) -> None:
    """Raise StoreDeniedError, naming `variable`, unless the text is the URL of an S3 server."""
    try:
        parts = urlsplit(endpoint)
        parts.port  # noqa: B018 - raises when the port is no number
    except ValueError:
        raise StoreDeniedError(f"{variable}: is no URL such as https://s3.example.org:9000") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise StoreDeniedError(f"{variable}: must be a URL such as https://s3.example.org:9000")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise StoreDeniedError(f"{variable}: must hold no user, password, query or fragment")
