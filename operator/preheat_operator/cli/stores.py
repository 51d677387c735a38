"""Opens the store that `--store` names: a folder, or `s3://bucket[/prefix]` with the usual AWS_* variables."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from preheat_operator.cli.errors import CommandError
from preheat_operator.store.config import StoreConfig, check_endpoint, is_bucket, is_tenant
from preheat_operator.store.errors import StoreCredentialsMissingError, StoreDeniedError
from preheat_operator.store.keys import Keys

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from preheat_operator.store.interface import Objects

LOCAL_CLUSTER: Final = "local"
"""First part of the tenant of what was compiled without a cluster; no cluster's prefix is written to by accident."""
DEFAULT_NAMESPACE: Final = "default"
_CONNECTIONS: Final = 5
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
# Any of them makes botocore fetch credentials by itself.
_OTHER_CREDENTIALS = (
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StoreLocation:
    """A store and a tenant in it, as the command line names them; opened only when it is used."""

    tenant: str
    folder: Path | None = None
    bucket: str = ""
    prefix: str = ""

    @classmethod
    def parse(cls, text: str, *, tenant: str) -> StoreLocation:
        """Read the value of `--store`. Raises CommandError naming what is wrong with it.

        Raises StoreDeniedError for a folder that cannot be found from here, since that is no mistake in the words.
        """
        if not is_tenant(tenant):
            raise CommandError(f"--tenant: {tenant!r} is no tenant; it is <clusterId>.<namespace>")
        scheme, mark, rest = text.partition("://")
        if not mark:
            if not text:
                raise CommandError("--store: is empty: name a folder, or s3://bucket[/prefix]")
            try:
                return cls(tenant=tenant, folder=Path(text).absolute())
            except OSError:
                raise StoreDeniedError(f"--store: {text} lies in the present folder, which is gone") from None
        if scheme != "s3":
            raise CommandError(
                f"--store: {scheme}:// is no store Preheat knows: name a folder, or s3://bucket[/prefix]"
            )
        bucket, _, prefix = rest.partition("/")
        prefix = prefix.rstrip("/")
        if not is_bucket(bucket):
            raise CommandError(f"--store: {bucket!r} is no name of a bucket: write s3://bucket[/prefix]")
        if prefix and not _PREFIX.fullmatch(prefix):
            raise CommandError(
                f"--store: {prefix!r} is no prefix: names of letters, digits, '.', '_', '-' with / between"
            )
        return cls(tenant=tenant, bucket=bucket, prefix=prefix)

    def __str__(self) -> str:
        if self.folder is not None:
            return str(self.folder)
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def open(self, *, writing: bool = False) -> tuple[Objects, Keys]:
        """Return the store and the keys of its tenant. Raises StoreError.

        A folder that is not there is an error when reading: most often its name is mistyped.
        """
        if self.folder is not None:
            from preheat_operator.store.directory import DirectoryStore

            if not writing and not self.folder.is_dir():
                raise StoreDeniedError(f"--store: there is no folder {self.folder}")
            return DirectoryStore(self.folder), Keys(self.tenant)
        from preheat_operator.store.client import make_client
        from preheat_operator.store.objects import ObjectStore

        client = make_client(self._config(os.environ), connections=_CONNECTIONS, patient=writing)
        return ObjectStore(client, bucket=self.bucket), Keys(self.tenant, f"{self.prefix}/" if self.prefix else "")

    def _config(self, env: Mapping[str, str]) -> StoreConfig:
        if not any(env.get(name) for name in _OTHER_CREDENTIALS) and not all(env.get(name) for name in _KEYS):
            remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            if env.get("AWS_PROFILE"):
                remedy += '; profiles are not read: eval "$(aws configure export-credentials --format env)"'
            raise StoreCredentialsMissingError(f"no credentials in the environment: {remedy}")
        variable = next((v for v in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") if env.get(v)), "")
        if variable:
            check_endpoint(env[variable], variable)
        ca = env.get("AWS_CA_BUNDLE")
        if ca and not Path(ca).is_file():
            raise StoreDeniedError(f"AWS_CA_BUNDLE: there is no file {ca}")
        return StoreConfig(
            endpoint=env[variable] if variable else None,
            bucket=self.bucket,
            region=env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1",
            tenant=self.tenant,
            credentials=None,
            ca=Path(ca) if ca else None,
        )


def location_of(options: argparse.Namespace, *, namespace: str = DEFAULT_NAMESPACE) -> StoreLocation | None:
    """The store that a command's options name, None without `--store`; `namespace` where they name none.

    Raises CommandError or StoreDeniedError.
    """
    chosen = options.namespace or namespace
    if not is_namespace(chosen):
        raise CommandError(f"--namespace: {chosen!r} is no name of a namespace")
    if options.store is None:
        return None
    return StoreLocation.parse(options.store, tenant=options.tenant or f"{LOCAL_CLUSTER}.{chosen}")


def is_namespace(text: str) -> bool:
    """Whether the text can be the name of a namespace."""
    return _NAMESPACE.fullmatch(text) is not None
