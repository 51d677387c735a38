import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver import chart
from apiserver.fixtures import eventually
from apiserver.server import ApiServer, start
from cluster.controller.controlplane import Process, World, kubeconfig_of, start_controller_manager
from preheat_operator.api.crds import compiled_model_crd, compiled_model_index_crd


@pytest.fixture(scope="session")
def controlplane() -> Iterator[ApiServer]:
    """An API server with Preheat's CRDs and accounts and a controller manager; no node."""
    folder = Path(tempfile.mkdtemp(prefix="preheat-controlplane-"))
    server = start(folder)
    try:
        server.apply(compiled_model_crd(), compiled_model_index_crd())
        for plural in ("compiledmodels", "compiledmodelindices"):
            path = f"/apis/preheat.dev/v1alpha1/{plural}"
            eventually(lambda path=path: server.request("GET", path).ok, what="the CRDs are served")
        server.namespace(chart.NAMESPACE)
        kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
        server.apply(*(document for document in chart.render() if document["kind"] in kinds))
        start_controller_manager(server)
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def kubeconfig(controlplane: ApiServer) -> Path:
    """What lets a process in as the controller's service account: it may do what the chart gives it, and no more."""
    return kubeconfig_of(controlplane, chart.NAMESPACE, "preheat-controller")


@pytest.fixture
def world(controlplane: ApiServer) -> World:
    """A namespace with a Deployment and nothing else."""
    world = World(controlplane, controlplane.namespace(f"test-{secrets.token_hex(4)}"))
    world.deployment("registry/vision:1")
    return world


@pytest.fixture
def process(controlplane: ApiServer, kubeconfig: Path) -> Iterator[Process]:
    """The controller, running in a process of its own."""
    with socket.socket() as health, socket.socket() as metrics:
        for probe in (health, metrics):
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in (health, metrics)]
    process = Process(controlplane, kubeconfig, *ports)
    process.start()
    yield process
    process.kill()
