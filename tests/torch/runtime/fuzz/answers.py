"""What a call came to, and whether that is what eager's came to."""

import torch
from torch.utils import _pytree as pytree


def outcome(call):
    try:
        return call()
    except Exception as error:
        return error


def same(found, expected):
    """Why an answer is not eager's; None when it is."""
    if isinstance(expected, Exception):
        return None if isinstance(found, Exception) else f"eager raised {expected!r}, this did not"
    if isinstance(found, Exception):
        return f"raised {found!r}"
    mine, my_tree = pytree.tree_flatten(found)
    theirs, their_tree = pytree.tree_flatten(expected)
    if my_tree != their_tree:
        return f"has the form {my_tree}, eager's {their_tree}"
    for one, other in zip(mine, theirs, strict=True):
        if not isinstance(other, torch.Tensor):
            if one != other or type(one) is not type(other):
                return f"{one!r} is not {other!r}"
            continue
        about = [(t.dtype, t.shape, t.layout, t.requires_grad, type(t), t.is_inference()) for t in (one, other)]
        if about[0] != about[1]:
            return f"{about[0]} is not {about[1]}"
        loose = 5e-2 if other.dtype in (torch.bfloat16, torch.float16) else 2e-3
        one, other = (t.detach().as_subclass(torch.Tensor).double() for t in (one, other))
        scale = float(other.nan_to_num(0, 0, 0).abs().max()) if other.numel() else 0.0
        if not torch.allclose(one, other, rtol=loose, atol=loose * max(1.0, scale) * 0.1, equal_nan=True):
            return f"is off by {(one - other).abs().max()} of {scale}"
    return None
