"""Closed lists agree with the documents that promise them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from preheat_operator.api import names
from preheat_operator.api.conditions import REASONS_OF_CONDITION, ConditionReason, ConditionType
from preheat_operator.api.enums import REASONS_OF_VERDICT, Verdict, VerdictReason

DOCS = Path(__file__).resolve().parents[3] / "docs"
CONTRACTS = (DOCS / "contracts.md").read_text()
CONDITIONS = (DOCS / "conditions.md").read_text()


def test_every_reason_is_documented_and_no_other() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+)\|", CONDITIONS.split("## Reasons")[1].split("\n## ")[0], flags=re.MULTILINE
    )
    assert [name for name, _ in rows] == [reason.value for reason in ConditionReason]


def test_reasons_are_documented_for_the_conditions_they_occur_in() -> None:
    rows = dict(
        re.findall(r"^\| `(\w+)` \| ([^|]+)\|", CONDITIONS.split("## Reasons")[1].split("\n## ")[0], flags=re.MULTILINE)
    )
    for reason in ConditionReason:
        found = {type_.value for (type_, _), reasons in REASONS_OF_CONDITION.items() if reason in reasons}
        said = {
            type_.value for type_ in ConditionType if type_.value in rows[reason.value] or "all" in rows[reason.value]
        }
        assert said == found, reason


def test_every_reason_occurs() -> None:
    assert set().union(*REASONS_OF_CONDITION.values()) == set(ConditionReason)
    assert {type_ for type_, _ in REASONS_OF_CONDITION} == set(ConditionType)


@pytest.mark.parametrize("verdict", Verdict)
def test_verdicts_and_their_reasons_are_those_of_the_contract(verdict: Verdict) -> None:
    table = CONTRACTS.split("### Verdicts and reasons")[1].split("###")[0]
    row = next(line for line in table.splitlines() if line.startswith(f"| {verdict.value} "))
    assert {VerdictReason(word) for word in re.findall(r"`(\w+)`", row)} == REASONS_OF_VERDICT[verdict]


def test_every_name_of_the_contract_is_a_constant() -> None:
    known = {value for value in vars(names).values() if isinstance(value, str)}
    section = CONTRACTS.split("## 1. Names in Kubernetes")[1].split("## 3.")[0]
    promised = {word.split(":")[0] for word in re.findall(r"`(preheat\.dev/[^`]+)`", section)}
    promised |= set(re.findall(r"`(PREHEAT_[A-Z_]+)`", section)) - {"PREHEAT_DISABLE", "PREHEAT_LOG", "PREHEAT_JOB_UID"}
    assert promised
    assert promised <= known
