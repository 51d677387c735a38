"""Arguments are compared with the contract, whatever way they are passed."""

import functools
import inspect
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preheat_runtime.calls import MAX_KNOWN, Matcher
from preheat_runtime.package import CallForm, CallSpec, ConstSpec, DimRange, TensorSpec, TreeSpec
from preheat_runtime.reasons import class_of

DEFAULT = object()


def forward(x, mask=None, scale=1.0, other=DEFAULT, *rest, training=False, **more):
    raise AssertionError("never called")


def spec(*tensors, dims=()):
    consts = {
        "mask": ("NoneType", "None"),
        "scale": ("float", "1.0"),
        "other": ("default", ""),
        "rest": ("default", ""),
        "training": ("bool", "False"),
        "more": ("default", ""),
    }
    given = {tensor.parameter: tensor for tensor in tensors}
    names = ["x", "mask", "scale", "other", "rest", "training", "more"]
    arguments = [
        given.get(name) or ConstSpec(parameter=name, type=consts[name][0], value=consts[name][1]) for name in names
    ]
    return CallSpec(arguments=tuple(arguments), dims=dims)


def tensor(parameter, *shape, dtype="float32"):
    return TensorSpec(parameter=parameter, shape=shape, dtype=dtype, device="cpu")


def match(matcher, *args, **kwargs):
    return matcher.match(args, kwargs)


X = torch.zeros(2, 3)
BATCH = DimRange(name="n", minimum=2, maximum=4)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((X,), {}), ((), {"x": X}), ((X, None), {}), ((X, None, 1.0), {"training": False}), ((X, None, 1.0, DEFAULT), {})],
)
def test_one_call_said_in_many_ways(args, kwargs):
    (found,) = Matcher(spec(tensor("x", 2, 3)), forward).match(args, kwargs)
    assert found is X


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "missing a required argument"),
        ((X, X), {}, "argument mask: is Tensor, compiled for None"),
        ((X, None, 1), {}, "argument scale: is 1, compiled for 1.0"),
        ((X, None, True), {}, "argument scale: is True"),
        ((X, None, 1.0, object()), {}, "argument other: is not the default"),
        ((X, None, 1.0, DEFAULT, 5), {}, "argument rest"),
        ((X,), {"training": True}, "argument training"),
        ((X,), {"surprise": 1}, "argument more"),
        ((3,), {}, "is a int, compiled for a tensor"),
        ((np.zeros((2, 3)),), {}, "is a ndarray"),
        ((torch.zeros(3, 3),), {}, r"has shape \(3, 3\)"),
        ((torch.zeros(2, 3, 1),), {}, "has shape"),
        ((torch.zeros(6),), {}, "has shape"),
        ((torch.zeros(2, 3, dtype=torch.int64),), {}, "has dtype int64"),
        ((torch.zeros(3, 2).t(),), {}, "is not contiguous"),
        ((torch.zeros(1, 3).expand(2, 3),), {}, "is not contiguous"),
        ((torch.zeros(2, 3).to_sparse(),), {}, "is not an ordinary tensor"),
        ((torch.zeros(2, 3, device="meta"),), {}, "is not an ordinary tensor"),
    ],
)
def test_every_difference_is_named(args, kwargs, words):
    import re

    found = Matcher(spec(tensor("x", 2, 3)), forward).match(args, kwargs)
    assert isinstance(found, str)
    assert re.search(words, found)


def inference(*shape):
    with torch.inference_mode():
        return torch.zeros(shape)


class Own(torch.Tensor):
    pass


@pytest.fixture(params=[False, True], ids=["as ever", "inference mode"])
def known(request):
    """A matcher that has seen a call, in the mode of later ones."""
    with torch.inference_mode(request.param):
        matcher = Matcher(spec(tensor("x", 2, 3)), forward)
        for made in (X, inference(2, 3)):
            assert match(matcher, made)[0] is made
        assert len(matcher._known) == 2
        yield matcher


