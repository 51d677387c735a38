"""What a run on one machine leaves of the rows that another machine made."""

import pytest


@pytest.fixture
def versions(benchmark):
    return benchmark("python_versions")


SEEN = {"version": "3.14", "commit": "before", "models": {"small_weights": {}}}
MISSING = {"version": "3.14", "commit": "now", "not_run": "there is no Python 3.14 on this machine", "models": {}}


def test_a_version_that_is_not_on_this_machine_keeps_the_row_of_another(versions):
    assert versions.renewed(SEEN, MISSING) == SEEN
    assert versions.renewed(None, MISSING) == MISSING
    assert versions.renewed(MISSING, {**MISSING, "commit": "later"}) == MISSING
    assert versions.renewed(SEEN, {**SEEN, "commit": "now"})["commit"] == "now"
