from __future__ import annotations

import math
from decimal import Decimal

import pytest

from preheat_compiler.decide import allowed_error, decide, undecided
from preheat_compiler.intervals import Interval
from preheat_compiler.request import KeepIf


def gates(minimum: str = "1.05", error: str | None = None) -> KeepIf:
    return KeepIf(min_speedup=Decimal(minimum), max_error=None if error is None else Decimal(error))


def speed(estimate: float, low: float | None = None, high: float | None = None) -> Interval:
    return Interval(estimate=estimate, low=low or estimate - 0.01, high=high or estimate + 0.01, samples=15)


@pytest.mark.parametrize(
    ("minimum", "estimate", "verdict", "reason"),
    [
        ("1.05", 1.75, "Kept", "Faster"),
        ("1.05", 1.05, "Kept", "Faster"),
        ("1.05", 1.04, "Rejected", "SpeedupBelowMinimum"),
        ("1.05", 0.46, "Rejected", "SpeedupBelowMinimum"),
        ("0", 0.46, "Kept", "GatesMet"),
        ("0", 3.0, "Kept", "GatesMet"),
        ("0.9", 0.95, "Kept", "GatesMet"),
        ("1000", 1.75, "Rejected", "SpeedupBelowMinimum"),
    ],
)
def test_speed(minimum: str, estimate: float, verdict: str, reason: str) -> None:
    decision = decide(gates(minimum), error=0.0, allowed=1e-3, speedup=speed(estimate))
    assert (decision.verdict, decision.reason) == (verdict, reason)
    assert f"{estimate:.2f} times" in decision.message
    assert f"minSpeedup is {minimum}" in decision.message


def test_a_wrong_answer_is_rejected_whatever_the_speed() -> None:
    decision = decide(gates("0"), error=2e-3, allowed=1e-3, speedup=None)
    assert (decision.verdict, decision.reason) == ("Rejected", "ErrorAboveMaximum")
    assert "2.0e-03" in decision.message
    assert "0.001" in decision.message


@pytest.mark.parametrize("error", [math.inf, math.nan])
def test_nan_is_never_right(error: float) -> None:
    assert decide(gates("0", "1000"), error=error, allowed=1000.0, speedup=speed(2)).reason == "ErrorAboveMaximum"


def test_an_error_of_just_the_allowed_size_is_kept() -> None:
    assert decide(gates("0"), error=1e-3, allowed=1e-3, speedup=speed(1.0)).verdict == "Kept"


def test_noise_is_measured_longer_then_the_estimate_decides_and_says_so() -> None:
    noisy = speed(1.06, 0.9, 1.2)
    assert undecided(gates("1.05"), noisy)
    kept = decide(gates("1.05"), error=0, allowed=1e-3, speedup=noisy)
    assert kept.verdict == "Kept"
    assert "inside the interval" in kept.message
    rejected = decide(gates("1.05"), error=0, allowed=1e-3, speedup=speed(1.04, 0.9, 1.2))
    assert rejected.verdict == "Rejected"
    assert "inside the interval" in rejected.message
    assert not undecided(gates("1.05"), speed(1.75, 1.6, 1.9))
    assert not undecided(gates("1.05"), speed(0.5, 0.4, 0.6))
    assert not undecided(gates("0"), noisy)


def test_a_right_answer_needs_a_measured_speed() -> None:
    with pytest.raises(ValueError, match="not measured"):
        decide(gates("0"), error=0.0, allowed=1e-3, speedup=None)


def test_the_allowed_error_is_that_of_the_least_precise_dtype_unless_given() -> None:
    assert allowed_error(gates(), ["float32", "int64"]) == Decimal("1e-3")
    assert allowed_error(gates(), ["float32", "bfloat16"]) == Decimal("5e-2")
    assert allowed_error(gates(), ["int64"]) == 0
    assert allowed_error(gates(error="1e-5"), ["bfloat16"]) == Decimal("1e-5")
