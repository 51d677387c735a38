"""Figures are written for people, also where they round up to one digit more."""

import pytest

from preheat_operator.report import plots
from preheat_operator.report.units import glance


@pytest.mark.parametrize(
    ("value", "words"),
    [(1.4, "1.40"), (350.0, "350"), (2.1e-6, "2.10e-06"), (999.4, "999"), (999.5, "1000"), (1234.4, "1234"), (-999.6, "-1000"), (2.5e9, "2.50e+09")],
)  # fmt: skip
def test_a_figure_at_a_glance(value: float, words: str) -> None:
    assert glance(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(1.4, "1.4"), (999.4, "999"), (999.5, "1\u202f000"), (-999.6, "-1\u202f000"), (1234567.0, "1\u202f234\u202f567")]
)  # fmt: skip
def test_a_figure_in_a_plot(value: float, words: str) -> None:
    assert plots._short(value) == words
