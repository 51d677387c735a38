"""That no weight is baked in: what an artifact may have of the old weights is nothing, and rounding is no weight."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from preheat_compiler import package_proof, weights_spared
from preheat_compiler.bucket import Bucket, TensorSpec
from preheat_compiler.inputs import Sizes
from preheat_compiler.report import Report
from preheat_compiler.verdict import TargetError
from preheat_compiler.weights_proof import no_weight_is_baked_in
from preheat_runtime.compare import default_max_error

if TYPE_CHECKING:
    from collections.abc import Callable

HALVES = [torch.bfloat16, torch.float16]
DTYPES = [torch.float32, *HALVES]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.into, self.norm, self.out = nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.out(self.norm(nn.functional.gelu(self.into(x))))
        return y


class WeightOnly(nn.Module):
    """8-bit weights and a scale for each row; what is looked up is an integer too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.register_buffer("weight", torch.randint(-127, 128, (16, 64), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(16, 1) / 127)
        self.register_buffer("places", torch.arange(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale.to(x.dtype))[:, self.places]


def exact(module: nn.Module) -> Callable[..., Any]:
    """As compiled code is: right, but for rounding in other places than eager."""

    def run(x: torch.Tensor) -> torch.Tensor:
        wide = torch.float64 if x.dtype == torch.float32 else torch.float32
        answer: torch.Tensor = copy.deepcopy(module).to(wide)(x.to(wide))
        return answer.to(x.dtype)

    return run


def baked(*names: str) -> Callable[[nn.Module], Callable[..., Any]]:
    """Loads what has the tensors of these names as they were at first, whatever it is bound to."""
    kept: dict[str, torch.Tensor] = {}

    def load(module: nn.Module) -> Callable[..., Any]:
        state = module.state_dict()
        for name in names or tuple(state):
            kept.setdefault(name, state[name].clone())
        stale = copy.deepcopy(module)
        stale.load_state_dict({**state, **kept})
        return exact(stale)

    return load


@torch.no_grad()
def prove(
    module: nn.Module, load: Callable[[nn.Module], Callable[..., Any]], *, allowed: float | None = None
) -> list[dict[str, Any]]:
    """Prove it; what was noted of it. The dtype of the input is that of the module's floating tensors."""
    tensors = [*module.parameters(), *module.buffers()]
    dtype = next((str(each.dtype).removeprefix("torch.") for each in tensors if each.is_floating_point()), "float32")
    row = TensorSpec(shape=(8, 64), dtype=dtype, low=None, high=None)
    bucket = Bucket(name="one", args=(row,))
    report = Report(target="main/one")
    no_weight_is_baked_in(
        load, module, module, bucket, Sizes(name="typical", by_dim={}), weights=package_proof, device="cpu",
        allowed=float(default_max_error([dtype])) if allowed is None else allowed, report=report,
    )  # fmt: skip
    return list(report.sections["proofs"])


def refused(module: nn.Module, load: Callable[[nn.Module], Callable[..., Any]], **more: Any) -> str:
    with pytest.raises(TargetError) as raised:
        prove(module, load, **more)
    assert raised.value.reason == "ProofFailed"
    return str(raised.value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_follows_its_weights_is_proved_and_it_is_noted_how_much_that_could_see(dtype: torch.dtype) -> None:
    (proof,) = prove(Net().to(dtype), exact)
    assert proof["name"] == "random weights"
    assert float(proof["answerMoved"]) > 0.5
    assert float(proof["limit"]) <= 0.05


@pytest.mark.parametrize("names", [(), ("out.bias",), ("into.bias",), ("norm.bias",)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_old_weights_are_refused_in_every_type_if_only_one_small_bias(
    dtype: torch.dtype, names: tuple[str, ...]
) -> None:
    words = refused(Net().to(dtype), baked(*names))
    assert "something of the weights is baked into the code" in words


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_error_that_the_user_tolerates_is_not_tolerated_here(dtype: torch.dtype) -> None:
    refused(Net().to(dtype), baked("out.bias"), allowed=0.05)


def test_an_answer_of_nothing_but_nan_is_refused() -> None:
    words = refused(Net(), lambda _: lambda x: torch.full((8, 16), float("nan")))
    assert "differs from eager's by inf" in words


def test_what_is_wrong_with_its_own_weights_too_is_refused() -> None:
    refused(Net(), lambda module: lambda x: exact(module)(x) * 1.2)


class Insisting:
    """As code does that checks a value which was compiled in; `error` is what it raises for another one."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.kept: torch.Tensor | None = None

    def __call__(self, module: nn.Module) -> Callable[..., Any]:
        bias = module.get_parameter("out.bias")
        self.kept = bias.clone() if self.kept is None else self.kept
        if not torch.equal(bias, self.kept):
            raise self.error
        return exact(module)


def test_what_fails_with_other_weights_is_refused() -> None:
    words = refused(Net(), Insisting(RuntimeError("expected u0 == 7")))
    assert "with other weights the package fails where eager answers: RuntimeError: expected u0 == 7" in words


def test_memory_that_runs_out_meanwhile_is_no_weight() -> None:
    with pytest.raises(MemoryError):
        prove(Net(), Insisting(MemoryError()))


class Brittle(nn.Module):
    """Gives NaN with any weights but its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((64,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(self.weight == 0.5, x, torch.nan)


def test_what_only_gives_nan_with_other_weights_cannot_be_proved() -> None:
    assert "with random weights the model only gives NaN or infinity" in refused(Brittle(), exact)


class Masked(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).index_fill(1, torch.tensor([3]), float("-inf"))


def test_infinity_that_is_there_with_any_weights_hides_nothing() -> None:
    prove(Masked(), exact)
    refused(Masked(), baked("out.bias"))


class Small(nn.Module):
    """Its weights matter little: the answer is mostly the input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.inner = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x) / 200


def test_what_hardly_moves_the_answer_is_refused_too() -> None:
    refused(Small(), baked())
    (proof,) = prove(Small(), exact)
    assert float(proof["limit"]) <= float(proof["answerMoved"]) / 4


class Cancelling(nn.Module):
    """With its own weights it rounds as others do; with random ones it loses most digits, eager as well as compiled."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.inner = nn.Linear(64, 16)
        self.offset = nn.Parameter(torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.offset * 150 - self.offset * 150


class CancellingInItsType(Cancelling):
    """Cannot be converted, so nobody knows how exact eager is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype not in HALVES:
            raise TypeError("only halves")
        return super().forward(x)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("make", [Cancelling, CancellingInItsType])
def test_the_modules_own_rounding_is_no_weight(make: type[Cancelling], dtype: torch.dtype) -> None:
    def rounding(module: nn.Module) -> Callable[..., Any]:
        plain = Cancelling()
        plain.load_state_dict(module.state_dict())
        return exact(plain)

    prove(make().to(dtype), rounding)


def test_8_bit_weights_are_exchanged_too() -> None:
    first, second = prove(WeightOnly(), exact)
    assert (first["name"], second["name"]) == ("random weights", "shuffled integers")
    assert float(second["answerMoved"]) > 0.1
    assert "baked into the code" in refused(WeightOnly(), baked("weight"))
    assert "baked into the code" in refused(WeightOnly(), baked("places"))


class InOrder(Net):
    """Means something by the order of its integers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ends", torch.arange(65))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not bool((self.ends.diff() > 0).all()):
            raise ValueError("not in order")
        return super().forward(x)


class Attending(nn.Module):
    """Looks where a mask lets it: at what came before, or at what comes after."""

    def __init__(self, *, before: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.inner = nn.Linear(64, 64)
        square = torch.ones(64, 64)
        self.register_buffer("seen", (square.tril() if before else square.triu()).bool())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.inner(x) @ x.T
        return scores.masked_fill(~self.seen[:8, :8], float("-inf")).softmax(-1)


def test_integers_whose_order_eager_needs_stay_out_of_it_and_that_is_noted() -> None:
    first, second = prove(InOrder(), exact)
    assert first["name"] == "random weights"
    assert second == {"name": "shuffled integers", "why": "eager refuses them: ValueError"}


def test_masks_are_exchanged_where_they_leave_something_to_see() -> None:
    _, second = prove(Attending(before=True), exact)
    assert second["name"] == "shuffled booleans"
    refused(Attending(before=True), baked("seen"))
    _, second = prove(Attending(before=False), exact)
    assert second == {"name": "shuffled booleans", "why": "with them eager gives NaN or infinity"}


class LooksUp(Net):
    """Has places to look at as numbers with a point, which is how checkpoints of some keep them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(201, 16)
        self.register_buffer("at", torch.arange(1.0, 201.0))
        self.register_buffer("scale", torch.rand(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = self.at.long()
        if bool(((places < 0) | (places >= 201)).any()):
            raise IndexError("index out of range in self")
        return super().forward(x) * self.scale + self.table(places)[:8]


class LooksUpTwice(LooksUp):
    """Only both together are right, and their order is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ends", torch.linspace(-1, 1, 33))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not bool((self.ends.diff() > 0).all()):
            raise ValueError("not in order")
        return super().forward(x) + torch.bucketize(x[:, :16].contiguous(), self.ends) / 33


def test_what_eager_refuses_other_values_of_keeps_its_own_and_all_else_is_proved() -> None:
    noted, first, second = prove(LooksUp(), exact)
    assert noted == {"name": "random weights", "why": "of at eager refuses others than its own: IndexError"}
    assert (first["name"], second["name"]) == ("random weights", "shuffled places")
    assert float(first["answerMoved"]) > 0.5


@pytest.mark.parametrize("names", [("out.bias",), ("scale",), ("table.weight",), ("at",), ()])
def test_a_weight_beside_them_that_is_baked_in_is_found_and_so_are_they(names: tuple[str, ...]) -> None:
    assert "baked into the code" in refused(LooksUp(), baked(*names))


def test_of_several_each_is_found_and_what_may_not_change_places_is_as_it_was() -> None:
    noted, first, second = prove(LooksUpTwice(), exact)
    assert noted["why"] == "of at, ends eager refuses others than its own: ValueError"
    assert (first["name"], second) == (
        "random weights",
        {"name": "shuffled places", "why": "eager refuses them: ValueError"},
    )
    for name in ("scale", "norm.weight", "into.bias"):
        assert "baked into the code" in refused(LooksUpTwice(), baked(name))


def test_a_second_instance_that_is_bound_keeps_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    bound, module = LooksUp(), LooksUp()
    module.load_state_dict(bound.state_dict())
    bucket = Bucket(name="one", args=(TensorSpec(shape=(8, 64), dtype="float32", low=None, high=None),))
    report = Report(target="main/one")
    with torch.no_grad():
        no_weight_is_baked_in(
            exact, bound, module, bucket, Sizes(name="typical", by_dim={}), weights=package_proof, device="cpu",
            allowed=1e-3, report=report,
        )  # fmt: skip
    assert all(map(torch.equal, bound.state_dict().values(), module.state_dict().values()))
    assert [each["name"] for each in report.sections["proofs"]][1:] == ["random weights", "shuffled places"]


class Insists(nn.Module):
    """Has one weight, and refuses any other."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((64,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((self.weight != 0.5).any()):
            raise ValueError("weights are damaged")
        return x * self.weight


def test_what_eager_refuses_altogether_cannot_be_proved() -> None:
    assert "with random weights the model raises ValueError, so it cannot be proved" in refused(Insists(), exact)


def test_where_a_large_tensor_is_what_eager_refuses_it_cannot_be_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_spared, "_KEPT_BYTES", 16)
    assert "with random weights the model raises IndexError" in refused(LooksUp(), exact)


def test_the_search_ends_where_it_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_spared, "_RUNS", 3)
    noted, first, *_ = prove(LooksUp(), exact)
    assert noted["why"].startswith("of out.weight, out.bias, table.weight, at, scale eager refuses others")
    assert first["name"] == "random weights"
    assert "baked into the code" in refused(LooksUp(), baked("into.bias"))
