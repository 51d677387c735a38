"""What is written of a secret, in the forms in which exceptions quote it, and of URLs."""

from __future__ import annotations

import json
import os
import re
import textwrap
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from preheat_compiler.build import words
from preheat_compiler.faults import describe, failed
from preheat_compiler.graphs import _reason
from preheat_compiler.package import CompileFailed, _first_lines
from preheat_compiler.progress import Termination, say
from preheat_compiler.report import Report
from preheat_compiler.verdict import TargetResult
from preheat_runtime.redaction import redact

if TYPE_CHECKING:
    from pathlib import Path

PEM = "-----BEGIN KEY-----\nMIIBVQIBADANBgkqhkiG\nabcdefghijklmnopqr==\n-----END KEY-----"
ENVIRONMENT = {
    "HF_TOKEN": "hf_abcdef",
    "AWS_SECRET_ACCESS_KEY": "s3cr3ts3cr3t",
    "KEYBOARD": "qwertyuiop",
    "PASSWORD": "x",
    "SIGNING_PRIVATE_KEY": PEM,
    "API_TOKEN": "sk-0123456789abcdefghij\n",
    "QUOTED_TOKEN": "ab'c\\dSECRETSECRET",
    "HF_TOKEN_PATH": "/root/.cache/hf/token",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "GET https://user:pw@host/a?X-Amz-Signature=12ab failed: hf_abcdef s3cr3ts3cr3t qwertyuiop x",
            "GET https://host/a failed: <HF_TOKEN> <AWS_SECRET_ACCESS_KEY> qwertyuiop x",
        ),
        (f"cannot use key {PEM}", "cannot use key <SIGNING_PRIVATE_KEY>"),
        (f"cannot use key {' '.join(PEM.split())}", "cannot use key <SIGNING_PRIVATE_KEY>"),
        (repr(KeyError(PEM)), "KeyError('<SIGNING_PRIVATE_KEY>')"),
        (json.dumps({"key": PEM}), '{"key": "<SIGNING_PRIVATE_KEY>"}'),
        (repr(json.dumps({"key": PEM})), """'{"key": "<SIGNING_PRIVATE_KEY>"}'"""),
        ("line 2 is no base64: MIIBVQIBADANBgkqhkiG!", "line 2 is no base64: <SIGNING_PRIVATE_KEY>!"),
        ("token 'sk-0123456789abcdefghij'", "token '<API_TOKEN>'"),
        (f"bad token {ENVIRONMENT['QUOTED_TOKEN']!r}", 'bad token "<QUOTED_TOKEN>"'),
        (f"""in {[f'"{ENVIRONMENT["QUOTED_TOKEN"]}']}""", """in ['"<QUOTED_TOKEN>']"""),
        (f"GET /q/{quote(ENVIRONMENT['QUOTED_TOKEN'])}", "GET /q/<QUOTED_TOKEN>"),
        # What others have cut.
        ("input 'sk-0123456789...89abcdefghij', a str", "input '<API_TOKEN>...<API_TOKEN>', a str"),
        ("input sk-0123456789 ...", "input <API_TOKEN> ..."),
        ("input sk-0123456789", "input <API_TOKEN>"),
        # What only begins as one does, is none.
        ("no /root/.cache/hf/model.pt ...", "no /root/.cache/hf/model.pt ..."),
    ],
)
def test_a_secret_is_taken_out_however_it_is_written(text: str, expected: str) -> None:
    assert redact(text, ENVIRONMENT) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "cannot connect to postgres://admin:p@ssw0rd/x@db.example:5432/models?sslpassword=hunter2hunter",
            "cannot connect to postgres://db.example:5432/models",
        ),
        ("redis://:pw@h:1/0, s3://b/x?versionId=1#f", "redis://h:1/0, s3://b/x"),
        ("git+https://tok/en@example.org/x.git", "git+https://example.org/x.git"),
        ("see 'https://u@h/x?q=it' (https://h/y?a=b), then", "see 'https://h/x' (https://h/y), then"),
        ("see https://github.com/org/model@v1, or http://localhost:8000/x.", None),
        ("file:///models/a@v1, s3://models/a@v1, hf://org/a@main", None),
        ("s3://key:se/cret@models/a@v1?x", "s3://v1"),
        ("http://a.example/x@1,ftp://u:p@h/y", "http://a.example/x@1,ftp://h/y"),
    ],
)
def test_of_urls_no_users_and_no_queries_are_left(text: str, expected: str | None) -> None:
    assert redact(text, {}) == (text if expected is None else expected)


def test_what_utf_8_cannot_hold_is_escaped() -> None:
    assert redact("no weights at " + os.fsdecode(b"/models/caf\xe9.pt"), {}) == r"no weights at /models/caf\udce9.pt"


def test_long_words_take_no_time() -> None:
    word = "a.b+c-" * 50_000
    assert redact(word, ENVIRONMENT) == word


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> re.Pattern[str]:
    """Secrets in the environment; what would be found of them where they get through, even in part."""
    monkeypatch.setenv("SIGNING_PRIVATE_KEY", PEM)
    monkeypatch.setenv("API_TOKEN", "sk-0123456789abcdefghij")
    return re.compile("MIIB|abcdefgh|sk-0123")


def test_what_is_cut_and_folded_is_redacted_before(secrets: re.Pattern[str]) -> None:
    for length in range(650, 710):
        filling = "x" * length
        for error in (
            RuntimeError(f"{filling} sk-0123456789abcdefghij"),
            RuntimeError(f"{filling} {PEM}"),
        ):
            said = [
                describe(error),
                describe(error, limit=length + 9),
                str(failed("FactoryFailed", "calling it", error, remedy="")),
                words(CompileFailed(str(error)[170:])),
                _first_lines(RuntimeError(str(error)[70:])),
                _reason(str(error)[380:]),
            ]
            assert [each for each in said if secrets.search(each)] == []


def test_no_secret_gets_into_what_is_written(
    tmp_path: Path, secrets: re.Pattern[str], capsys: pytest.CaptureFixture[str]
) -> None:
    quoted = f"cannot use {PEM} of caf\udce9"
    result = TargetResult(module="m", bucket="b", verdict="Failed", reason="Internal", message=quoted)
    report = Report(target="m/b")
    report.note("fallbacks", tier="package", why=quoted, said=[{"reason": quoted}])
    report.write(tmp_path, result, hardware="cpu")
    Termination(tmp_path / "termination").fault("Internal", quoted)
    say(quoted)
    written = {
        "report": json.loads((tmp_path / "report.json").read_text())["fallbacks"][0]["said"][0]["reason"],
        "message": json.loads((tmp_path / "report.json").read_text())["message"],
        "termination": json.loads((tmp_path / "termination").read_text())["message"],
        "result": result.to_json()["message"],
        "log": capsys.readouterr().out.strip().partition(": ")[2],
    }
    assert written == dict.fromkeys(written, r"cannot use <SIGNING_PRIVATE_KEY> of caf\udce9")
    assert not secrets.search((tmp_path / "report.json").read_text())


def test_a_secret_that_the_users_code_took_out_of_the_environment_is_known_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("preheat_runtime.redaction._AT_FIRST", {"API_TOKEN": "sk-0123456789abcdefghij"})
    monkeypatch.delenv("API_TOKEN", raising=False)
    assert redact("refused: sk-0123456789abcdefghij") == "refused: <API_TOKEN>"


def test_the_rest_of_a_sentence_stays() -> None:
    text = textwrap.dedent("""\
        two lines (https://a.example/x?y=z).
        and "another"?""")
    assert redact(text, ENVIRONMENT) == text.replace("?y=z", "")
