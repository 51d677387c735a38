from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest

from preheat_compiler.decide import allowed_error, decide, nothing_compiled, undecided
from preheat_compiler.graphs import Break, Graphs
from preheat_compiler.intervals import Interval
from preheat_compiler.memory import MemoryGrowth
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
        ("1.05", 1.04, "Kept", "Faster"),
        ("1.05", 1.02, "Rejected", "SpeedupBelowMinimum"),
        ("1.05", 0.46, "Rejected", "SpeedupBelowMinimum"),
        ("0", 0.46, "Kept", "GatesMet"),
        ("0", 3.0, "Kept", "GatesMet"),
        ("0.9", 0.95, "Kept", "GatesMet"),
        ("0.9", 0.895, "Kept", "GatesMet"),
        ("1000", 1.75, "Rejected", "SpeedupBelowMinimum"),
        ("1", 1.005, "Kept", "NoDifference"),
        ("1", 0.995, "Kept", "NoDifference"),
        ("1", 0.98, "Rejected", "SpeedupBelowMinimum"),
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


def test_noise_is_measured_longer() -> None:
    assert undecided(gates("1.05"), speed(1.06, 0.9, 1.2))
    assert undecided(gates("1.05"), speed(1.04, 0.99, 1.08))
    assert not undecided(gates("1.05"), speed(1.75, 1.6, 1.9))
    assert not undecided(gates("1.05"), speed(0.5, 0.4, 0.6))
    assert not undecided(gates("0"), speed(1.06, 0.9, 1.2))


@pytest.mark.parametrize("estimate", [1.0, 1.04, 1.06])
def test_noise_does_not_reject(estimate: float) -> None:
    kept = decide(gates("1.05"), error=0, allowed=1e-3, speedup=speed(estimate, 0.99, 1.08))
    assert (kept.verdict, kept.reason) == ("Kept", "NoDifference")
    assert "0.99 to 1.08" in kept.message
    assert "no difference from eager was found" in kept.message


def test_what_seems_slower_than_eager_runs_eager() -> None:
    rejected = decide(gates("1.05"), error=0, allowed=1e-3, speedup=speed(0.97, 0.88, 1.07))
    assert (rejected.verdict, rejected.reason) == ("Rejected", "NoDifference")
    assert "cannot be slower" in rejected.message


def test_within_noise_of_the_minimum_but_surely_faster_than_eager_is_faster() -> None:
    kept = decide(gates("1.05"), error=0, allowed=1e-3, speedup=speed(1.045, 1.02, 1.07))
    assert (kept.verdict, kept.reason) == ("Kept", "Faster")
    assert "inside the interval" in kept.message


MEMORY = MemoryGrowth(eager=400 * 2**20, compiled=500 * 2**20, of="resident during calls")


def test_memory_is_a_gate_only_where_it_is_asked_for() -> None:
    fast = {"error": 0.0, "allowed": 1e-3, "speedup": speed(2), "memory": MEMORY}
    assert decide(gates(), **fast).reason == "Faster"
    met = decide(replace(gates(), max_memory_growth=Decimal("1.25")), **fast)
    assert (met.verdict, met.reason) == ("Kept", "Faster")
    missed = decide(replace(gates(), max_memory_growth=Decimal("1.2")), **fast)
    assert (missed.verdict, missed.reason) == ("Rejected", "MemoryAboveMaximum")
    for figure in ("1.25 times", "500 MiB", "400 MiB", "keepIf.maxMemoryGrowth is 1.2"):
        assert figure in missed.message


def test_what_is_slow_is_rejected_for_that_whatever_its_memory() -> None:
    keep_if = replace(gates(), max_memory_growth=Decimal("0.1"))
    decision = decide(keep_if, error=0.0, allowed=1e-3, speedup=speed(0.5), memory=MEMORY)
    assert decision.reason == "SpeedupBelowMinimum"
    # Before it was measured, that gate is not looked at.
    assert decide(keep_if, error=0.0, allowed=1e-3, speedup=speed(2)).verdict == "Kept"


CUT = Break(reason="generic_jump", where="model.py:7", remedy="use torch.where")
TWICE = Graphs(graphs=3, breaks=(CUT, replace(CUT, where="model.py:9")), recompiles=2)


@pytest.mark.parametrize(
    ("field", "reason", "figures"),
    [
        ("max_graph_breaks", "GraphBreaksAboveMaximum", ("breaks 2 times", "maxGraphBreaks", "model.py:7: generic_jump and 1 more")),
        ("max_recompiles", "RecompilesAboveMaximum", ("compiled 2 times again", "maxRecompiles", "a bucket of its own")),
    ],
)  # fmt: skip
def test_cuts_and_recompiles_are_gates_only_where_they_are_asked_for(
    field: str, reason: str, figures: tuple[str, ...]
) -> None:
    fast = {"error": 0.0, "allowed": 1e-3, "speedup": speed(2), "graphs": TWICE}
    assert decide(gates(), **fast).reason == "Faster"
    assert decide(replace(gates(), **{field: 2}), **fast).reason == "Faster"
    for most in (0, 1):
        missed = decide(replace(gates(), **{field: most}), **fast)
        assert (missed.verdict, missed.reason) == ("Rejected", reason)
        assert f"({most})" in missed.message
        for figure in figures:
            assert figure in missed.message


def test_a_package_passes_every_gate_on_graphs() -> None:
    strict = replace(gates(), max_graph_breaks=0, max_recompiles=0)
    assert decide(strict, error=0.0, allowed=1e-3, speedup=speed(2)).reason == "Faster"


def test_what_is_cut_is_rejected_for_that_before_its_speed_is_looked_at() -> None:
    slow = decide(replace(gates(), max_recompiles=1), error=0.0, allowed=1e-3, speedup=speed(0.5), graphs=TWICE)
    assert slow.reason == "RecompilesAboveMaximum"
    wrong = decide(replace(gates(), max_recompiles=1), error=1.0, allowed=1e-3, speedup=None, graphs=TWICE)
    assert wrong.reason == "ErrorAboveMaximum"


def test_how_a_module_is_cut_is_told_in_a_sentence() -> None:
    assert TWICE.cut() == "It is compiled in 3 graphs: model.py:7: generic_jump and 1 more (use torch.where)."
    nowhere = Graphs(graphs=0, breaks=(replace(CUT, where=""),))
    assert nowhere.cut() == "torch.compile compiles nothing of it: generic_jump (use torch.where)."
    assert Graphs(graphs=0).cut() == "torch.compile compiles nothing of it."
    assert Graphs().cut() == ""
    assert Graphs.from_json(TWICE.to_json()) == TWICE


def test_what_runs_eager_anyway_is_not_kept_whatever_was_measured() -> None:
    kept = decide(gates("0"), error=0.0, allowed=1e-3, speedup=speed(1.2))
    decision = nothing_compiled(kept)
    assert (decision.verdict, decision.reason) == ("Rejected", "NoDifference")
    assert kept.message in decision.message


def test_a_right_answer_needs_a_measured_speed() -> None:
    with pytest.raises(ValueError, match="not measured"):
        decide(gates("0"), error=0.0, allowed=1e-3, speedup=None)


def test_the_allowed_error_is_that_of_the_least_precise_dtype_unless_given() -> None:
    assert allowed_error(gates(), ["float32", "int64"]) == Decimal("1e-3")
    assert allowed_error(gates(), ["float32", "bfloat16"]) == Decimal("5e-2")
    assert allowed_error(gates(), ["int64"]) == 0
    assert allowed_error(gates(error="1e-5"), ["bfloat16"]) == Decimal("1e-5")
