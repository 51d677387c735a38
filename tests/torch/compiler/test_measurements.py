"""What is measured beside the speed, on real modules, without a compile."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from preheat_compiler.accuracy import against_reference, distance
from preheat_compiler.bucket import Bucket, Dim, TensorSpec
from preheat_compiler.inputs import pick_sizes
from preheat_compiler.report import Report
from preheat_compiler.submodules import where_time_goes
from preheat_runtime.compare import difference

pytestmark = pytest.mark.torch

N = Dim(name="n", minimum=2, maximum=64, multiple_of=1)


def bucket(*shape: int | str, dtype: str = "float32") -> Bucket:
    spec = TensorSpec(shape=shape, dtype=dtype, low=None, high=None)
    return Bucket(name="b", dims=(N,) if "n" in shape else (), args=(spec,), kwargs=())


def noted(report: Report, section: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = report.sections[section]
    return found


class Blocks(nn.Module):
    """Parts that cost nothing, parts that cost a thousand times that on any machine, and one called past the hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Sequential(*(nn.Identity() for _ in range(50)))
        self.large = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(12)))
        self.past = nn.Linear(1024, 1024)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.past.forward(self.large(self.small(x)))


def test_time_is_told_by_submodule_and_what_is_compiled_honestly() -> None:
    module = Blocks().eval()
    report = Report(target="a/b")
    where = bucket("n", 1024)
    with torch.no_grad():
        where_time_goes(
            lambda x: torch.relu(x),
            module,
            where,
            pick_sizes(where)[-1],
            seed=1,
            device="cpu",
            report=report,
            seconds=2.0,
        )
    eager, compiled = noted(report, "submodules")
    entries = eager["entries"]
    assert isinstance(entries, list)
    assert len(entries) == 20
    # Which of equal ones is first is chance; the one called past the hooks is its caller's time.
    assert {entry["name"] for entry in entries[:13]} == {"(the module itself)", *(f"large.{i}" for i in range(12))}
    assert {entry["type"] for entry in entries[:13]} == {"Linear", "Blocks"}
    shares = [float(entry["cumulative"]) for entry in entries]
    assert shares == sorted(shares)
    assert 0 < shares[-1] <= 1
    operators = compiled["entries"]
    assert isinstance(operators, list)
    assert "aten::relu" in {entry["name"] for entry in operators}
    assert "no submodules" in str(compiled["why"])
    assert float(str(compiled["generatedMs"])) >= 0


def test_watching_leaves_no_hook_behind() -> None:
    from torch.nn.modules import module as hooks

    module = Blocks().eval()
    where = bucket(4, 1024)
    for run in (module, nn.Linear(3, 3)):  # the second refuses the input
        where_time_goes(
            run, run, where, pick_sizes(where)[0], seed=1, device="cpu", report=Report(target="a/b"), seconds=0.1
        )
    assert not hooks._global_forward_hooks
    assert not hooks._global_forward_pre_hooks
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in module.modules())


def test_both_are_held_against_a_more_precise_run_at_all_sizes() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 8)).eval()
    coarse = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 8)).eval()
    coarse.load_state_dict({name: value.bfloat16().float() for name, value in module.state_dict().items()})
    report = Report(target="a/b")
    where = bucket("n", 256)
    with torch.no_grad():
        against_reference(coarse, module, where, pick_sizes(where), seeds=(1, 2), device="cpu", report=report)
    records = noted(report, "reference")
    assert {record["inputs"] for record in records} == {
        f"{name}, seed {seed}" for name in ("typical", "low", "high") for seed in (1, 2)
    }
    assert {record["dtype"] for record in records} == {"float64"}
    eager = [float(str(record["maximum"])) for record in records if record["kind"] == "eager"]
    compiled = [float(str(record["maximum"])) for record in records if record["kind"] == "compiled"]
    assert 0 < max(eager) < 1e-5
    assert min(compiled) > 1e-4
    assert next(module.parameters()).dtype == torch.float32


def test_the_reference_of_half_types_is_float32() -> None:
    module = nn.Linear(64, 8).bfloat16().eval()
    report = Report(target="a/b")
    where = bucket(4, 64, dtype="bfloat16")
    with torch.no_grad():
        against_reference(module, module, where, pick_sizes(where), seeds=(1,), device="cpu", report=report)
    assert {record["dtype"] for record in noted(report, "reference")} == {"float32"}


class Stubborn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.float())


class WithAHandle(nn.Linear):
    ends = 0

    def __del__(self) -> None:
        WithAHandle.ends += 1


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (Stubborn(), "RuntimeError"),
        (nn.Linear(64, 8).double(), "float64 itself"),
        (WithAHandle(64, 8), "a copy of the module would run WithAHandle.__del__ once more"),
    ],
)
def test_where_there_is_no_reference_it_says_why(module: nn.Module, why: str) -> None:
    report = Report(target="a/b")
    where = bucket(4, 64)
    with torch.no_grad():
        against_reference(module, module, where, pick_sizes(where), seeds=(1,), device="cpu", report=report)
    (record,) = noted(report, "reference")
    assert why in str(record["why"])
    assert WithAHandle.ends == 0


def test_a_reference_that_does_not_fit_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preheat_compiler.accuracy.free_memory", lambda _: 1000.0)
    report = Report(target="a/b")
    where = bucket(4, 64)
    module = nn.Linear(64, 8)
    against_reference(module, module, where, pick_sizes(where), seeds=(1,), device="cpu", report=report)
    assert "GiB are free" in str(noted(report, "reference")[0]["why"])


def test_distance_leaves_out_what_is_not_finite() -> None:
    truth = torch.tensor([2.0, float("nan"), 4.0], dtype=torch.float64)
    assert distance([torch.tensor([2.0, 7.0, 4.4])], [truth]) == pytest.approx((0.1, 0.05), rel=1e-6)
    assert distance(torch.tensor([1]), torch.tensor([2])) == (0.0, 0.0)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("answer", "eager", "odd", "apart"),
    [
        ([1.0, NAN, INF, -INF], [1.0, NAN, INF, -INF], 3, 0),
        ([1.0, 2.0, INF], [1.0, NAN, INF], 2, 1),
        ([NAN, 2.0, INF], [1.0, 2.0, -INF], 1, 2),
        ([1.0, 2.0], [1.0, 2.0], 0, 0),
    ],
)
def test_places_of_nan_and_infinity_must_be_alike(
    answer: list[float], eager: list[float], odd: int, apart: int
) -> None:
    report = Report(target="a/b")
    seen = difference(torch.tensor(answer), torch.tensor(eager))
    assert (seen.odd, seen.odd_apart) == (odd, apart)
    assert (seen.maximum == INF) == (apart > 0)
    assert (f"at {apart} places" in seen.why) == (apart > 0)
    both = seen.worst(difference(torch.tensor([NAN]), torch.tensor([NAN])))
    assert (both.odd, both.odd_apart) == (odd + 1, apart)
    report.difference("low", seen)
    assert noted(report, "errors")[0]["nonFiniteApart"] == str(apart)
