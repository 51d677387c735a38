"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import kit
import pytest

from e2e.hardships import Hardships, make_ready
from e2e.world import CALM, World

HERE = Path(__file__).parent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab import Lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests longer than others: the first one's set-up builds and pulls what all of them need."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(2400))


@pytest.fixture(scope="session")
def world(lab: Lab) -> World:
    """A lab with Preheat installed from the project's own chart."""
    return World(lab=lab, installed=lab.install_preheat())


@pytest.fixture(scope="session")
def pitches(world: World, request: pytest.FixtureRequest) -> Iterator[dict[str, kit.Kube]]:
    """Two namespaces in which the example pitch is compiled, to be kept and to be rejected; not waited for.

    Compiling takes most of the time of these tests, so what is needed later begins with the first. Empty when no test
    that will run needs them.
    """
    with contextlib.ExitStack() as stack:
        found: dict[str, kit.Kube] = {}
        if any("pitches" in getattr(item, "fixturenames", ()) for item in request.session.items):
            for name, least in (("kept", "0"), ("rejected", "1000")):
                kube = found[name] = stack.enter_context(world.namespace(f"pitch-{name}"))
                kube.apply(kit.deployment("pitch", world.image("pitch"), env=CALM, replicas=0))
                kube.apply(kit.compiled_model("pitch", keepIf={"minSpeedup": least}))
        yield found


@pytest.fixture(scope="session")
def through_hardships(world: World, pitches: dict[str, kit.Kube]) -> Iterator[Hardships]:
    """The model tiny, made ready although a forged Job was in the way and the controller was killed."""
    with world.namespace("ready") as kube:
        yield make_ready(world, kube)


@pytest.fixture(scope="session")
def ready(through_hardships: Hardships) -> kit.Kube:
    """A namespace in which the model tiny is ready for its first image; its Deployment has no pods.

    Tests that need no compile of their own share this one.
    """
    return through_hardships.kube


@pytest.fixture
def kube(world: World, request: pytest.FixtureRequest) -> Iterator[kit.Kube]:
    """A fresh namespace of the test's own, with the store's credentials."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:40].strip("-")
    with world.namespace(name) as found:
        yield found
