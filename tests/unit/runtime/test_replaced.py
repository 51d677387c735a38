"""Other tensors in a call's place, which code cannot tell from the first but by their values."""

import torch

from preheat_runtime.replaced import replaced


def test_a_tensor_that_is_there_twice_is_replaced_once():
    x = torch.ones(2)
    args, kwargs = replaced(((x, x.clone(), 3), {"a": [x, None]}), lambda tensor: tensor + 1)
    assert args[0] is kwargs["a"][0]
    assert args[0] is not args[1]
    assert args[0] is not x
    assert args[0].tolist() == [2, 2]
    assert args[2] == 3


def test_a_parameter_is_replaced_by_a_parameter():
    for requires_grad in (False, True):
        parameter = torch.nn.Parameter(torch.ones(2), requires_grad=requires_grad)
        (found,) = replaced((parameter,), lambda tensor: tensor.detach().clone() * 3)
        assert type(found) is torch.nn.Parameter
        assert not found.requires_grad
        assert found.tolist() == [3, 3]
        assert replaced(parameter, lambda tensor: tensor) is parameter
    assert type(replaced(torch.ones(2), torch.clone)) is torch.Tensor
