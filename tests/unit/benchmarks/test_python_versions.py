"""What a run on one machine leaves of the rows that another machine made."""

import sys

import pytest

from lab.paths import REPOSITORY


@pytest.fixture
def versions(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    import python_versions

    yield python_versions
    for name in ("python_versions", "torch_versions", "shared"):
        sys.modules.pop(name, None)


SEEN = {"version": "3.14", "commit": "before", "models": {"small_weights": {}}}
MISSING = {"version": "3.14", "commit": "now", "not_run": "there is no Python 3.14 on this machine", "models": {}}


def test_a_version_that_is_not_on_this_machine_keeps_the_row_of_another(versions):
    assert versions.renewed(SEEN, MISSING) == SEEN
    assert versions.renewed(None, MISSING) == MISSING
    assert versions.renewed(MISSING, {**MISSING, "commit": "later"}) == MISSING
    assert versions.renewed(SEEN, {**SEEN, "commit": "now"})["commit"] == "now"
