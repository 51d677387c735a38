"""What tests of the runtime look at: one answer of a fresh process, whether it is as near to eager's as compiled code's is, and
records of one event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

#: For a fresh process: one answer that must be right.
RIGHT_ANSWER = """
import sys, torch, nets
net = nets.trap(seed=5)
model = torch.compile(net)
x = torch.randn(4, 16)
with torch.no_grad():
    error = (model(x)["y"] - net(x)["y"]).abs().max().item()
assert error < 1e-4, error
"""
#: The same; prints what of torch's compiler was imported.
ONE_ANSWER = f"""{RIGHT_ANSWER}
print(sorted(name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))))
"""
NEAR = {"rtol": 1e-4, "atol": 1e-5}


def close(one: Any, other: Any) -> None:
    """The same structure, and the same numbers but for what compiling changes."""
    torch.testing.assert_close(one, other, **NEAR)


def near(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two answers of Trap are close."""
    return torch.allclose(one["y"], other["y"], **NEAR)


def records(lines: Iterable[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    """The runtime's lines about one event."""
    return [line for line in lines if line["event"] == event]
