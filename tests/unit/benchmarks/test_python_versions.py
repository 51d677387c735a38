"""What a run on one machine leaves of the rows that another machine made, and that all rows can be told."""

import pytest

from lab.paths import REPOSITORY


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


def test_a_row_is_told_in_a_word(versions):
    works = {"small_weights": {"faults": []}}
    assert versions.verdict({**SEEN, "models": works}) == "yes"
    assert versions.verdict({**SEEN, "models": {"small_weights": {"faults": ["it crashed"]}}}) == "NO"
    assert versions.verdict(MISSING) == "not run"
    assert versions.verdict({"version": "3.9", "unsupported": "no wheels", "models": {}}) == "not supported"


def test_the_rows_that_are_kept_make_the_table_that_is_kept(versions):
    """So what is read of a row is what a run writes into it."""
    place = REPOSITORY / "docs" / "measured" / "python-versions.json"
    assert versions.table(list(versions.earlier(place, "version").values())) == place.with_suffix(".md").read_text()
