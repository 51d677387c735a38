"""What a call frees is there for the next one, unless the pod's owner has said what to do with it."""

import subprocess
import sys

import pytest

from preheat_runtime import allocator

#: What compiled code does: three intermediate results of 8 MB, all freed at the end; page faults of a later round.
ROUNDS = """
import ctypes, resource, sys
from preheat_runtime import allocator
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes, libc.memset.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
def once():
    held = [libc.malloc(8 << 20) for _ in range(3)]
    for each in held:
        libc.memset(each, 1, 8 << 20)
    for each in held:
        libc.free(each)
if "keep" in sys.argv:
    print(allocator.keep_freed_memory())
for _ in range(5):
    once()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    once()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10)
"""


def faults(*words, **environment):
    path = {"PYTHONPATH": ":".join(sys.path), **environment}
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS, *words], env=path, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()


def test_freed_memory_is_used_again():
    (alone,) = faults()
    said, kept = faults("keep")
    assert said == "True"
    assert float(kept) < 100 < float(alone)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ("MALLOC_MMAP_THRESHOLD_", "131072"),
        ("MALLOC_TOP_PAD_", "0"),
        ("MALLOC_MMAP_MAX_", "0"),
        ("GLIBC_TUNABLES", "glibc.rtld.nns=1:glibc.malloc.trim_threshold=131072"),
    ],
)
def test_what_the_pods_owner_said_holds(name, value):
    assert allocator.users_own({name: value})
    assert faults("keep", **{name: value})[0] == "False"


def test_other_variables_say_nothing_of_it():
    assert not allocator.users_own({"MALLOC_ARENA_MAX": "2", "GLIBC_TUNABLES": "glibc.rtld.nns=1"})


def test_a_c_library_without_it_is_left_alone(monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    allocator.keep_freed_memory.cache_clear()
    try:
        assert allocator.keep_freed_memory() is False
    finally:
        allocator.keep_freed_memory.cache_clear()
