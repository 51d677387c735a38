"""From report.json to the two files beside it."""

from __future__ import annotations

from typing import Final

from preheat_operator.report.page import page
from preheat_operator.report.read import Report
from preheat_operator.report.table import table

JSON_FILE: Final = "report.json"
CSV_FILE: Final = "report.csv"
HTML_FILE: Final = "report.html"


def render(data: bytes) -> dict[str, bytes]:
    """Return report.csv and report.html, by name, for the bytes of a report.json.

    Raises ReportError when they are no report of a known format.
    """
    report = Report.parse(data)
    return {CSV_FILE: table(report).encode(), HTML_FILE: page(report).encode()}
