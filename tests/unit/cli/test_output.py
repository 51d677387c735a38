"""Where results cannot be written, or nobody reads them: the exit code says what was found all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from preheat_operator.cli import exits
from unit.cli.conftest import document

if TYPE_CHECKING:
    from unit.cli.conftest import Place

INSPECT = ("inspect", "--store", "store", "vision")


def redirected(place: Place, where: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command as a shell starts it, with its standard streams as `where` says."""
    return subprocess.run(
        ["/bin/bash", "-c", f'exec "$@" {where}', "bash", sys.executable, "-m", "preheat_operator.cli", *words],
        cwd=place.folder, env={**place.environment, **env}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def to_nobody(place: Place, *words: str, **env: str) -> tuple[int, str]:
    """The command's exit code and standard error where its reader went away before it wrote."""
    with subprocess.Popen(
        [sys.executable, "-m", "preheat_operator.cli", *words], cwd=place.folder, env={**place.environment, **env},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    return process.returncode, said


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_reader_that_goes_away_does_not_make_a_failed_target_a_success(
    place: Place, finished: str, buffered: str, output: str
) -> None:
    words = ("compile", "-f", "cm.yaml", "--store", "store", "--python", finished, "--output", output)
    code, said = to_nobody(place, *words, PYTHONUNBUFFERED=buffered)
    assert code == exits.DIFFERENT
    assert "Traceback" not in said
    # What the compile has cost is not lost with it.
    digest = place.preheat(*INSPECT, "--output", "json").json["digest"]
    assert said.splitlines()[-1].startswith("preheat: vision-")
    assert f" is {digest} in " in said.splitlines()[-1]


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_reader_that_has_seen_enough_is_no_fault(place: Place, buffered: str) -> None:
    place.publish()
    assert to_nobody(place, *INSPECT, PYTHONUNBUFFERED=buffered) == (exits.OK, "")


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("streams", [">&-", "<&- >&-", ">&- 2>&-"])
def test_without_standard_output_the_code_is_what_was_found(
    place: Place, finished: str, buffered: str, streams: str
) -> None:
    ended = redirected(
        place, streams, "compile", "-f", "cm.yaml", "--store", "store", "--python", finished, PYTHONUNBUFFERED=buffered
    )
    assert ended.returncode == exits.DIFFERENT
    digest = place.preheat(*INSPECT, "--output", "json").json["digest"]
    assert (f" is {digest} in " in ended.stderr) == ("2>&-" not in streams)
    assert "Traceback" not in ended.stderr
    ended = redirected(place, streams, *INSPECT, PYTHONUNBUFFERED=buffered)
    assert (ended.returncode, ended.stderr) == (exits.OK, "")


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_result_that_finds_no_room_is_no_success(place: Place, finished: str, buffered: str) -> None:
    place.publish()
    ended = redirected(place, ">/dev/full", *INSPECT, PYTHONUNBUFFERED=buffered)
    assert (ended.returncode, ended.stderr) == (exits.REFUSED, "preheat: standard output: No space left on device\n")
    words = ("compile", "-f", "cm.yaml", "--store", "store", "--python", finished)
    ended = redirected(place, ">/dev/full", *words, PYTHONUNBUFFERED=buffered)
    digest = place.preheat(*INSPECT, "--output", "json").json["digest"]
    assert ended.returncode == exits.DIFFERENT, "the failed target counts more"
    assert f" is {digest} in " in ended.stderr
    assert "standard output: No space left on device" in ended.stderr
    assert redirected(place, "2>/dev/full", *INSPECT, PYTHONUNBUFFERED=buffered).returncode == exits.OK


def test_a_closed_standard_input_is_said(place: Place) -> None:
    ended = redirected(place, "<&-", "compile", "-f", "-", "--store", "store")
    assert (ended.returncode, ended.stderr) == (exits.USAGE, "preheat: standard input: is closed\n")


def test_words_that_the_output_cannot_hold_are_escaped(place: Place) -> None:
    place.publish(image="registre/modèle:1")
    ended = redirected(place, "", *INSPECT, PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (exits.OK, "")
    assert "registre/mod\\xe8le:1" in ended.stdout


def test_a_fault_of_ours_has_the_code_of_one(place: Place) -> None:
    code = (
        "import sys\nimport preheat_operator.cli.inspect as command\nfrom preheat_operator.cli.main import main\n"
        "command.find = lambda *_: 1 / 0\nsys.exit(main(['inspect', 'vision']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=place.folder, env=place.environment, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (exits.INTERNAL, "")
    assert ended.stderr.splitlines()[-1] == (
        "preheat: Internal: a fault of Preheat: ZeroDivisionError: division by zero"
    )


def test_a_python_that_cannot_be_started_is_said(place: Place) -> None:
    (place.folder / "cm.yaml").write_text(yaml.safe_dump(document()))
    (place.folder / "python").write_bytes(b"\x7fELF no program")
    (place.folder / "python").chmod(0o755)
    ended = place.preheat("compile", "-f", "cm.yaml", "--store", "store", "--python", "./python")
    assert (ended.code, ended.out) == (exits.USAGE, "")
    assert "--python: ./python cannot be started: Exec format error" in ended.err


def test_what_is_written_is_all_there(place: Place) -> None:
    digest = place.publish()
    assert json.loads(redirected(place, "", *INSPECT, "--output", "json").stdout)["digest"] == digest
