"""The page's section on what torch.compile made of the module: graphs, where they break, regions, tuned kernels.

Apart from `sections`, which is about figures: this is what a user reads with their own source beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from preheat_operator.report.markup import element, rows
from preheat_operator.report.units import size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from preheat_operator.report.read import Record, Report

_MOST_PATHS: Final = 5
"""Of a region with more blocks than this the first is named, and how many there are."""


def graphs(report: Report) -> Iterator[Element | None]:
    """What is known of the graphs, in the order in which a user looks for a fault."""
    for record in report.records("graphs"):
        yield element("p", _how_many(record), data_field="graphs")
        yield rows(
            ("broken at", "because", "the usual remedy"),
            [
                (element("code", each.text("where") or "–"), each.text("reason"), each.text("remedy"))
                for each in record.records("breaks")
            ],
        )
    yield from _drawing(report)
    yield rows(
        ("region", "compiled in s", "size"),
        [(_paths(record), record.decimal("seconds"), size(record.number("sizeBytes")))
         for record in report.records("regions")],
        numbers=frozenset({1, 2}),
    )  # fmt: skip
    for record in report.records("tuning"):
        tuned, untuned = record.decimal("tuned") or "0", record.decimal("untuned") or "0"
        rest = f"; {untuned} have torch's own kernels, since the time for tuning was over" if untuned != "0" else ""
        yield element("p", f"{tuned} operations were tuned in {record.decimal('seconds') or '?'} s{rest}.")


def _how_many(record: Record) -> str:
    count, again = record.decimal("graphs") or "?", record.decimal("recompiles") or "0"
    if count == "0":
        return "torch.compile compiles nothing of it."
    whole = "It is one graph" if count == "1" else f"It is compiled in {count} graphs"
    over = "over the bucket's whole range"
    return f"{whole}, without a recompile {over}." if again == "0" else f"{whole}; {again} recompiles {over}."


def _drawing(report: Report) -> Iterator[Element]:
    """Why two answers may differ, and pods do not compare theirs with eager's."""
    places = dict.fromkeys(
        place for section in ("package", "regions") for record in report.records(section) for place in record.texts("draws")
    )  # fmt: skip
    if places:
        yield element("p", "It draws random numbers, so pods do not hold its answers against eager's:")
        yield element("pre", "\n".join(places), data_field="draws")


def _paths(record: Record) -> Element:
    paths = record.texts("paths")
    named, more = ", ".join(paths[:_MOST_PATHS]), len(paths) - _MOST_PATHS
    return element("code", f"{named} and {more} more" if more > 0 else named)
