"""The policy's text: rendering, and that the chart has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from preheat_operator.injection import cel, policy
from preheat_operator.injection.additions import Input, Maybe
from preheat_operator.injection.refusals import REFUSALS
from preheat_operator.injection.settings import InjectionSettings

if TYPE_CHECKING:
    import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
SETTINGS = InjectionSettings(image='r/"quoted"\\', cluster_id="c1", store_bucket="b")


def test_the_chart_has_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert policy.main(["--check", "--root", str(REPOSITORY)]) == 0, capsys.readouterr().err


def test_the_check_notices_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert policy.main(["--root", str(tmp_path)]) == 0
    path = tmp_path / "charts" / "preheat" / "templates" / "injection-policy.yaml"
    path.write_text(path.read_text().replace("65532", "0").replace("Ignore", "Fail"))
    assert policy.main(["--check", "--root", str(tmp_path)]) == 1
    assert "is stale" in capsys.readouterr().err


def test_a_pod_starts_whatever_happens_to_the_policy() -> None:
    spec = policy.documents(policy.values_of(SETTINGS))[0]["spec"]
    assert spec["failurePolicy"] == "Ignore"
    assert spec["paramKind"]["kind"] == "CompiledModelIndex"


def test_chart_and_concrete_policy_have_the_same_settings() -> None:
    assert policy.HELM_VALUES.settings.keys() == policy.values_of(SETTINGS).settings.keys()


def test_literals() -> None:
    value = {"name": "a", "size": 1, "on": True, "from": Input("x"), "list": [{"k": "v"}]}
    assert cel.literal(value, type_name="Object.spec") == (
        'Object.spec{name: "a", size: 1, on: true, from: variables.x, list: [Object.spec.list{k: "v"}]}'
    )
    given = Input("x", optional=True)
    assert cel.literal({"user": Maybe(given=given, value=given)}, type_name="O") == (
        "O{?user: (size(variables.x) == 1 ? optional.of(variables.x[0]) : optional.none())}"
    )


def test_text_cannot_leave_its_quotes() -> None:
    assert cel.constant('a"b\\\n') == '"a\\"b\\\\\\n"'
    assert policy.values_of(SETTINGS).settings["fetchImage"] == '"r/\\"quoted\\"\\\\"'


def test_words() -> None:
    assert cel.words("no {a} in {b}!") == '"no " + variables.a + " in " + variables.b + "!"'
    assert cel.words("{a}") == "variables.a"


def test_every_refusal_has_its_own_words() -> None:
    assert len({entry.why for entry in REFUSALS}) == len(REFUSALS)
