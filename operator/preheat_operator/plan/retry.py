"""Whether an attempt without a result is followed by another, when, and what is said of it in the end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from preheat_operator.api.conditions import ConditionReason
from preheat_operator.api.enums import VerdictReason
from preheat_operator.plan.verdicts import RetryCause


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Patience with one cause. Waits double from `first_wait_seconds` to `longest_wait_seconds`.

    `needs_person`: while it is tried again, somebody should already know. `verdict` and `condition` are what is said
    in the end; `condition` also meanwhile, where a person is needed.
    """

    attempts: int
    first_wait_seconds: int
    longest_wait_seconds: int
    verdict: VerdictReason
    condition: ConditionReason
    needs_person: bool


# Each attempt compiles again, so there are few of them, further and further apart: what a person must repair
# (credentials) is tried for about half an hour, a store that is down for about a quarter.
POLICIES: Final[dict[RetryCause, Policy]] = {
    RetryCause.STORE_UNREACHABLE: Policy(
        attempts=6, first_wait_seconds=30, longest_wait_seconds=600,
        verdict=VerdictReason.STORE_UNAVAILABLE, condition=ConditionReason.STORE_UNREACHABLE, needs_person=True),
    RetryCause.STORE_DENIED: Policy(
        attempts=6, first_wait_seconds=60, longest_wait_seconds=1800,
        verdict=VerdictReason.STORE_UNAVAILABLE, condition=ConditionReason.STORE_DENIED, needs_person=True),
    RetryCause.STORE_CREDENTIALS_MISSING: Policy(
        attempts=6, first_wait_seconds=60, longest_wait_seconds=1800, needs_person=True,
        verdict=VerdictReason.STORE_UNAVAILABLE, condition=ConditionReason.STORE_CREDENTIALS_MISSING),
    RetryCause.KILLED: Policy(
        attempts=4, first_wait_seconds=10, longest_wait_seconds=300,
        verdict=VerdictReason.KILLED, condition=ConditionReason.ALL_TARGETS_FAILED, needs_person=False),
    # Each attempt leaves out one target; beyond this many the machine, or what the pod may have of it, is plainly too small.
    RetryCause.OUT_OF_MEMORY: Policy(
        attempts=6, first_wait_seconds=0, longest_wait_seconds=0,
        verdict=VerdictReason.OUT_OF_MEMORY, condition=ConditionReason.ALL_TARGETS_FAILED, needs_person=False),
    RetryCause.DISK_FULL: Policy(
        attempts=6, first_wait_seconds=0, longest_wait_seconds=0,
        verdict=VerdictReason.DISK_FULL, condition=ConditionReason.ALL_TARGETS_FAILED, needs_person=False),
    RetryCause.RESULT_LOST: Policy(
        attempts=4, first_wait_seconds=0, longest_wait_seconds=60,
        verdict=VerdictReason.RESULT_LOST, condition=ConditionReason.RESULT_LOST, needs_person=False),
}  # fmt: skip


def may_retry(*, cause: RetryCause, attempt: int) -> bool:
    """Whether attempt `attempt`, which ended for `cause`, is followed by another one."""
    return attempt < POLICIES[cause].attempts


def not_before(*, cause: RetryCause, attempt: int, ended_at: datetime) -> datetime:
    """When the attempt after `attempt` may start: exponential backoff, so a broken store is not hammered."""
    policy = POLICIES[cause]
    doublings = max(0, min(attempt - 1, 16))
    return ended_at + timedelta(seconds=min(policy.first_wait_seconds * 2**doublings, policy.longest_wait_seconds))
