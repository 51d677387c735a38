"""What is told of a module's graphs, without a compile: where they break, what of them draws random numbers."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from preheat_compiler.graphs import explain
from preheat_compiler.inputs import Call
from preheat_compiler.package_graph import draws

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

ROW = Call(args=(torch.randn(4, 16),), kwargs={})


def line(words: str) -> str:
    """`file:line` of the first line of this file with these words."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"{__file__}:{next(number for number, text in enumerate(lines, 1) if words in text)}"


class Whole(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).sum()


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        if y.sum() > 0:
            y = y - 1
        return y * 2


class Printing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        print("the first of two")
        y = torch.sigmoid(y)
        print("the second of two")
        return y * 2


class Foreign(nn.Module):
    """Holds an object that torch cannot trace a call with, as dynamic quantisation leaves it."""

    def __init__(self) -> None:
        super().__init__()
        self.packed = torch.ops.quantized.linear_prepack_fp16(torch.randn(8, 16), None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.quantized.linear_dynamic_fp16(x, self.packed)


def test_one_graph_has_no_breaks() -> None:
    assert explain(Whole(), ROW) == (1, ())


@pytest.mark.parametrize(
    ("module", "graphs", "places", "remedy"),
    [
        (Branching(), 2, ["if y.sum() > 0:"], "torch.where or torch.cond"),
        (Printing(), 3, ['print("the first of two")', 'print("the second of two")'], ""),
    ],
)
def test_every_break_has_the_users_line_and_a_remedy(
    module: nn.Module, graphs: int, places: list[str], remedy: str
) -> None:
    count, breaks = explain(module, ROW)
    assert count == graphs
    assert [each.where for each in breaks] == [line(words) for words in places]
    assert all(each.reason and remedy in each.remedy and each.remedy for each in breaks)


def test_what_torch_compiles_nothing_of_says_why() -> None:
    count, breaks = explain(Foreign(), ROW)
    assert count == 0
    assert breaks
    assert all(each.reason and each.remedy for each in breaks)


def test_an_earlier_modules_reasons_are_not_told_again() -> None:
    explain(Foreign(), ROW)
    assert explain(nn.Identity(), ROW) == (0, ())


class Drawing(nn.Module):
    """Draws, does not draw though it could, and draws again."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(16, 16, 2, dropout=0.5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.dropout(x, 0.5, training=False)
        y, _ = self.recurrent(y[None])
        y = nn.functional.scaled_dot_product_attention(y[None], y[None], y[None])
        y = y + torch.rand_like(y) * 1e-9
        return nn.functional.dropout(y, 1e-9, training=True)


def test_what_draws_random_numbers_is_named_with_its_line_and_nothing_else_is() -> None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as the driver does: the recurrent layer's own lists
        program = torch.export.export(Drawing().eval(), ROW.args).run_decompositions({})
    first, *rest = draws(program)
    assert first == f"aten.rand_like.default ({line('torch.rand_like(y) * 1e-9')})"
    assert rest
    assert all(line("dropout(y, 1e-9, training=True)") in each for each in rest)
