"""What is said reaches whoever reads it; and no stream, however it is set or ended, decides a verdict."""

from __future__ import annotations

import io
import os
import sys

import pytest

from preheat_compiler.progress import complain, say


def test_what_stdout_cannot_hold_is_escaped_and_the_stream_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", errors="strict"))
    say("modèle introuvable ✗")
    assert raw.getvalue().decode("ascii").endswith(r"preheat: mod\xe8le introuvable \u2717" + "\n")
    with pytest.raises(UnicodeEncodeError):  # the user's own code is told as in its pod
        sys.stdout.write("modèle")


def test_undecodable_bytes_are_escaped_too(capsys: pytest.CaptureFixture[str]) -> None:
    complain("no weights at " + os.fsdecode(b"/models/caf\xe9.pt"))
    assert capsys.readouterr().err == r"preheat: no weights at /models/caf\udce9.pt" + "\n"


def test_nobody_needs_to_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    monkeypatch.setattr(sys, "stdout", stream)
    say("one")
    say("two")
    stream.close()  # raises where something of it is still to be written
    monkeypatch.setattr(sys, "stdout", None)
    say("three")
