"""What every test may use: the fixtures of the real cluster.

They start nothing by themselves; a test that asks for one, and is run without a cluster, fails and says what to run.

`make test` runs in three workers: the end-to-end tests, one after the other, and beside them all the rest. The chain of the
former is the longest, so the rest gets out of its way.
"""

import gc
import os
from collections.abc import Generator
from functools import cache
from typing import Any

import pytest
from hypothesis import settings

import kept

pytest_plugins = ("lab.fixtures",)

# Threads of OpenMP wait for each other by spinning, as if each had a processor to itself. The workers share two, and a
# small call that takes 1 ms alone took 12 to 34; with threads that sleep while they wait it took 1.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# What is imported and collected stays, so nothing is looked for in it: that took a third of collecting, in each worker.
gc.disable()

# No deadline: how long an example takes says something about the machine only. Hypothesis prints what reproduces a failure.
settings.register_profile("gate", deadline=None, print_blob=True, max_examples=50)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("gate")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest."""
    last = len(items)
    order = {item: i for i, item in enumerate(items)}
    items.sort(key=lambda item: order[item] - (last if folder(item.nodeid) == "tests/e2e" else 0))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """From here on garbage is collected, among what tests make; also in the process that only hands them out."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep each folder's tests in one worker, since they share what they start.

    Not by xdist's groups: xdist 3.8 marks them in a way that pytest 9.2 does not see, and deals the tests out singly.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFolder(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return folder(nodeid)

    return ByFolder(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave the processors to the end-to-end tests' pods, where those run beside this worker."""
    if "PYTEST_XDIST_WORKER" in os.environ and folder(item.nodeid) != "tests/e2e":
        _step_back()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what was compiled for this worker's tests, when all of them passed."""
    kept.settle(passed=not session.testsfailed)


@cache
def _step_back() -> None:
    os.nice(10)


def folder(nodeid: str) -> str:
    """The folder of a test, from its node id."""
    return nodeid.partition("::")[0].rpartition("/")[0]
