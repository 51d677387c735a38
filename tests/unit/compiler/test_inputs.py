from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preheat_compiler.bucket import Bucket, Dim, TensorSpec
from preheat_compiler.inputs import Call, legal_ends, narrowed, pick_sizes, ranged_dims, traceable, unserved
from preheat_runtime.package import DimRange


def dim(minimum: int, maximum: int, multiple_of: int = 1, name: str = "n") -> Dim:
    return Dim(name=name, minimum=minimum, maximum=maximum, multiple_of=multiple_of)


def bucket(*dims: Dim, shape: tuple[Any, ...] = ()) -> Bucket:
    sizes = shape or tuple(each.name for each in dims)
    spec = TensorSpec(shape=sizes, dtype="float32", low=None, high=None)
    return Bucket(name="b", dims=dims, args=(spec,), kwargs=())


def test_without_dims_there_is_one_choice() -> None:
    assert [each.name for each in pick_sizes(bucket(shape=(1, 3)))] == ["typical"]


def test_both_ends_are_tried() -> None:
    picked = {each.name: each.by_dim["n"] for each in pick_sizes(bucket(dim(1, 32)))}
    assert (picked["low"], picked["high"]) == (1, 32)
    assert 1 < picked["typical"] < 32


def test_a_range_of_one_size_does_not_vary() -> None:
    one = bucket(dim(8, 8))
    assert ranged_dims(one) == {}
    assert [(each.name, each.by_dim) for each in pick_sizes(one)] == [("typical", {"n": 8})]


def test_dims_get_different_sizes_from_each_other_and_from_fixed_ones() -> None:
    typical = pick_sizes(bucket(dim(2, 64, name="n"), dim(2, 64, name="m"), shape=("n", "m", 33, 32)))[0].by_dim
    assert len({typical["n"], typical["m"], 33, 32}) == 4


@given(
    minimum=st.integers(1, 10_000), extra=st.integers(0, 100_000), multiple_of=st.sampled_from([1, 2, 3, 8, 64, 1000])
)
def test_every_size_is_legal(minimum: int, extra: int, multiple_of: int) -> None:
    first = -(-minimum // multiple_of) * multiple_of
    each = dim(minimum, first + extra, multiple_of)
    low, high = legal_ends(each)
    assert (low, high) == (first, (first + extra) // multiple_of * multiple_of)
    for sizes in pick_sizes(bucket(each)):
        size = sizes.by_dim["n"]
        assert each.minimum <= size <= each.maximum
        assert size % multiple_of == 0
    if high > 2 * multiple_of:
        assert pick_sizes(bucket(each))[0].by_dim["n"] > 1


@pytest.mark.parametrize(("minimum", "maximum", "typical"), [(1, 2, 2), (1, 1, 1)])
def test_typical_is_never_one_where_it_need_not_be(minimum: int, maximum: int, typical: int) -> None:
    assert pick_sizes(bucket(dim(minimum, maximum)))[0].by_dim["n"] == typical


def test_size_one_is_left_out_of_a_range_and_that_is_said() -> None:
    asked = bucket(dim(1, 32), dim(4, 8, name="m"), dim(1, 1, name="one"))
    served = traceable(asked)
    assert [legal_ends(each) for each in served.dims] == [(2, 32), (4, 8), (1, 1)]
    assert unserved(asked, served) == "of n only 2 to 32 is served; for 1 give a bucket of its own"
    assert unserved(asked, asked) == ""


@pytest.mark.parametrize(
    ("asked", "served", "traced"),
    [
        ((8, 64), (16, 64), 40),
        ((3, 64), (16, 64), 40),
        ((8, 16), (16, 16), 16),
        ((16, 64), (16, 64), 40),
        ((8, 8), (8, 8), 8),
    ],
)
def test_one_step_is_left_out_of_a_range_of_multiples_and_never_traced_with(
    asked: tuple[int, int], served: tuple[int, int], traced: int
) -> None:
    before = bucket(dim(*asked, 8))
    after = traceable(before)
    assert legal_ends(after.dims[0]) == served
    assert pick_sizes(after)[0].by_dim["n"] == traced
    first = legal_ends(before.dims[0])[0]
    assert (f"for {first} give a bucket of its own" in unserved(before, after)) == (first < served[0])


def test_ranges_that_tracing_narrowed_are_kept_to() -> None:
    asked = bucket(dim(8, 64, 8))
    served = narrowed(asked, {"n": DimRange(name="n", minimum=16, maximum=64, multiple_of=8)})
    assert legal_ends(served.dims[0]) == (16, 64)
    assert "16 to 64" in unserved(asked, served)


def test_a_call_that_is_made_again_and_again_has_lists_and_dicts_of_its_own() -> None:
    state: dict[str, Any] = {"seen": [], "pair": ([1], 2)}

    def take(state: dict[str, Any], *, mask: object) -> tuple[int, object]:
        state["seen"].append(1)
        first, _ = state.pop("pair")
        first.append(1)
        return len(state["seen"]) + len(first), mask

    mask = object()
    again = Call(args=(state,), kwargs={"mask": mask}).of(take)
    assert [again() for _ in range(3)] == [(3, mask)] * 3
    assert state == {"seen": [], "pair": ([1], 2)}


def test_a_call_without_them_passes_what_it_was_given() -> None:
    pair = (object(), object())
    assert Call(args=(pair,), kwargs={}).of(lambda given: given)() is pair
