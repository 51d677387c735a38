"""Asking a cluster with the caller's own rights: which namespace, and what it means when no answer comes."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, TypeVar

import aiohttp
from kubernetes.aio.config import ConfigException, list_kube_config_contexts

from preheat_operator.cli import exits
from preheat_operator.cli.errors import CommandError
from preheat_operator.cluster.client import ApiError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def ask(question: Coroutine[object, object, T]) -> T:
    """The answer to a question that is put to the cluster. Raises CommandError where there is none."""
    try:
        return asyncio.run(question)
    except ConfigException as error:
        raise _no_cluster(error) from None
    except ApiError as error:
        code = exits.REFUSED if error.status in (401, 403) else exits.UNREACHABLE
        raise CommandError(f"the API server refuses: {error.message}", code=code) from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise CommandError(f"the API server cannot be reached: {error}", code=exits.UNREACHABLE) from None


def namespace(named: str | None) -> str:
    """The namespace that was named, else the one that kubectl would take. Raises CommandError."""
    if named:
        return named
    if os.environ.get("KUBERNETES_SERVICE_HOST") and not os.environ.get("KUBECONFIG"):
        return "default"
    try:
        _, active = list_kube_config_contexts(config_file=os.environ.get("KUBECONFIG"))
    except ConfigException as error:
        raise _no_cluster(error) from None
    return str((active.get("context") or {}).get("namespace") or "default")


def _no_cluster(error: ConfigException) -> CommandError:
    return CommandError(f"no cluster is known: {error}. Set KUBECONFIG", code=exits.USAGE)
