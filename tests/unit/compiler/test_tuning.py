"""Tuning that ends in time: what may be tried when, and that Inductor is as before afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from preheat_compiler.report import Report
from preheat_compiler.tuning import Tuning, tuned_within


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def is_extern(choice: str) -> bool:
    return choice.startswith("aten")


@pytest.mark.parametrize(
    ("choices", "late"),
    [
        (["a", "aten.mm", "b", "aten.bias"], ["aten.mm"]),
        (["a", "b"], ["a"]),
        (["a"], ["a"]),
        ([], []),
    ],
)
def test_late_operations_get_torch_s_own_kernel_or_the_first(choices: list[str], late: list[str]) -> None:
    clock = Clock()
    tuning = Tuning(10, is_extern, clock)
    assert tuning.choices(["x", "y"]) == ["x", "y"]
    clock.now += 9.9
    assert tuning.choices(choices) == choices
    clock.now += 0.1
    assert tuning.choices(choices) == late
    assert (tuning.tuned, tuning.untuned) == ((2, 1) if len(choices) > 1 else (1, 0))
    assert tuning.seconds == pytest.approx(10)


def test_the_time_begins_with_the_first_operation_that_has_a_choice() -> None:
    clock = Clock()
    tuning = Tuning(10, is_extern, clock)
    tuning.choices(["only"])
    clock.now += 60
    assert tuning.choices(["a", "b"]) == ["a", "b"]


@pytest.mark.torch
def test_inductor_asks_only_inside() -> None:
    from torch._inductor.select_algorithm import get_algorithm_selector_cache

    places: list[Any] = get_algorithm_selector_cache().preprocessing_fns
    before = list(places)

    def fail_inside() -> None:
        with tuned_within(5, Report(target="a/b")):
            assert len(places) == len(before) + 1
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail_inside()
    assert places == before
