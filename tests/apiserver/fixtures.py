"""The API server of a folder's tests, with Preheat's CRDs in it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from apiserver.server import ApiServer, start
from folders import of_folder
from preheat_operator.api.crds import compiled_model_crd, compiled_model_index_crd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = """
apiVersion: preheat.dev/v1alpha1
kind: CompiledModel
metadata: {name: vision, namespace: default}
spec:
  workloadRef: {kind: Deployment, name: vision}
  torch:
    factory: vision.model:load
    modules:
    - name: main
      buckets:
      - name: batch
        dims: [{name: batch, min: 2, max: 32}]
        args: [{tensor: {shape: [batch, 3, 224, 224], dtype: float32}}]
        kwargs: [{name: mask, tensor: {shape: [batch, 16], dtype: int64, low: 0, high: 2}}]
  hardware: [{name: cpu}]
"""


def example() -> dict[str, Any]:
    """A CompiledModel that is right."""
    return yaml.safe_load(EXAMPLE)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def apiserver(request: pytest.FixtureRequest) -> ApiServer:
    """A real API server that knows Preheat's CRDs, for the tests of one folder."""
    return of_folder(request, running)


@contextlib.contextmanager
def running() -> Iterator[ApiServer]:
    """A real API server that knows Preheat's CRDs."""
    folder = Path(tempfile.mkdtemp(prefix="preheat-apiserver-"))
    server = start(folder)
    try:
        server.apply(compiled_model_crd(), compiled_model_index_crd())
        for plural in ("compiledmodels", "compiledmodelindices"):
            path = f"/apis/preheat.dev/v1alpha1/{plural}"
            eventually(lambda path=path: server.request("GET", path).ok, what="the CRDs are served")
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def eventually(condition: Callable[[], bool], *, what: str, seconds: float = 60) -> None:
    """Wait until a condition holds: admission learns of policies and parameters from watches."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds} s still not true: {what}")
        time.sleep(0.1)
