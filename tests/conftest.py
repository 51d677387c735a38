"""What every test may use: the fixtures of the real cluster.

They start nothing by themselves; a test that asks for one, and is run without a cluster, fails and says what to run.

`make test` runs in two workers: the end-to-end tests, which mostly wait for compile Jobs that keep one core busy, and
beside them all the rest.
"""

from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ("lab.fixtures",)

# No deadline: how long an example takes says something about the machine only. Hypothesis prints what reproduces a failure.
settings.register_profile("gate", deadline=None, print_blob=True)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("gate")

TESTS = Path(__file__).resolve().parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each folder's tests in one worker, since they share what they start, and begin with what takes longest."""
    folders = {item: item.path.parent.relative_to(TESTS) for item in items}
    for item, folder in folders.items():
        item.add_marker(pytest.mark.xdist_group(str(folder)))
    last = len(items)
    order = {item: i for i, item in enumerate(items)}
    items.sort(key=lambda item: order[item] - (last if folders[item].parts[:1] == ("e2e",) else 0))
