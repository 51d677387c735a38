"""Rates, in bounded memory, with a clock that is given."""

from __future__ import annotations

from preheat_operator.answers.identity import Pod
from preheat_operator.answers.limits import Limiter, Limits, Rate


def pod(name: str, namespace: str = "a") -> Pod:
    return Pod(namespace=namespace, name=name, uid=name)


def test_a_burst_and_then_so_many_a_second() -> None:
    limiter = Limiter(Rate(burst=3, per_second=0.5))
    assert [limiter.allows("x", 0) for _ in range(5)] == [True, True, True, False, False]
    assert not limiter.allows("x", 1)
    assert limiter.allows("x", 2)
    assert not limiter.allows("x", 2)
    assert [limiter.allows("x", 1000) for _ in range(4)] == [True, True, True, False]


def test_each_key_has_its_own() -> None:
    limiter = Limiter(Rate(burst=1, per_second=0))
    assert [limiter.allows(key, 0) for key in "aabb"] == [True, False, True, False]


def test_memory_is_bounded() -> None:
    limiter = Limiter(Rate(burst=1, per_second=0), most=10)
    for number in range(1000):
        limiter.allows(str(number), 0)
    assert len(limiter) == 10


def test_one_pod_does_not_use_up_what_its_namespace_has() -> None:
    limits = Limits(pod=Rate(burst=2, per_second=0), namespace=Rate(burst=4, per_second=0))
    assert [limits.allows(pod("loop"), 0) for _ in range(50)].count(True) == 2
    assert [limits.allows(pod("other"), 0) for _ in range(2)] == [True, True]
    assert not limits.allows(pod("third"), 0)
    assert limits.allows(pod("elsewhere", "b"), 0)
