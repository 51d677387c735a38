"""The page's words and tables, one function a section; a section without content is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from preheat_operator.report.graphs import graphs
from preheat_operator.report.markup import element, rows
from preheat_operator.report.read import number
from preheat_operator.report.units import glance, size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from preheat_operator.report.markup import Child
    from preheat_operator.report.read import Record, Report

_SPEED: Final = (
    ("p50", "P50Ms", "ms"), ("p95", "P95Ms", "ms"), ("p99", "P99Ms", "ms"), ("mean", "MeanMs", "ms"),
    ("standard deviation", "DeviationMs", "ms"), ("coefficient of variation", "Variation", ""),
    ("calls a second", "CallsPerSecond", ""), ("calls measured", "Calls", ""),
)  # fmt: skip
_COMPILE: Final = {
    "trace": "tracing and export", "lowering": "lowering and code generation",
    "compiler": "the C++ (or Triton) compiler", "other": "the rest: imports, looking for a compiler, checks, packing",
}  # fmt: skip
_CONDITIONS: Final = {
    "emptyHome": "empty home", "noCompiler": "no compiler", "readOnlyFileSystem": "read-only file system",
    "nonRoot": "not root",
}  # fmt: skip
_ONE: Final = frozenset({1})


def verdict(report: Report) -> list[Element]:
    """The verdict, its reason and its message, and why a better tier was not possible."""
    word = report.text("verdict") or "no verdict"
    known = word if word in ("Kept", "Rejected", "Failed", "NoCapacity") else "Failed"
    tier = {"package": "served hot, from a package", "caches": "served warm, from compiler caches"}
    line = element(
        "p",
        element("span", word, class_=f"badge {known}", data_field="verdict"),
        element("strong", report.text("reason") or "", data_field="reason"),
        element("span", f" · {tier[report.text('tier') or '']}", class_="soft")
        if report.text("tier") in tier
        else None,
    )
    found = [line]
    if message := report.text("message"):
        found.append(element("p", message, data_field="message"))
    for record in report.records("carriedOver"):
        words = f"Not compiled again: all that was seen is of an earlier revision, {record.text('base') or 'unknown'}."
        words += f" There is less of it, since {why}." if (why := record.text("why")) else ""
        found.append(element("p", words, data_field="carriedOver"))
    for record in report.records("fallbacks"):
        found.append(element("h3", f"Why not as a {record.text('tier') or 'package'}"))
        found.append(element("pre", record.text("why") or "", data_field="fallback"))
    return found


def cards(report: Report) -> Element | None:
    """The figures that matter most, large."""
    figures = report.record("figures")
    made = [
        _card("speedup", "Speed, eager = 1", figures.decimal("speedup"), "×", _interval(figures)),
        _card("p50", "One call, median", figures.decimal("compiledP50Ms"), "ms", _against(figures, "eagerP50Ms", "ms")),
        _card(
            "firstAnswer", "First answer", figures.decimal("firstAnswerSeconds"), "s",
            _against(figures, "eagerFirstAnswerSeconds", "s"),
        ),
        _card("maxError", "Largest error", figures.decimal("maxError"), "", "relative to eager's answer"),
        _card(
            "memory", "Peak memory", size(figures.number("compiledPeakBytes")), "",
            f"eager {size(figures.number('eagerPeakBytes'))}" if figures.number("eagerPeakBytes") else None,
        ),
        _card("compile", "Compiling took", figures.decimal("compileSeconds"), "s", None),
        _card("size", "Artifact", size(figures.number("sizeBytes")), "", "what a pod downloads"),
    ]  # fmt: skip
    shown = [each for each in made if each is not None]
    return element("dl", shown, class_="cards") if shown else None


def tables(report: Report) -> list[Element]:
    """Every section with its heading."""
    found: list[Element] = []
    for title, note, parts in (
        ("Speed", "Eager and compiled were timed in interleaved pairs, after warm-up.", list(_speed(report))),
        ("Memory", _MEMORY_NOTE, [_memory(report)]),
        (
            "Accuracy",
            "Largest and mean difference, relative to the largest magnitude of the output.",
            list(_errors(report)),
        ),
        ("Where time goes", "Watching costs time itself: shares are what to read.", list(_submodules(report))),
        ("Graphs", "", list(graphs(report))),
        ("Compiling", "", [_stages(report, "compile"), _stages(report, "stages")]),
        ("Proofs", "", [_proofs(report)]),
        ("Environment", "", [_pairs(report.record("environment")), _fingerprint(report)]),
    ):
        kept = [part for part in parts if part is not None]
        if kept:
            found.append(element("h2", title))
            if note:
                found.append(element("p", note, class_="note soft"))
            found.extend(kept)
    return found


_MEMORY_NOTE: Final = (
    "Bytes resident in fresh processes that load the model and answer at all sizes; growth is the peak less what was "
    "resident before the first call."
)


def _speed(report: Report) -> Iterator[Element | None]:
    for record in report.records("speed"):
        yield element("h3", f"At {where(record.text('inputs'))}")
        low, high = record.decimal("speedupLow"), record.decimal("speedupHigh")
        yield element(
            "p", "speed-up ", element("strong", record.decimal("speedup") or "?"),
            f" (95 % interval {low} to {high}, {record.decimal('pairs')} pairs)" if low and high else None,
        )  # fmt: skip
        yield rows(
            ("", "eager", "compiled", ""),
            [
                (title, _cell(record, f"eager{name}"), _cell(record, f"compiled{name}"), unit)
                for title, name, unit in _SPEED
                if record.decimal(f"eager{name}")
            ],
            numbers=frozenset({1, 2}),
        )


def _memory(report: Report) -> Element | None:
    records = report.records("memory")
    columns = [
        (title, name)
        for title, name in (
            ("before the first call", "beforeBytes"), ("peak", "peakBytes"), ("growth", "growthBytes"),
            ("peak on the device", "devicePeakBytes"),
        )
        if any(record.number(name) is not None for record in records)
    ]  # fmt: skip
    of = {"calls": "the calls", "process": "the process's whole life"}
    return rows(
        ("", *(title for title, _ in columns), "peak of"),
        [
            (
                record.text("kind"),
                *(size(record.number(name)) for _, name in columns),
                of.get(record.text("peakOf") or "", ""),
            )
            for record in records
        ],
        numbers=frozenset(range(1, len(columns) + 1)),
    )


def _errors(report: Report) -> Iterator[Element | None]:
    names = ("maximum", "mean", "nonFinite", "nonFiniteApart")
    yield element("h3", "Against eager, same dtype") if report.records("errors") else None
    yield rows(
        ("inputs", "maximum", "mean", "NaN or infinite in eager", "of them not alike", ""),
        [
            (record.text("inputs"), *(_cell(record, name) for name in names), record.text("why"))
            for record in report.records("errors")
        ],
        numbers=frozenset({1, 2, 3, 4}),
    )
    reference = report.records("reference")
    dtype = next((text for record in reference if (text := record.text("dtype"))), None)
    if reference:
        yield element("h3", f"Both against the same module in {dtype}" if dtype else "Against a more precise run")
    for record in reference:
        if why := record.text("why"):
            yield element("p", f"Not known: {why}")
    yield rows(
        ("inputs", "", "maximum", "mean"),
        [
            (record.text("inputs"), record.text("kind"), _cell(record, "maximum"), _cell(record, "mean"))
            for record in reference
            if record.text("kind")
        ],
        numbers=frozenset({2, 3}),
    )


def _submodules(report: Report) -> Iterator[Element | None]:
    for record in report.records("submodules"):
        kind, total = record.text("kind") or "?", record.decimal("callMs")
        yield element(
            "h3",
            f"{kind}: {total} ms a call, watched"
            if kind == "eager" and total
            else f"{kind}: {total} ms a call"
            if total
            else kind,
        )
        if why := record.text("why"):
            rest = record.decimal("generatedMs")
            yield element("p", why[:1].upper() + why[1:], f" ({rest} ms)." if rest else ".", class_="note")
        yield rows(
            ("submodule" if kind == "eager" else "operator", "type" if kind == "eager" else "", "own ms", "share", "cumulative"),
            [
                (
                    element("code", entry.text("name") or ""), entry.text("type"), _cell(entry, "selfMs"),
                    _percent(entry.number("share")), _percent(entry.number("cumulative")),
                )
                for entry in record.records("entries")
            ],
            numbers=frozenset({2, 3, 4}),
        )  # fmt: skip


def _stages(report: Report, section: str) -> Element | None:
    if section == "compile":
        return rows(
            ("of the compile", "to", "seconds"),
            [
                (
                    _COMPILE.get(record.text("stage") or "", record.text("stage")),
                    f"a {tier}" if (tier := record.text("tier")) == "package" else tier,
                    _cell(record, "seconds"),
                )
                for record in report.records(section)
            ],
            numbers=frozenset({2}),
        )
    return rows(
        ("stage of the target", "seconds"),
        [(record.text("name"), _cell(record, "seconds")) for record in report.records(section)],
        numbers=_ONE,
    )


def _proofs(report: Report) -> Element | None:
    lines: list[tuple[Child, ...]] = []
    for record in report.records("proofs"):
        conditions = record.record("conditions")
        held = [words for name, words in _CONDITIONS.items() if conditions.fields.get(name) is True]
        missed = [words for name, words in _CONDITIONS.items() if conditions.fields.get(name) is False]
        outcomes = sorted({text for said in record.records("said") if (text := said.text("outcome"))})
        words = [
            f"answers were {', '.join(outcomes)}" if outcomes else "",
            f"in a process with {', '.join(held)}" if held else "",
        ]
        words += [f"without: {', '.join(missed)} ({'; '.join(conditions.texts('why'))})" if missed else ""]
        if moved := record.decimal("answerMoved"):
            limit = f" to within {limit}" if (limit := record.decimal("limit")) else ""
            words.append(f"other weights moved the answer by {moved}, and the package followed{limit}")
        if why := record.text("why"):
            words.append(f"nothing was seen: {why}")
        lines.append((record.text("name"), "; ".join(filter(None, words))))
    return rows(("proof", "what was seen"), lines)


def _fingerprint(report: Report) -> Element | None:
    inner = _pairs(report.record("fingerprint"))
    return (
        None if inner is None else element("details", element("summary", "Fingerprint: what a pod must match"), inner)
    )


def _pairs(record: Record) -> Element | None:
    return rows(("", ""), [(name, value) for name, value in record.pairs()])


def _card(name: str, title: str, value: str | None, unit: str, more: str | None) -> Element | None:
    if not value:
        return None
    exact = number(value)
    # To be read at a glance; the tables have all digits.
    shown = value if exact is None else glance(exact)
    figure = element("span", shown, data_figure=name, data_value=value)
    return element(
        "div",
        element("dt", title),
        element("dd", figure, element("span", f" {unit}", class_="unit") if unit else None),
        element("dd", more, class_="more") if more else None,
        class_="card",
    )


def where(inputs: str | None) -> str:
    """Which sizes, in words."""
    ends = {"low": "the low end of the range", "high": "the high end of the range", "typical": "the sizes asked for"}
    return ends.get(inputs or "", inputs or "unknown sizes")


def _interval(figures: Record) -> str | None:
    low, high = figures.decimal("speedupLow"), figures.decimal("speedupHigh")
    return f"95 % interval {glance(float(low))} to {glance(float(high))}" if low and high else None


def _against(figures: Record, name: str, unit: str) -> str | None:
    value = figures.decimal(name)
    return f"eager {glance(float(value))} {unit}" if value else None


def _cell(record: Record, name: str) -> str:
    return record.decimal(name) or "–"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.1f} %"
