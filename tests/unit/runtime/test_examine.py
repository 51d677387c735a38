"""What follows from a package's answer that differs from eager's: nothing, where rounding alone makes as much of the call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from preheat_runtime.examine import settle
from preheat_runtime.verify import Modes

ALLOWED = 1e-3


class Normed(torch.nn.Module):
    """Each plane less its mean, over its spread: of a constant plane nothing but rounding is left."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = (x - x.mean()) / (x.var() + 1e-5).sqrt() + 0.5
        return x


class Candidate:
    entry = SimpleNamespace(figures={})

    def __init__(self, allowed: float) -> None:
        self.target = SimpleNamespace(allowed_error=allowed)


class Answers:
    """A check of a package that answers `far` away from eager, relative to the largest number."""

    def __init__(self, x: torch.Tensor, *, far: float, mode: str, allowed: float = ALLOWED) -> None:
        self.said: list[str] = []
        self.due = True
        self.module = Normed()
        self.eager = self.module(x)
        # Not all by as much: a constant added would be no rounding.
        self.answer = self.eager + far * self.eager.abs().max() * torch.linspace(-1, 1, x.numel()).view_as(x)
        self.state = SimpleNamespace(tensors={}, unchanged=lambda: True)
        self.package = SimpleNamespace(again=lambda *_: self.answer)
        self.candidate = Candidate(allowed)
        self.verifier = SimpleNamespace(mode=mode, wrong={})
        self._call: Any = SimpleNamespace(check=self, args=(x,), kwargs={}, modes=Modes.now(), versions=())

    def say(self, reason: str, **figures: float) -> None:
        self.said.append(reason)

    def settled(self) -> tuple[str | None, Any]:
        return settle(self._call, self.answer, lambda: False)


CONSTANTS = [0.0, 0.1, 1.0, -2.0, 1e4]


@pytest.mark.parametrize("mode", ["Before", "After"])
@pytest.mark.parametrize("value", CONSTANTS)
def test_where_rounding_moves_eager_as_much_the_package_is_not_wrong_and_another_call_is_compared(
    value: float, mode: str
) -> None:
    check = Answers(torch.full((1, 3, 16, 16), value), far=4e-3, mode=mode)
    assert check.settled() == (None, None)
    assert check.due
    assert check.verifier.wrong == {}
    (why,) = check.said
    assert "4.0e-03 (allowed 1.0e-03)" in why
    assert "rounding its inputs otherwise" in why


@pytest.mark.parametrize("mode", ["Before", "After"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 255.0])
def test_of_other_inputs_a_difference_is_wrong_however_small_above_what_is_allowed(scale: float, mode: str) -> None:
    x = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1)) * scale
    check = Answers(x, far=2e-3, mode=mode)
    words, eager = check.settled()
    assert words is not None
    assert words.startswith("its answer differed from eager's by 2.0e-03")
    assert not check.due
    assert list(check.verifier.wrong.values()) == [words]
    torch.testing.assert_close(eager, check.eager)


def test_where_nothing_is_allowed_rounding_is_no_excuse_for_what_rounding_makes() -> None:
    x = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    check = Answers(x, far=1e-8, mode="Before", allowed=0.0)
    words, _ = check.settled()
    assert words is not None


def test_numbers_that_are_no_numbers_are_wrong_also_where_rounding_moves_much() -> None:
    check = Answers(torch.zeros(1, 3, 16, 16), far=4e-3, mode="Before")
    check.answer = torch.full_like(check.answer, torch.nan)
    words, _ = check.settled()
    assert words is not None


def test_the_users_random_numbers_are_not_used_up() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    Answers(torch.zeros(1, 3, 16, 16), far=4e-3, mode="Before").settled()
    assert torch.equal(torch.rand(3), expected)
