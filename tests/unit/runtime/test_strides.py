"""A size of one may have any stride, but where torch takes the memory format from it."""

from dataclasses import replace

import pytest
import torch

from preheat_compiler.package_call import ExampleCall, plan_call
from preheat_runtime.calls import Matcher
from preheat_runtime.package import CallSpec, TensorSpec
from preheat_runtime.reasons import class_of
from preheat_runtime.strides import seems_channels_last

CONVOLUTIONS = {3: torch.nn.Conv1d, 4: torch.nn.Conv2d, 5: torch.nn.Conv3d}
#: Shapes, and the strides that all content of them may have.
ONES = [
    ((4, 1, 12, 12), (144, 144, 12, 1)),
    ((4, 1, 12, 12), (144, 1, 12, 1)),
    ((4, 1, 12, 12), (144, 0, 12, 1)),
    ((4, 1, 12, 12), (144, 77, 12, 1)),
    ((1, 3, 5, 6), (90, 1, 18, 3)),
    ((1, 3, 5, 6), (3, 1, 18, 3)),
    ((1, 3, 5, 6), (99, 1, 18, 3)),
    ((1, 3, 5, 6), (3, 30, 6, 1)),
    ((2, 3, 1, 5), (15, 1, 15, 3)),
    ((2, 3, 1, 5), (15, 1, 17, 3)),
    ((2, 3, 1, 5), (15, 1, 7, 3)),
    ((4, 8, 1, 1), (8, 1, 1, 1)),
    ((4, 8, 1, 1), (8, 1, 8, 8)),
    ((4, 8, 1, 1), (8, 1, 0, 0)),
    ((2, 1, 6, 6, 6), (216, 216, 36, 6, 1)),
    ((2, 1, 6, 6, 6), (216, 1, 36, 6, 1)),
    ((4, 1, 12), (12, 12, 1)),
    ((4, 1, 12), (12, 1, 1)),
    ((4, 1, 12), (12, 0, 1)),
]


def laid(shape, stride):
    return torch.randn(torch.Size(shape).numel()).as_strided(shape, stride)


def forward(x):
    raise AssertionError("never called")


def matches(example, given):
    """What a pod says of `given` where `example` was compiled."""
    spec = plan_call(torch.nn.Identity(), ExampleCall(args=(example,)), None).spec
    return Matcher(replace(spec, arguments=(replace(spec.arguments[0], parameter="x"),)), forward).match((given,), {})


@torch.no_grad()
@pytest.mark.parametrize(("shape", "stride"), ONES)
def test_it_is_what_a_convolution_goes_by(shape, stride):
    given = laid(shape, stride)
    answer = CONVOLUTIONS[len(shape)](shape[1], 4, 1)(given)
    last = not answer.is_contiguous()
    # Where the answer has sizes of one itself, it is contiguous anyhow, and its strides tell.
    assert seems_channels_last(shape, stride) == (last or seems_channels_last(answer.shape, answer.stride()))


@pytest.mark.parametrize(("shape", "stride"), ONES)
def test_what_was_compiled_is_answered(shape, stride):
    given = laid(shape, stride)
    (found,) = matches(given, given)
    assert torch.equal(found, given)
    assert seems_channels_last(shape, found.stride()) == seems_channels_last(shape, stride)


@torch.no_grad()
@pytest.mark.parametrize(("shape", "stride"), ONES)
def test_an_answer_lies_as_eagers_whatever_was_compiled(shape, stride):
    convolution, given = CONVOLUTIONS[len(shape)](shape[1], 4, 1), laid(shape, stride)
    for example in (laid(shape, other) for of, other in ONES if of == shape):
        found = matches(example, given)
        if isinstance(found, str):
            assert seems_channels_last(shape, example.stride()) != seems_channels_last(shape, stride) or (
                "is not" in found
            )
            assert class_of("cold", f"no bucket answers this call: one: {found}") == "CallNotCovered"
        else:
            assert convolution(found[0]).stride() == convolution(given).stride()


def test_the_reason_has_both_strides():
    found = matches(laid((4, 1, 12, 12), (144, 144, 12, 1)), laid((4, 1, 12, 12), (144, 1, 12, 1)))
    assert found == (
        "argument x: has the strides (144, 1, 12, 1), compiled for (144, 144, 12, 1), and torch takes one of them for "
        "channels_last"
    )


def test_images_of_one_channel_are_compiled_for_the_order_they_come_in():
    grey = laid((4, 1, 12, 12), (144, 1, 12, 1))
    spec = plan_call(torch.nn.Identity(), ExampleCall(args=(grey,)), None).spec.arguments[0]
    assert (spec.order, spec.stride) == ("channels_last", None)
    single = laid((1, 3, 5, 6), (3, 1, 18, 3))
    spec = plan_call(torch.nn.Identity(), ExampleCall(args=(single,)), None).spec.arguments[0]
    assert (spec.order, spec.stride) == ("channels_last", (3, None, None, None))


def test_rows_of_any_length_keep_the_strides_of_sizes_of_one():
    entry = TensorSpec(
        parameter="x", shape=(1, 3, 5, 6), dtype="float32", device="cpu", order="channels_last", stride=(3, None, None, None)
    )  # fmt: skip
    matcher = Matcher(CallSpec(arguments=(entry,)), forward)
    given = laid((1, 3, 5, 6), (3, 1, 18, 3))
    assert matcher.match((given,), {})[0] is given
    assert "channels_last" in matcher.match((laid((1, 3, 5, 6), (90, 1, 18, 3)),), {})
