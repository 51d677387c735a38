"""What every benchmark needs: where things are, what was measured where, intervals as JSON."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from preheat_compiler.intervals import Interval

ROOT = Path(__file__).resolve().parents[1]
#: Where measured figures are committed.
MEASURED = ROOT / "docs" / "measured"
LAUNCHER = ROOT / "compiler_job" / "preheat_compiler" / "launch" / "compile.py"


def add_out(parser: argparse.ArgumentParser) -> None:
    """The option `--out`, by default where measured figures are kept."""
    parser.add_argument("--out", type=out_folder, default=MEASURED)


def out_folder(text: str) -> Path:
    """A folder to write to, made when the command line is read: not where hours of measuring have nowhere to go."""
    try:
        (place := Path(text)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}; name a folder that can be written to") from error
    return place


def commit() -> str:
    """The short hash of what is checked out."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def origin() -> dict[str, str]:
    """What was measured when and on which machine, as every file of figures says first."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return {"commit": commit(), "date": today, "machine": machine()}


def save(out: Path, name: str, results: Mapping[str, Any], text: str) -> None:
    """Write `name`.json for programs and `name`.md for readers."""
    (out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / f"{name}.md").write_text(text)


def earlier(place: Path, key: str) -> dict[str, dict[str, Any]]:
    """The rows of a table that is renewed row by row, by what names them; none where there is no file yet."""
    return {each[key]: each for each in json.loads(place.read_text())} if place.exists() else {}


def vars_of(interval: Interval) -> dict[str, float]:
    """An interval as JSON."""
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high, "samples": interval.samples}


def machine() -> str:
    """Processor, instruction set and cores, as a reader needs them to compare."""
    text = Path("/proc/cpuinfo").read_text()
    name = next(
        (s.split(":", 1)[1].strip() for s in text.splitlines() if s.startswith("model name")), platform.machine()
    )
    flags = next((s for s in text.splitlines() if s.startswith("flags")), "").split()
    isa = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    return f"{name}, {isa}, {os.cpu_count()} cores"
