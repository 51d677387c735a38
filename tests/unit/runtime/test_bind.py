"""What a call compares the module with."""

import contextlib

import pytest
import torch

from preheat_runtime.bind import ModuleState


def tied():
    net = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False)})
    net["head"].weight = net["embed"].weight
    return net


CHANGES = {
    "untied": lambda net: setattr(net["head"], "weight", torch.nn.Parameter(net["head"].weight.detach().clone())),
    "moved": lambda net: setattr(net["embed"].weight, "data", net["embed"].weight.data.clone()),
    "other dtype": lambda net: net.double(),
}


@pytest.mark.parametrize("inference", [True, False])
def test_tied_weights_are_as_they_were_until_something_changes(inference):
    with torch.inference_mode(inference):
        state = ModuleState(tied())
        assert state.unchanged()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_tied_weights_is_seen(change):
    net = tied()
    state = ModuleState(net)
    with torch.no_grad():
        CHANGES[change](net)
    assert not state.unchanged()


# What a thread is in is looked at for each call, and changes no module.
THREADS = {
    "nothing": contextlib.nullcontext,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}


@pytest.mark.parametrize("taken", THREADS)
@pytest.mark.parametrize("asked", THREADS)
def test_what_a_thread_is_in_is_no_change_of_the_module(taken, asked):
    net = tied()
    with THREADS[taken]():
        state = ModuleState(net)
    with THREADS[asked]():
        assert state.unchanged()
    assert state.unchanged()


@pytest.mark.parametrize("asked", THREADS)
@pytest.mark.parametrize("change", [*CHANGES, "transposed", "wants no grad"])
def test_a_change_is_seen_whatever_a_thread_is_in(change, asked):
    net = tied()
    state = ModuleState(net)
    weight = net["embed"].weight
    more = {
        "transposed": lambda net: weight.as_strided_((8, 4), (1, 8)),  # at the same address
        "wants no grad": lambda net: weight.requires_grad_(False),
    }
    with torch.no_grad():
        {**CHANGES, **more}[change](net)
    with THREADS[asked]():
        assert not state.unchanged()
