"""What a call compares the module with."""

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
