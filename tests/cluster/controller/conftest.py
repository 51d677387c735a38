import contextlib
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver import chart
from apiserver.fixtures import running
from apiserver.server import ApiServer
from cluster.controller.controlplane import Process, World, kubeconfig_of, start_controller_manager
from folders import of_folder


@pytest.fixture(scope="module")
def controlplane(request: pytest.FixtureRequest) -> ApiServer:
    """An API server with Preheat's CRDs and accounts and a controller manager; no node."""
    return of_folder(request, _running)


@contextlib.contextmanager
def _running() -> Iterator[ApiServer]:
    with running() as server:
        server.namespace(chart.NAMESPACE)
        kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
        server.apply(*(document for document in chart.render() if document["kind"] in kinds))
        start_controller_manager(server)
        yield server


@pytest.fixture(scope="module")
def kubeconfig(controlplane: ApiServer) -> Path:
    """What lets a process in as the controller's service account: it may do what the chart gives it, and no more."""
    return kubeconfig_of(controlplane, chart.NAMESPACE, "preheat-controller")


@pytest.fixture
def world(controlplane: ApiServer) -> World:
    """A namespace with a Deployment and nothing else."""
    world = World(controlplane, controlplane.namespace(f"test-{secrets.token_hex(4)}"))
    world.deployment("registry/vision:1")
    return world


@pytest.fixture(scope="module")
def controller(controlplane: ApiServer, kubeconfig: Path) -> Iterator[Process]:
    """The controller as a process of its own, not yet started."""
    with socket.socket() as health, socket.socket() as metrics:
        for probe in (health, metrics):
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in (health, metrics)]
    process = Process(controlplane, kubeconfig, *ports)
    yield process
    process.kill()


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest) -> None:
    """Where a test is the controller itself, or none is to be there, the one of the tests before it is gone."""
    if "process" not in request.fixturenames and "controlplane" in request.fixturenames:
        request.getfixturevalue("controller").kill()


@pytest.fixture
def process(controller: Process) -> Iterator[Process]:
    """The controller, running. It is that of the tests before: starting takes longer than most tests, more so with
    every namespace that they left.
    """
    usual = controller.resync_seconds
    if controller.process is None:
        controller.start()
    yield controller
    if controller.resync_seconds != usual:
        controller.kill()
        controller.resync_seconds = usual
