"""Exit codes are one table in docs/contracts.md, and what the driver, `publish` and the controller do is that table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from preheat_compiler import driver, processes
from preheat_operator.api.enums import VerdictReason
from preheat_operator.containers import exits
from preheat_operator.plan.objects import ContainerView, JobState, JobView, PodView
from preheat_operator.plan.verdicts import GaveUp, TryAgain, outcome

CONTRACTS = Path(__file__).resolve().parents[3] / "docs" / "contracts.md"


def table() -> dict[str, str]:
    """What the last column says of each code."""
    section = CONTRACTS.read_text(encoding="utf-8").partition("### Exit codes of `compile` and `publish`")[2]
    rows = re.findall(r"^\| ([\w, ]+) \| .+ \| (.*?) ?\|$", section.partition("`compile` writes")[0], re.MULTILINE)
    return {code: retried for code, retried in rows if code != "code"}


def test_every_code_that_is_given_is_in_the_table() -> None:
    given = {driver.EXIT_DONE, driver.EXIT_REQUEST, driver.EXIT_TORCH, driver.EXIT_INTERNAL}
    given |= {exits.OK, exits.RETRY, exits.REQUEST, exits.INTERNAL, exits.REFUSED}
    assert {code for code in table() if code.isdecimal()} == {str(code) for code in given}
    # What a target's own process ends with never leaves the container.
    assert str(processes.EXIT_DISK_FULL) not in table()


def ending(container: str, code: int) -> object:
    failed = ContainerView(name=container, exit_code=code, reason="Error")
    pod = PodView(name="p", namespace="n", uid="u", phase="Failed", containers={container: failed})
    return outcome(JobView(name="j", uid="u", state=JobState.FAILED, attempt=1), [pod])


@pytest.mark.parametrize("container", ["compile", "publish"])
def test_the_controller_retries_what_the_table_says_and_nothing_else(container: str) -> None:
    final = {int(code) for code, retried in table().items() if retried == "no"}
    assert final == {64, 65, 66}
    for code in final:
        assert isinstance(ending(container, code), GaveUp), code
    for code in (1, 137, 143, 139):
        assert isinstance(ending(container, code), TryAgain), code


def test_an_image_without_torch_is_said_to_be_that() -> None:
    said = ending("compile", 65)
    assert isinstance(said, GaveUp)
    assert said.reason is VerdictReason.TORCH_MISSING
