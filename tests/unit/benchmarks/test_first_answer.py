"""What a run says of its figures: the target is of all models, and what is no fault of a start is told apart."""

import json

import pytest

from lab.paths import REPOSITORY

PLACE = REPOSITORY / "docs" / "measured" / "first-answer.json"


@pytest.fixture
def first_answer(benchmark):
    return benchmark("first_answer")


def found(*, total, call, low):
    """Of a model whose eager start takes 1 s and whose eager call takes 50 ms."""
    return {
        "eager": {"total_seconds": 1.0, "p50_ms": 50.0},
        "hot": {"total_seconds": total, "p50_ms": call},
        "hot_over_eager": {"p50_ms": {"low": low}},
    }


def test_slower_code_is_told_apart_from_a_slower_start(first_answer):
    words = "each call of what torch compiled takes 40 ms longer than eager's, the first one, too; until the first answer it is 43 ms in all"
    assert first_answer.slower_code(found(total=1.043, call=90.0, low=1.7)) == words
    # Where calls may be as fast as eager's, all of it is the start's.
    assert first_answer.slower_code(found(total=1.043, call=90.0, low=1.0)) == ""


def test_the_figures_that_are_kept_make_the_page_that_is_kept(first_answer):
    assert first_answer.report(json.loads(PLACE.read_text())) == PLACE.with_suffix(".md").read_text()
