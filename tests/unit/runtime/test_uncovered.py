"""Calls are counted by shapes and dtypes, and by nothing else; in bounded memory."""

import random

import torch

from preheat_runtime.uncovered import MAX_SHAPES, MAX_TOLD, OTHERS, Uncovered, shape_of


def test_shapes_and_dtypes_in_order():
    args = (torch.zeros(2, 3), [torch.zeros(4, dtype=torch.int64), "secret"], 7)
    assert shape_of(args, {"mask": torch.ones((), dtype=torch.bool)}) == "float32[2,3] int64[4] bool[]"


def test_nothing_of_the_content_or_the_names():
    assert shape_of(("password", {"token": "x"}), {"name": "y"}) == "none"


def test_a_long_or_deep_call_is_cut():
    nested = torch.zeros(1)
    for _ in range(10):
        nested = [nested]
    assert shape_of(tuple(torch.zeros(1) for _ in range(20)), {}) == " ".join(["float32[1]"] * 8 + ["more"])
    assert shape_of((nested,), {}) == "none"


def test_counts_are_taken_once_and_kept_for_the_end():
    counts = Uncovered()
    for _ in range(3):
        counts.add((torch.zeros(2),), {})
    assert counts.take() == {"float32[2]": 3}
    assert counts.take() == {}
    counts.add((torch.zeros(5),), {})
    assert counts.take() == {"float32[5]": 1}
    assert counts.total() == {"float32[2]": 3, "float32[5]": 1}


def test_ever_new_shapes_do_not_fill_the_memory():
    counts = Uncovered()
    for size in range(MAX_SHAPES + 50):
        counts.add((torch.zeros(size),), {})
    counts.add((torch.zeros(0),), {})
    total = counts.total()
    assert len(total) == MAX_SHAPES + 1
    assert total[OTHERS] == 50
    assert total["float32[0]"] == 2


def told(counts, *sizes):
    """What was worth telling in the course of these calls."""
    return [counts.total() for size in sizes if counts.add((torch.zeros(size),), {})]


def test_the_counts_are_told_when_one_has_doubled():
    counts = Uncovered()
    assert told(counts, *[2] * 100) == [{"float32[2]": 2**power} for power in range(1, 7)]
    assert told(counts, 3) == [], "a single call is worth no bucket"
    assert told(counts, *[3] * 3) == [{"float32[2]": 100, "float32[3]": count} for count in (2, 4)]
    # Of the first, 100 were told with the second's.
    assert told(counts, *[2] * 100) == [{"float32[2]": 200, "float32[3]": 4}]


def test_what_was_told_last_is_more_than_half_of_what_came_more_than_once():
    counts, last, draw = Uncovered(), {}, random.Random(7)
    for _ in range(5000):
        last = (told(counts, min(int(draw.expovariate(0.2)), 50)) or [last])[-1]
        assert all(2 * last.get(shape, 0) > count for shape, count in counts.total().items() if count > 1)


def test_however_many_come_the_counts_are_told_so_many_times():
    counts = Uncovered()
    # Each shape doubles six times, after the one before it.
    sizes = [size for size in range(MAX_SHAPES) for _ in range(64)]
    assert len(told(counts, *sizes, *sizes)) == MAX_TOLD


def test_whose_calls_a_shape_is_of_is_known():
    counts = Uncovered()
    counts.add((torch.zeros(2),), {}, "unet")
    counts.add((torch.zeros(2),), {}, "vae")
    counts.add((torch.zeros(3),), {})
    assert counts.modules == {"float32[2]": "unet"}
