"""How much each pod, and each namespace, may report: a bucket of tokens for each, in bounded memory.

Why it exists: one pod in a loop must not take the server's time from all others, nor fill its memory with names.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from preheat_operator.answers.identity import Pod


@dataclass(frozen=True, kw_only=True)
class Rate:
    """`burst` at once, and `per_second` on and on."""

    burst: float
    per_second: float


PER_POD: Final = Rate(burst=30, per_second=0.5)
"""A pod sends at its processes' first answers, and then once a minute from each."""
PER_NAMESPACE: Final = Rate(burst=1000, per_second=50)
REVIEWS: Final = Rate(burst=200, per_second=50)
"""What may be asked of the API server about tokens that are not known."""


class Limiter:
    """One rate for each key. Of more than `most` keys the longest unused is forgotten, and so begins anew."""

    def __init__(self, rate: Rate, *, most: int = 10_000) -> None:
        self._rate = rate
        self._most = most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, key: str, now: float) -> bool:
        """Whether one more is within the rate; if so, it is counted."""
        left, since = self._left.pop(key, (self._rate.burst, now))
        left = min(self._rate.burst, left + (now - since) * self._rate.per_second)
        allowed = left >= 1
        self._left[key] = (left - 1 if allowed else left, now)
        while len(self._left) > self._most:
            self._left.popitem(last=False)
        return allowed

    def __len__(self) -> int:
        return len(self._left)


class Limits:
    """The rates of pods and of their namespaces together."""

    def __init__(self, *, pod: Rate = PER_POD, namespace: Rate = PER_NAMESPACE) -> None:
        self._pods = Limiter(pod)
        self._namespaces = Limiter(namespace)

    def allows(self, pod: Pod, now: float) -> bool:
        """Whether a pod may report once more; what its own rate refuses does not count against its namespace."""
        return self._pods.allows(f"{pod.namespace}/{pod.uid}", now) and self._namespaces.allows(pod.namespace, now)
