"""The page's plots, as SVG.

By pygal, because it is small and draws SVG in Python: a plotting library for screens would be the largest part of the
image that every node pulls, and one for browsers would put its megabytes into every page. What pygal adds for live
pages (scripts, the date, random names) and to Python's imports is taken out again, so that a page is still and always
the same, and nothing but plots comes of it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

import pygal
from pygal.style import Style

# pygal puts an import hook for its map plugins before everybody else's, of a kind that Python 3.12 no longer knows.
sys.meta_path[:] = [hook for hook in sys.meta_path if type(hook).__module__ != "pygal"]

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preheat_operator.report.read import Report

EAGER: Final = "var(--eager)"
COMPILED: Final = "var(--compiled)"
_FONT: Final = "system-ui, sans-serif"
_STYLE: Final[dict[str, Any]] = {
    "background": "transparent", "plot_background": "transparent", "foreground": "var(--ink)",
    "foreground_strong": "var(--ink)", "foreground_subtle": "var(--line)", "guide_stroke_color": "var(--line)",
    "major_guide_stroke_color": "var(--line)", "font_family": _FONT, "label_font_family": _FONT,
    "major_label_font_family": _FONT, "value_font_family": _FONT, "legend_font_family": _FONT, "title_font_family": _FONT,
    "label_font_size": 14, "major_label_font_size": 14, "legend_font_size": 15, "value_font_size": 14,
    "title_font_size": 15, "opacity": ".9", "opacity_hover": "1", "transition": "none",
    "stroke_width": "2.5", "stroke_width_hover": "2.5",
    "value_colors": ("var(--ink)",) * 16,
}  # fmt: skip
_MOST_BARS: Final = 12
_MOST_MEDIANS: Final = 5
_LONGEST_LABEL: Final = 34


def latency(report: Report) -> list[tuple[str, ElementTree.Element]]:
    """For each size that was timed, how many of the calls were answered within how long."""
    plots = []
    for index, record in enumerate(report.records("speed")[:4]):
        sides = {kind: record.numbers(f"{kind}QuantilesMs") for kind in ("eager", "compiled")}
        if any(len(values) != 101 for values in sides.values()):
            continue
        # Else a few slow calls would be most of the picture: on a busy machine p99 can be a hundred medians.
        most = _MOST_MEDIANS * max(values[50] for values in sides.values())
        lines = {
            kind: [(value, share) for share, value in enumerate(values[:100]) if value <= most]
            for kind, values in sides.items()
        }
        chart = pygal.XY(
            **_common(340), stroke=True, show_dots=False, legend_at_bottom=True, range=(0, 100),
            x_title="answered within so many milliseconds", y_title="% of calls", style=_style(EAGER, COMPILED),
            x_value_formatter=_short, value_formatter=_short, truncate_legend=-1,
        )  # fmt: skip
        chart.add("eager", lines["eager"], stroke_style={"dasharray": "8, 4"})
        chart.add("compiled", lines["compiled"])
        plots.append((record.text("inputs") or "", _drawn(chart, f"latency-{index}")))
    return plots


def first_answer(report: Report) -> ElementTree.Element | None:
    """Median seconds from the start of a process to its first answer, by how it is served."""
    record = next(iter(report.records("firstAnswers")), None)
    if record is None:
        return None
    served, eager = record.numbers("served"), record.numbers("eager")
    if not served or not eager:
        return None
    how = {"package": "hot: from the package", "caches": "warm: from compiler caches"}
    label = how.get(report.text("tier") or "", "served")
    bars = [(label, _median(served), COMPILED), ("eager", _median(eager), EAGER)]
    return _bars("first-answer", bars, height=190, unit="s")


def submodules(report: Report) -> ElementTree.Element | None:
    """The submodules in which eager spends most of its time."""
    record = next((each for each in report.records("submodules") if each.text("kind") == "eager"), None)
    if record is None:
        return None
    bars = [
        (_cut(entry.text("name") or ""), share * 100, EAGER)
        for entry in record.records("entries")[:_MOST_BARS]
        if (share := entry.number("share")) is not None
    ]
    return _bars("submodules", bars[::-1], height=90 + 30 * len(bars), unit="%") if bars else None


def _bars(name: str, bars: Sequence[tuple[str, float, str]], *, height: int, unit: str) -> ElementTree.Element:
    chart = pygal.HorizontalBar(
        **_common(height), style=_style(EAGER), show_legend=False, print_values=True,
        value_formatter=lambda value: f"{_short(value)} {unit}", zero=0, max_scale=6, range=(0, max(value for _, value, _ in bars) * 1.15),
        print_values_position="top",
    )  # fmt: skip
    chart.x_labels = [label for label, _, _ in bars]
    chart.add("", [{"value": value, "color": colour} for _, value, colour in bars])
    return _drawn(chart, name)


def _common(height: int) -> dict[str, Any]:
    return {
        "width": 580, "height": height, "js": (), "pretty_print": False, "explicit_size": False, "margin": 12,
        "show_x_guides": False, "disable_xml_declaration": True, "classes": ("plot-svg",), "no_prefix": False,
        "spacing": 8,
    }  # fmt: skip


def _style(*colours: str) -> Style:
    return Style(**_STYLE, colors=colours)


def _drawn(chart: Any, name: str) -> ElementTree.Element:
    # Random by default; the page refers to nothing by it, and the same report must give the same page.
    chart.uuid = name
    root: ElementTree.Element = chart.render_tree()
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("script", ElementTree.Comment):
                parent.remove(child)
    root.set("role", "img")
    return root


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}".replace(",", "\u202f")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else f"…{text[1 - _LONGEST_LABEL :]}"
