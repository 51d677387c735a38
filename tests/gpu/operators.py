"""Experiments on operators that a package cannot hold as code of its own: written in Python, and in Triton."""

from __future__ import annotations

from typing import Any

import building
import nets
import torch  # by name: torch reads the operator's annotations
from c_abi import Container
from context import Context, Experiment


def _python_operator() -> Any:
    @torch.library.custom_op("preheat_spike::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_fake(torch.empty_like)
    return double


def _triton_operator() -> Any:
    import triton_operator

    return triton_operator.double


def _net(operator: Any, device: str) -> torch.nn.Module:
    class Doubles(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return operator(torch.relu(self.linear(x)))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    return Doubles().eval().requires_grad_(False).to(device)


def _experiment(make: Any, way: str) -> Any:
    def run(context: Context) -> None:
        net, x = _net(make(), context.device), torch.randn(4, 64, device=context.device)
        archive = building.build(net, x, context.work / "package")
        library, kernels = building.unpack(archive, context.work / "unpacked")
        sources = [path.read_bytes() for path in kernels.rglob("*wrapper.cpp")]
        proxied = any(b"aoti_torch_proxy_executor_call_function(" in source for source in sources)
        context.note(built=True, callsThroughProxy=proxied, **building.contents(archive))
        if way == "loader":
            found = torch._C._aoti.AOTIModelPackageLoader(str(archive), "model", False, 1, -1)
            found.load_constants(building.weights_of(net), False, True, True)
            context.note(error=nets.error(found.run([x])[0], net(x)))
        else:
            container = Container(library, device=context.device, kernels=kernels)
            container.bind(building.weights_of(net))
            context.note(bound=True)
            context.note(error=nets.error(container.run([x])[0], net(x)))

    return run


EXPERIMENTS = (
    Experiment(name="python-operator", question="Does torch's loader run an operator written in Python?", run=_experiment(_python_operator, "loader"), seconds=90),
    Experiment(name="python-operator-c", question="Does the C interface, which gives no proxy? (it may crash)", run=_experiment(_python_operator, "c"), seconds=90),
    Experiment(name="triton-operator", question="Is a Triton operator's code in the package?", run=_experiment(_triton_operator, "c"), seconds=90, cuda_only=True),
)  # fmt: skip
