"""How a module is called: what is done to its arguments, what is given beside them, and the modes that a call is under."""

import torch
from torch.utils import _pytree as pytree


class Kind(torch.Tensor):
    pass


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def first(change):
    """Change the first tensor among the arguments."""

    def apply(args):
        leaves, tree = pytree.tree_flatten(args)
        place = next(i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
        leaves[place] = change(leaves[place])
        return pytree.tree_unflatten(leaves, tree)

    return apply


def everywhere(change):
    return lambda args: pytree.tree_map_only(torch.Tensor, change, args)


def misaligned(x):
    return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)


def freed(x):
    return x.clone().unsqueeze(0).expand(1, *x.shape)[0]


def out_of_range(x):
    """With a last index that no table has; compiled code must refuse it as eager does, and not end the process."""
    if x.is_floating_point():
        raise NotImplementedError("it is no index")
    return torch.cat([x.flatten()[:-1], x.new_full((1,), 10**6)]).view(x.shape)


# How the arguments are given: what is done to the example's.
CALLS = {
    "as they are": lambda args: args,
    "copies": everywhere(torch.clone),
    "transposed": first(lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2)),
    "every second": first(lambda x: x.repeat_interleave(2, -1)[..., ::2]),
    "expanded": first(lambda x: x[:1].expand(x.shape)),
    "misaligned": first(misaligned),
    "a view": everywhere(freed),
    "doubled": first(lambda x: torch.cat([x, x])),
    "halved": first(lambda x: x[:1]),
    "nothing": first(lambda x: x[:0]),
    "wider": first(lambda x: torch.cat([x, x], -1)),
    "double": everywhere(lambda x: x.double()),
    "bfloat16": first(lambda x: x.bfloat16()),
    "integers": first(lambda x: x.long()),
    "out of range": first(out_of_range),
    "negated": first(lambda x: torch._neg_view(x.float())),
    "a parameter": first(lambda x: torch.nn.Parameter(x.float(), requires_grad=False)),
    "wants grad": first(lambda x: x.float().clone().requires_grad_()),
    "of a subclass": first(lambda x: x.as_subclass(Kind)),
    "sparse": first(lambda x: x.to_sparse()),
    "not a number": first(lambda x: x * float("nan")),
    "too many": lambda args: (*args, 1, 2, 3, 4),
    "too few": lambda args: args[:-1],
    "a list": lambda args: ([*args],),
    "None": lambda args: (None, *args[1:]),
}
KEYWORDS = ({}, {}, {}, {"flag": False}, {"k": 3}, {"k": 4}, {"k": 3.0}, {"flag": 1}, {"name": "b"}, {"extra": 1})
CONTEXTS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "grad": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "a function mode": Mode,
    "a default device": lambda: torch.device("cpu"),
}
