"""How a call's tensors lie in memory, next to how the code was compiled for them.

Why it exists: a dimension of size one may have any stride, and tensors of equal content come with all of them. Most are put
right for nothing; but torch takes its memory format from them, and so the order of a convolution's answer, which code and
callers can tell.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from .package import TensorSpec


def stride_of(order: str) -> Callable[[torch.Size], tuple[int, ...]]:
    """The strides that a tensor of a shape has in an order, as a function of the shape."""
    return _row_major if order == "contiguous_format" else _channels_last


@functools.lru_cache(maxsize=1024)
def seems_channels_last(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether torch takes images or rows of these strides for channels_last, and lays out a convolution's answer so.

    As its own `suggest_memory_format`, which goes by the strides of dimensions of size one, too; one-dimensional
    convolutions ask it of rows with a height of one.
    """
    if len(shape) == 3:
        shape, stride = (*shape[:2], 1, shape[2]), (*stride[:2], shape[2] * stride[2], stride[2])
    if len(shape) not in (4, 5) or stride[1] == 0:
        return False
    least = 0
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[dim] == 0 or stride[dim] < least or (dim == 0 and least == stride[1]):
            return False
        least = stride[dim] * max(shape[dim], 1)
    return True


def as_compiled(
    tensor: torch.Tensor, stride: tuple[int, ...], order: torch.memory_format, name: str
) -> torch.Tensor | str:
    """The same memory with the strides that compiled code expects, or why it lies otherwise, in words.

    The strides of dimensions of size one are arbitrary (numpy gives a new axis the stride 0, for one), but where torch
    takes its memory format from them.
    """
    if not tensor.is_contiguous(memory_format=order):
        return "is not contiguous" if order is torch.contiguous_format else f"is not in {name} order"
    if seems_channels_last(tensor.shape, tensor.stride()) != seems_channels_last(tensor.shape, stride):
        return (
            f"has the strides {tensor.stride()}, compiled for {stride}, and torch takes one of them for channels_last"
        )
    return tensor.as_strided(tensor.shape, stride)


@functools.lru_cache(maxsize=1024)
def _channels_last(shape: torch.Size) -> tuple[int, ...]:
    _, channels, height, width = shape
    channel = max(channels, 1)
    row = channel * max(width, 1)
    return (row * max(height, 1), 1, row, channel)


@functools.lru_cache(maxsize=1024)
def _row_major(shape: torch.Size) -> tuple[int, ...]:
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))


def strides_of(entry: TensorSpec) -> Callable[[torch.Size], tuple[int, ...]]:
    """The strides that the code was compiled for, as a function of the shape."""
    usual, odd = stride_of(entry.order), entry.stride
    if odd is None:
        return usual
    return lambda shape: tuple(step if other is None else other for step, other in zip(usual(shape), odd, strict=True))