ODD = {
    "a subclass": (lambda: torch.zeros(2, 3).as_subclass(Own), "is a Own"),
    "no tensor": (lambda: np.zeros((2, 3), np.float32), "is a ndarray"),
    "dtype": (lambda: torch.zeros(2, 3, dtype=torch.int32), "has dtype int32"),
    "size": (lambda: torch.zeros(2, 4), "has shape (2, 4)"),
    "rank": (lambda: torch.zeros(2, 3, 1), "has shape (2, 3, 1)"),
    "transposed": (lambda: torch.zeros(3, 2).t(), "is not contiguous"),
    "expanded": (lambda: torch.zeros(1, 3).expand(2, 3), "is not contiguous"),
    "sparse": (lambda: torch.zeros(2, 3).to_sparse(), "is not an ordinary tensor"),
    "sparse rows": (lambda: torch.zeros(2, 3).to_sparse_csr(), "is not an ordinary tensor"),
    "device": (lambda: torch.zeros(2, 3, device="meta"), "is not an ordinary tensor"),
    "lazily negative": (lambda: torch._neg_view(torch.zeros(2, 3)), "is not an ordinary tensor"),
    "zero without memory": (lambda: torch._efficientzerotensor((2, 3)), "is not an ordinary tensor"),
    "functional": (lambda: torch._to_functional_tensor(torch.zeros(2, 3)), "is not an ordinary tensor"),
}


@pytest.mark.filterwarnings("ignore:Sparse")  # of torch, about itself
@pytest.mark.parametrize(("odd", "words"), ODD.values(), ids=ODD.keys())
def test_every_difference_from_a_known_call_is_seen(known, odd, words):
    found = match(known, odd())
    assert isinstance(found, str)
    assert words in found
    assert len(known._known) == 2, "and is no known call afterwards"


def test_more_or_less_arguments_than_in_a_known_call_are_seen(known):
    assert "missing a required argument" in match(known)
    assert "argument mask" in match(known, X, X)
    assert "argument training" in match(known, X, training=True)


def test_a_call_of_nothing_is_compared_too():
    one = ConstSpec(parameter="flag", type="int", value="1")
    assert "argument flag: is None" in match(Matcher(CallSpec(arguments=(one,), dims=()), lambda flag=None: flag))
    matcher = Matcher(CallSpec(arguments=(one,), dims=()), lambda flag=1: flag)
    for _ in range(2):
        assert match(matcher) == []
    assert "is 2" in match(matcher, 2)


def test_a_call_like_a_known_one_is_looked_at_once(known):
    known._arguments = ()  # with nothing to compare there are no tensors
    given = torch.zeros(2, 3)
    (found,) = match(known, given)
    assert found is given
    assert match(known, x=given) == []


def test_a_tensor_that_somebody_put_something_on_is_another(known):
    """`hasattr(x, "tag")` in the code was decided when it was compiled."""
    tagged = torch.zeros(2, 3)
    assert isinstance(match(known, tagged), list)
    tagged.tag = 1
    assert "has attributes of its own (tag)" in match(known, tagged)
    assert "has attributes of its own (tag)" in match(known, x=tagged)
    del tagged.tag
    (found,) = match(known, tagged)
    assert found is tagged


def test_what_torch_puts_on_a_tensor_for_its_compiler_says_nothing(known):
    marked = torch.zeros(2, 3)
    torch._dynamo.mark_dynamic(marked, 0)
    count = len(known._known)
    for _ in range(MAX_KNOWN + 1):
        (found,) = match(known, marked)
        assert found is marked
    assert len(known._known) == max(count, 1)


def test_a_tensor_that_is_put_right_makes_no_known_call():
    matcher = Matcher(spec(tensor("x", 1, 3)), forward)
    given = torch.zeros(3).as_strided((1, 3), (99, 1))
    for _ in range(2):
        assert match(matcher, given)[0].stride() == (3, 1)
    assert matcher._known == ()


def twice(**mask):
    return Matcher(spec(tensor("x", 2, 3), replace(tensor("mask", 2, 3), **mask)), forward)


def test_a_tensor_that_is_given_twice_is_another_call():
    """`if x is y` in the code was decided when it was compiled."""
    matcher, other = twice(), torch.zeros(2, 3)
    for _ in range(3):  # also once a call is known
        assert match(matcher, X, X) == "argument mask: is the same tensor as x, compiled for another one"
        assert match(matcher, mask=X, x=X) == "argument mask: is the same tensor as x, compiled for another one"
        assert [id(found) for found in match(matcher, X, other)] == [id(X), id(other)]
    assert len(matcher._known) == 1
    assert class_of("cold", f"no bucket answers this call: one: {match(matcher, X, X)}") == "CallNotCovered"


