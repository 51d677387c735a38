"""The report as a table: one row for each measurement, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from preheat_operator.report.read import Record, Report

COLUMNS: Final = (
    "module", "bucket", "hardware", "section", "subject", "inputs", "measurement", "value", "unit",
)  # fmt: skip
"""Told in docs/report.md."""

_SPEED: Final = {
    "Calls": ("calls", ""), "P50Ms": ("p50", "ms"), "P95Ms": ("p95", "ms"), "P99Ms": ("p99", "ms"),
    "MeanMs": ("mean", "ms"), "CallsPerSecond": ("throughput", "1/s"), "DeviationMs": ("standard deviation", "ms"),
    "Variation": ("coefficient of variation", ""),
}  # fmt: skip
_BYTES: Final = {
    "beforeBytes": "before", "peakBytes": "peak", "growthBytes": "growth", "devicePeakBytes": "device peak",
}  # fmt: skip

Row = tuple[str, str, str, str, str, str]
"""section, subject, inputs, measurement, value, unit."""


def table(report: Report) -> str:
    """Return the CSV text, with a header and lines that end in \\r\\n (RFC 4180)."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    target = [report.text(name) or "" for name in ("module", "bucket", "hardware")]
    for section, subject, inputs, measurement, value, unit in rows(report):
        cells = [*target, section, subject, inputs, measurement]
        writer.writerow([*map(_harmless, cells), _harmless(value) if section == "verdict" else value, unit])
    return out.getvalue()


def rows(report: Report) -> Iterator[Row]:
    """Every measurement of the report, in the order of the page."""
    for name in ("verdict", "reason", "tier"):
        if text := report.text(name):
            yield "verdict", "", "", name, text, ""
    figures = report.record("figures")
    for name in sorted(figures.fields):
        if value := figures.decimal(name):
            yield "figures", "", "", name, value, _unit(name)
    yield from _speed(report)
    for record in report.records("firstAnswers"):
        for kind in ("eager", "served"):
            for value in (each for each in _decimals(record, kind)):
                yield "firstAnswers", kind, "", "seconds", value, "s"
    for record in report.records("memory"):
        for name, measurement in _BYTES.items():
            if value := record.decimal(name):
                yield "memory", record.text("kind") or "", record.text("peakOf") or "", measurement, value, "B"
    for section in ("errors", "reference"):
        for record in report.records(section):
            for name in ("maximum", "mean", "nonFinite", "nonFiniteApart"):
                if value := record.decimal(name):
                    subject = record.text("kind") or "compiled"
                    yield section, subject, record.text("inputs") or "", name, value, ""
    for section, subject, name in (("stages", "", "name"), ("compile", "tier", "stage")):
        for record in report.records(section):
            if value := record.decimal("seconds"):
                yield section, record.text(subject) or "" if subject else "", "", record.text(name) or "", value, "s"
    yield from _submodules(report)
    yield from _graphs(report)


def _speed(report: Report) -> Iterator[Row]:
    for record in report.records("speed"):
        inputs = record.text("inputs") or ""
        for name in ("speedup", "speedupLow", "speedupHigh", "pairs", "callsPerSample"):
            if value := record.decimal(name):
                yield "speed", "", inputs, name, value, ""
        for kind in ("eager", "compiled"):
            for name, (measurement, unit) in _SPEED.items():
                if value := record.decimal(f"{kind}{name}"):
                    yield "speed", kind, inputs, measurement, value, unit


def _submodules(report: Report) -> Iterator[Row]:
    for record in report.records("submodules"):
        kind, inputs = record.text("kind") or "", record.text("inputs") or ""
        for name, unit in (("callMs", "ms"), ("generatedMs", "ms")):
            if value := record.decimal(name):
                yield "submodules", kind, inputs, name, value, unit
        for entry in record.records("entries"):
            for name, unit in (("selfMs", "ms"), ("share", ""), ("cumulative", "")):
                if value := entry.decimal(name):
                    yield "submodules", f"{kind}: {entry.text('name') or ''}", inputs, name, value, unit


def _graphs(report: Report) -> Iterator[Row]:
    for record in report.records("graphs"):
        for name in ("graphs", "recompiles"):
            if value := record.decimal(name):
                yield "graphs", "", "", name, value, ""
        yield "graphs", "", "", "breaks", str(len(record.records("breaks"))), ""
    for record in report.records("regions"):
        first = next(iter(record.texts("paths")), "")
        yield "regions", first, "", "blocks", str(len(record.texts("paths"))), ""
        for name in ("seconds", "sizeBytes"):
            if value := record.decimal(name):
                yield "regions", first, "", name, value, "s" if name == "seconds" else "B"
    for record in report.records("tuning"):
        for name, unit in (("tuned", ""), ("untuned", ""), ("seconds", "s")):
            if value := record.decimal(name):
                yield "tuning", "", "", name, value, unit


def _decimals(record: Record, name: str) -> list[str]:
    value = record.fields.get(name)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) and record.numbers(name) else []


def _unit(name: str) -> str:
    return next((unit for end, unit in (("Ms", "ms"), ("Seconds", "s"), ("Bytes", "B")) if name.endswith(end)), "")


def _harmless(cell: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
