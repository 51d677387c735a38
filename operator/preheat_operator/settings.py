"""What the chart tells the controller and the server, read from their environment once.

Every variable is named in the error when it is missing or wrong, with the chart value behind it: a controller that
starts with half its settings would make Jobs that cannot publish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.plan.installation import Installation

if TYPE_CHECKING:
    from collections.abc import Mapping


class SettingsError(ValueError):
    """A variable is missing or wrong; the message names it and the chart value to set."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the controller process."""

    installation: Installation
    """What goes into every compile Job."""

    resync_seconds: float = 300.0
    """How often everything is looked at without being asked: the longest a missed event can matter."""

    workers: int = 8
    """How many keys are worked on at once; bounds the load on the API server after a start."""

    health_port: int = 8080
    """Port of /healthz, which fails when nothing could be listed for three resyncs."""

    metrics_port: int = 8081
    """Port of /metrics."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the environment. Raises SettingsError."""
        installation = Installation(
            image=_required(env, "PREHEAT_IMAGE", "image"),
            image_pull_policy=env.get("PREHEAT_IMAGE_PULL_POLICY") or "IfNotPresent",
            image_pull_secrets=tuple(s for s in env.get("PREHEAT_IMAGE_PULL_SECRETS", "").split(",") if s),
            cluster_id=_required(env, "PREHEAT_CLUSTER_ID", "clusterId"),
            store_endpoint=env.get(names.ENV_STORE_ENDPOINT, ""),
            store_bucket=_required(env, names.ENV_STORE_BUCKET, "store.bucket"),
            store_region=env.get(names.ENV_STORE_REGION, ""),
            store_ca_config_map=env.get("PREHEAT_STORE_CA_CONFIG_MAP", ""),
            publish_secret=env.get("PREHEAT_PUBLISH_SECRET") or names.SECRET_PUBLISH,
            priority_class=env.get("PREHEAT_PRIORITY_CLASS", ""),
            run_as_user=_run_as_user(env),
            gating=env.get("PREHEAT_GATING", "true") != "false",
        )
        return cls(
            installation=installation,
            resync_seconds=_number(env, "PREHEAT_RESYNC_SECONDS", default=300, least=1, most=86400),
            workers=_number(env, "PREHEAT_WORKERS", default=8, least=1, most=256),
            health_port=_number(env, "PREHEAT_HEALTH_PORT", default=8080, least=1, most=65535),
            metrics_port=_number(env, "PREHEAT_METRICS_PORT", default=8081, least=1, most=65535),
        )


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of the server process."""

    reports_port: int = 8443
    """Port on which pods report."""

    metrics_port: int = 8080
    """Port of /metrics, /healthz and /readyz."""

    tls_directory: str = ""
    """Folder with tls.crt and tls.key; empty: reports are taken without TLS, as behind a mesh that adds it."""

    drain_seconds: float = 5.0
    """How long requests are still taken after the signal to stop: until nobody is sent here any more."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> ServerSettings:
        """Read the environment. Raises SettingsError."""
        return cls(
            reports_port=_number(env, "PREHEAT_REPORTS_PORT", default=8443, least=1, most=65535),
            metrics_port=_number(env, "PREHEAT_METRICS_PORT", default=8080, least=1, most=65535),
            tls_directory=env.get("PREHEAT_TLS_DIRECTORY", "").strip(),
            drain_seconds=_number(env, "PREHEAT_DRAIN_SECONDS", default=5, least=0, most=60),
        )


def _required(env: Mapping[str, str], name: str, value: str) -> str:
    found = env.get(name, "").strip()
    if not found:
        raise SettingsError(f"{name} is not set: set the chart's value {value}")
    return found


def _run_as_user(env: Mapping[str, str]) -> int | None:
    if env.get("PREHEAT_RUN_AS_USER") == "":
        return None
    return _number(env, "PREHEAT_RUN_AS_USER", default=65532, least=1, most=2**31 - 1)


def _number(env: Mapping[str, str], name: str, *, default: int, least: int, most: int) -> int:
    text = env.get(name, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise SettingsError(f"{name} is {text!r}: it must be a whole number from {least} to {most}")
    return int(text)