def test_a_tensor_that_was_compiled_for_twice_is_given_twice():
    matcher = twice(same_as="x")
    for _ in range(3):
        assert [id(found) for found in match(matcher, X, X)] == [id(X), id(X)]
        assert (
            match(matcher, X, torch.zeros(2, 3)) == "argument mask: is another tensor than x, compiled for the same one"
        )
    assert matcher._known == (), "torch's check holds for no such call"


def test_two_views_of_one_memory_are_two_tensors():
    assert len(match(twice(), X, X[:])) == 2
    assert "another tensor" in match(twice(same_as="x"), X, X[:])


def test_what_is_put_right_is_still_the_tensor_that_was_given():
    odd = torch.zeros(3).as_strided((1, 3), (99, 1))
    apart = Matcher(spec(tensor("x", 1, 3), tensor("mask", 1, 3)), forward)
    assert "is the same tensor" in match(apart, odd, odd)
    assert [found.stride() for found in match(apart, odd, odd[:])] == [(3, 1), (3, 1)]
    again = Matcher(spec(tensor("x", 1, 3), replace(tensor("mask", 1, 3), same_as="x")), forward)
    assert [found.stride() for found in match(again, odd, odd)] == [(3, 1), (3, 1)]


def test_which_of_many_are_the_same_is_compared():
    """As many objects as compiled, in other places."""
    items = [tensor("x[0]", 2, 3), tensor("x[1]", 2, 3), replace(tensor("x[2]", 2, 3), same_as="x[0]")]
    matcher, other = Matcher(in_tree("list", (), *items), forward), torch.zeros(2, 3)
    assert len(match(matcher, [X, other, X])) == 3
    assert match(matcher, [X, X, other]) == "argument x[1]: is the same tensor as x[0], compiled for another one"
    assert match(matcher, [X, other, other]) == "argument x[2]: is the same tensor as x[1], compiled for another one"


def test_a_parameter_is_no_plain_tensor():
    """`isinstance(x, Parameter)` in the code was decided when it was compiled."""
    parameter = torch.nn.Parameter(torch.zeros(2, 3), requires_grad=False)
    plain = Matcher(spec(tensor("x", 2, 3)), forward)
    compiled_for_one = Matcher(spec(replace(tensor("x", 2, 3), subclass="Parameter")), forward)
    for _ in range(2):
        assert match(plain, parameter) == "argument x: is a Parameter, compiled for a tensor"
        assert match(plain, X)[0] is X
        assert match(compiled_for_one, X) == "argument x: is a Tensor, compiled for a Parameter"
        assert match(compiled_for_one, parameter)[0] is parameter
    unknown = Matcher(spec(replace(tensor("x", 2, 3), subclass="Odd")), forward)
    assert match(unknown, X) == "argument x: is a Tensor, compiled for a Odd"


def test_calls_whose_sizes_vary_are_not_known():
    matcher = Matcher(spec(tensor("x", "n", 3), dims=(BATCH,)), forward)
    assert not isinstance(match(matcher, X), str)
    assert matcher._known == ()


def test_in_an_odd_thread_no_call_becomes_known():
    """There, torch's check would take what is odd in itself for what is in an odd thread."""
    matcher = Matcher(spec(tensor("x", 2, 3)), forward)
    odd = torch._to_functional_tensor(torch.zeros(2, 3))
    torch._enable_functionalization(reapply_views=True)
    try:
        assert not isinstance(match(matcher, X), str)
        assert "ordinary" in match(matcher, odd)
    finally:
        torch._disable_functionalization()
    assert "ordinary" in match(matcher, odd)


def test_a_size_shared_by_two_arguments_must_be_the_same():
    matcher = Matcher(spec(tensor("x", "n", 3), tensor("mask", "n"), dims=(BATCH,)), forward)
    assert not isinstance(match(matcher, torch.zeros(4, 3), torch.zeros(4)), str)
    assert "argument mask: has shape (3,)" in match(matcher, torch.zeros(4, 3), torch.zeros(3))
    assert "n from 2 to 4" in match(matcher, torch.zeros(5, 3), torch.zeros(5))


def test_tensors_come_in_the_order_of_the_signature():
    matcher = Matcher(spec(tensor("x", 2), tensor("mask", 2)), forward)
    x, mask = torch.zeros(2), torch.ones(2)
    found = match(matcher, mask=mask, x=x)
    assert found[0] is x
    assert found[1] is mask


