"""Fixtures for tests on the real cluster.

Why it exists: a test should say what it needs (`lab`, `namespace`, `s3`) and not how that is made. `make test` brings
the cluster; for one test by hand, `make cluster-up` and `eval "$(make -s env)"`.
"""

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING

import pytest

from lab import cluster
from lab.command import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab
    from lab.install import Installed
    from lab.s3 import S3


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The running lab that PREHEAT_LAB names."""
    name = os.environ.get("PREHEAT_LAB")
    if not name:
        pytest.fail('no cluster: run `make test`, or `make cluster-up` and `eval "$(make -s env)"`', pytrace=False)
    try:
        return cluster.attach(name)
    except LabError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def namespace(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new namespace with both store Secrets; deleted, without waiting, after the test."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = f"{words}-{secrets.token_hex(3)}"
    lab.prepare_namespace(name)
    yield name
    lab.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def s3(lab: Lab) -> Iterator[S3]:
    """The S3 server; running again after the test, whatever the test did to it."""
    yield lab.s3
    lab.s3.start()


@pytest.fixture(scope="session")
def preheat(lab: Lab) -> Installed:
    """Preheat, installed from its own chart with its own image, once for the whole run."""
    return lab.install_preheat()
