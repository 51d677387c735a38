"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from e2e.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    import kit

    from lab import Lab


@pytest.fixture(scope="session")
def world(lab: Lab) -> World:
    """A lab with Preheat installed from the project's own chart."""
    return World(lab=lab, installed=lab.install_preheat())


@pytest.fixture(scope="session")
def ready(world: World) -> Iterator[kit.Kube]:
    """A namespace in which the model tiny is ready for its first image; its Deployment has no pods.

    Compiling takes most of the time of these tests, so those that need no compile of their own share this one.
    """
    with world.namespace("ready") as found:
        world.ready_tiny(found)
        yield found


@pytest.fixture
def kube(world: World, request: pytest.FixtureRequest) -> Iterator[kit.Kube]:
    """A fresh namespace of the test's own, with the store's credentials."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:40].strip("-")
    with world.namespace(name) as found:
        yield found