@pytest.mark.parametrize("stride", [(0, 3, 1), (99, 3, 1), (6, 3, 1)])
def test_strides_of_single_dimensions_are_put_right(stride):
    memory = torch.arange(6.0)
    given = memory.as_strided((1, 2, 3), stride)
    (found,) = match(Matcher(spec(tensor("x", 1, 2, 3)), forward), given)
    assert found.stride() == (6, 3, 1)
    assert found.data_ptr() == memory.data_ptr()
    assert torch.equal(found, given)


def test_a_new_axis_from_numpy_is_answered():
    given = torch.from_numpy(np.ones((2, 3), np.float32)[None])
    (found,) = match(Matcher(spec(tensor("x", 1, 2, 3)), forward), given)
    assert found.stride() == (6, 3, 1)


def channels_last(*shape):
    return torch.zeros(shape).to(memory_format=torch.channels_last)


IMAGES = TensorSpec(parameter="x", shape=(2, 3, 4, 5), dtype="float32", device="cpu", order="channels_last")


def test_an_input_lies_in_memory_as_it_did():
    matcher = Matcher(spec(IMAGES), forward)
    given = channels_last(2, 3, 4, 5)
    (found,) = match(matcher, given)
    assert found is given
    assert "is not in channels_last order" in match(matcher, torch.zeros(2, 3, 4, 5))
    assert "is not contiguous" in match(Matcher(spec(tensor("x", 2, 3, 4, 5)), forward), given)


@pytest.mark.parametrize(
    ("shape", "other"),
    [
        ((1, 3, 4, 5), 99),
        ((2, 1, 4, 5), 1),
        ((2, 3, 1, 5), 15),
        ((2, 3, 4, 1), 3),
        ((1, 3, 1, 1), 3),
        ((1, 3, 1, 5), 15),
    ],
)
def test_sizes_of_one_get_the_strides_of_their_order(shape, other):
    (found,) = match(
        Matcher(spec(TensorSpec(parameter="x", shape=shape, dtype="float32", device="cpu", order="channels_last")), forward),
        torch.zeros(shape).to(memory_format=torch.channels_last).as_strided(
            shape, [other if size == 1 else step for size, step in zip(shape, channels_last(*shape).stride(), strict=True)]
        ),
    )  # fmt: skip
    batch, channels, height, width = shape
    del batch
    assert found.stride() == (channels * height * width, 1, width * channels, channels)


@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 5), (2, 3, 4, 1)])
def test_strides_that_make_torch_see_another_format_are_another_call(shape):
    given = channels_last(*shape)
    given = given.as_strided(
        shape, [7 if size == 1 else step for size, step in zip(shape, given.stride(), strict=True)]
    )
    entry = TensorSpec(parameter="x", shape=shape, dtype="float32", device="cpu", order="channels_last")
    assert "torch takes one of them for channels_last" in match(Matcher(spec(entry), forward), given)


def in_tree(kind, keys, *items):
    return spec_of_one(TreeSpec(parameter="x", type=kind, keys=keys, items=items))


def spec_of_one(entry):
    whole = spec(tensor("x", 1))
    return CallSpec(arguments=(entry, *whole.arguments[1:]), dims=(BATCH,))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((X, X), "argument x: is a tuple, compiled for a list"),
        ([X], "argument x: has 1 items, compiled for 2"),
        ([X, torch.zeros(3, 3)], "argument x: [1] has shape (3, 3)"),
        ([X, None], "argument x: [1] is a NoneType"),
        ([torch.zeros(9, 3)] * 2, "argument x: [0] has shape (9, 3)"),
    ],
)
def test_another_list_is_another_call(value, words):
    matcher = Matcher(in_tree("list", (), tensor("x[0]", "n", 3), tensor("x[1]", "n", 3)), forward)
    assert len(match(matcher, [X, X[:]])) == 2
    assert words in match(matcher, value)


def test_a_dict_has_its_keys_in_their_order():
    matcher = Matcher(
        in_tree("dict", ("a", "b"), tensor("x['a']", 2, 3), ConstSpec(parameter="x['b']", type="int", value="1")),
        forward,
    )
    (found,) = match(matcher, {"a": X, "b": 1})
    assert found is X
    assert "has its keys in another order, compiled for ['a', 'b']" in match(matcher, {"b": 1, "a": X})
    assert "lacks the keys ['a', 'b']" in match(matcher, {})
    assert "['b'] is True" in match(matcher, {"a": X, "b": True})
    assert "is a OrderedDict" in match(matcher, OrderedDict(a=X, b=1))


