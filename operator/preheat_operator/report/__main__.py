"""`python -m preheat_operator.report report.json -o DIR`: the table and the page of any report.json."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from preheat_operator.report import ReportError, render

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Write report.csv and report.html; returns 0, or 1 when that was not possible."""
    parser = argparse.ArgumentParser(prog="python -m preheat_operator.report", description=main.__doc__)
    parser.add_argument("report", type=Path, help="a target's report.json")
    parser.add_argument("-o", "--out", type=Path, help="folder for the two files; default: that of report.json")
    options = parser.parse_args(argv)
    out = options.out or options.report.parent
    try:
        files = render(options.report.read_bytes())
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (out / name).write_bytes(data)
            sys.stdout.write(f"{out / name}\n")
    except (OSError, ReportError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
