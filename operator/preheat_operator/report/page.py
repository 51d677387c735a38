"""The page: what was decided, the figures it rests on, and everything that was seen on the way.

One file, no scripts, nothing loaded from anywhere (a content security policy says so to the browser too), light or dark
as the reader's system is, and fit for paper. What each figure means is told in docs/report.md.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

from preheat_operator.report import plots, sections
from preheat_operator.report.markup import document, element

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from preheat_operator.report.read import Report

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(report: Report) -> str:
    """Return the HTML text."""
    target = f"{report.text('module') or '?'}/{report.text('bucket') or '?'}"
    hardware = report.text("hardware") or "?"
    css = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{target} on {hardware}: {report.text('verdict') or 'report'}"),
        element("style", css),
    )
    body = element(
        "body",
        element(
            "header",
            element("h1", target, element("span", f" on {hardware}", class_="soft")),
            *sections.verdict(report),
            sections.cards(report),
        ),
        element("main", *_plots(report), *sections.tables(report)),
        element(
            "footer",
            "Made by Preheat from report.json. Numbers are those of that file; report.csv holds them as a table.",
        ),
    )
    return document(element("html", head, body, lang="en"))


def _plots(report: Report) -> list[Element]:
    figures = [
        _figure(
            plot, f"latency-{index}", f"How long calls take at {sections.where(inputs)}",
            "Share of single calls that were answered within so many milliseconds: further left is faster, steeper "
            "is steadier. Calls beyond the 99th percentile or five medians are left out.",
        )
        for index, (inputs, plot) in enumerate(plots.latency(report))
    ]  # fmt: skip
    first, parts = plots.first_answer(report), plots.submodules(report)
    if first is not None:
        figures.append(
            _figure(
                first, "first-answer", "First answer of a fresh process",
                "Median seconds from the start of the process, imports and loading the model included. Only how this target "
                "is served was timed, and eager: neither another tier nor torch.compile from nothing.",
            )
        )  # fmt: skip
    if parts is not None:
        figures.append(
            _figure(
                parts, "submodules", "Where eager spends its time",
                "Share of a call that a submodule's own code takes, without the submodules inside it.",
            )
        )  # fmt: skip
    if not figures:
        return [element("p", "Nothing was timed: the target ended before it came to that.", class_="soft")]
    return [element("h2", "At a glance"), element("div", figures, class_="plots")]


def _figure(plot: Element, name: str, title: str, caption: str) -> Element:
    plot.set("aria-label", title)
    # A browser shows an SVG's title as a tooltip wherever the pointer is.
    for own in plot.findall("title"):
        plot.remove(own)
    return element("figure", element("h3", title), plot, element("figcaption", caption), data_plot=name)