def test_what_a_user_may_have_written_is_in_no_reason():
    """Reasons are logged; texts and keys may be of a request."""
    matcher = Matcher(
        in_tree("dict", ("a", "b"), tensor("x['a']", 2, 3), ConstSpec(parameter="x['b']", type="str", value="'go'")),
        forward,
    )
    assert match(matcher, {"a": X, "b": "my secret"}) == "argument x: ['b'] is another text, compiled for 'go'"
    assert match(matcher, {"a": X, "my secret": 1}) == (
        "argument x: lacks the keys ['b'] and has 1 key that it was not compiled for"
    )
    assert match(matcher, {"a": X, "b": "go", "my secret": 1}) == ("argument x: has 1 key that it was not compiled for")
    number = Matcher(spec(tensor("x", 2, 3)), forward)
    assert match(number, X, None, "my secret") == "argument scale: is a text, compiled for 1.0"


def test_lazy_negation_and_conjugation_are_seen():
    lazy = torch.complex(torch.ones(2), torch.ones(2)).conj()
    assert "ordinary" in match(Matcher(spec(tensor("x", 2, dtype="complex64")), forward), lazy)
    assert "contiguous" in match(Matcher(spec(tensor("x", 2)), forward), lazy.resolve_conj().imag)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_has_no_shape_and_is_told_as_what_it_is():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert "ordinary" in match(Matcher(spec(tensor("x", 2)), forward), nested)


def test_another_signature_is_refused():
    with pytest.raises(ValueError, match="other parameters"):
        Matcher(spec(tensor("x", 2)), lambda y: y)


def wrapper(*args, **kwargs):
    raise AssertionError("never called")


wrapper = functools.wraps(forward)(wrapper)


@pytest.mark.parametrize(
    ("form", "same", "others"),
    [
        (CallForm(positional=1, named=()), [((X,), {})], [((), {"x": X}), ((X, None), {}), ((X,), {"mask": None})]),
        (CallForm(positional=0, named=("x",)), [((), {"x": X})], [((X,), {}), ((), {"x": X, "scale": 1.0})]),
        (
            CallForm(positional=1, named=("mask", "training")),
            [((X,), {"mask": None, "training": False}), ((X,), {"training": False, "mask": None})],
            [((X,), {}), ((X, None), {"training": False}), ((X,), {"mask": None})],
        ),
    ],
    ids=str,
)
def test_a_wrapper_may_tell_one_call_from_another(form, same, others):
    spec_ = replace(spec(tensor("x", 2, 3)), form=form)
    matcher = Matcher(spec_, wrapper)
    for _ in range(3):  # also as one that is known
        for args, kwargs in same:
            assert matcher.match(args, kwargs) == [X]
        for args, kwargs in others:
            reason = matcher.match(args, kwargs)
            assert f"may tell {CallForm(positional=len(args), named=tuple(kwargs))} from {form}" in reason
            assert class_of("cold", f"no bucket answers this call: one: {reason}") == "CallNotCovered"
    anyhow = Matcher(spec_, wrapper, any_form=True)
    for args, kwargs in same + others:
        assert anyhow.match(args, kwargs) == [X]


NAMES = ("a", "b", "c", "rest", "more")
FORWARDS = (
    lambda a: None,
    lambda a, b=2: None,
    lambda a, b=2, *, c: None,
    lambda a=1, *, b, c=3: None,
    lambda a, *rest, b=2, **more: None,
    lambda a, b=2, **more: None,
    lambda a, /, b=2, *, c=3: None,
    lambda a, /, **more: None,
    lambda *rest: None,
    lambda: None,
)  # fmt: skip


@given(
    forward=st.sampled_from(FORWARDS),
    args=st.lists(st.integers(10, 19), max_size=3),
    kwargs=st.dictionaries(st.sampled_from(NAMES), st.integers(20, 29), max_size=3),
)
def test_arguments_go_where_python_puts_them(forward, args, kwargs):
    signature = inspect.signature(forward)
    anything = tuple(ConstSpec(parameter=name, type="default", value="") for name in signature.parameters)
    found = Matcher(CallSpec(arguments=anything, dims=()), forward)._bound(tuple(args), kwargs)
    try:
        bound = signature.bind(*args, **kwargs).arguments
        expected = [bound.get(name, each.default) for name, each in signature.parameters.items()]
    except TypeError as error:
        expected = f"the arguments do not fit forward: {error}"
    assert found == expected
