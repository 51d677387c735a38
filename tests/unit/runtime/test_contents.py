"""The memory of numpy's arrays, as it is hashed: all of it, and of a large one never a copy."""

import numpy
import pytest

from preheat_runtime.contents import memory

ARRAYS = {
    "in order": numpy.arange(12.0).reshape(3, 4),
    "turned": numpy.arange(12.0).reshape(3, 4).T,
    "every other": numpy.arange(24.0).reshape(6, 4)[::2, ::3],
    "dates": numpy.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"),
    "fields": numpy.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "bools": numpy.array([True, False]),
    "complex": numpy.array([1j]),
    "text": numpy.array(["ab", "c"]),
    "nothing": numpy.zeros((0, 3)),
    "a number in no dimension": numpy.array(2.0),
    "large and turned": numpy.arange(3_000_000).reshape(1000, 3000).T,
    "a number": numpy.float32(2.0),
    "read only": numpy.frombuffer(b"abcd", dtype="u1"),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())
def test_an_arrays_memory_is_its_bytes(array):
    assert b"".join(bytes(part) for part in memory(array)) == array.tobytes()


@pytest.mark.parametrize("turned", [False, True])
def test_a_large_array_is_not_copied(turned, monkeypatch):
    array = numpy.zeros((4000, 8000), dtype="u1")
    sizes = [memoryview(part).nbytes for part in memory(array.T if turned else array)]
    assert sum(sizes) == array.nbytes
    if turned:
        assert max(sizes) < array.nbytes / 8
    else:
        assert all(numpy.shares_memory(part, array) for part in memory(array))
