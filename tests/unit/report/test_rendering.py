"""The table and the page say what report.json says, whatever it says."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preheat_operator.report import CSV_FILE, HTML_FILE, MAX_REPORT_BYTES, Report, ReportError, render
from preheat_operator.report.plots import latency
from preheat_operator.report.table import COLUMNS
from unit.report import reports

if TYPE_CHECKING:
    from pathlib import Path

ALLOWED_TAGS = frozenset(
    [
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "footer",
        "h1",
        "h2",
        "h3",
        "p",
        "pre",
        "code",
        "span",
        "strong",
        "div",
        "dl",
        "dt",
        "dd",
        "figure",
        "figcaption",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
        "svg",
        "g",
        "defs",
        "path",
        "line",
        "rect",
        "text",
        "tspan",
        "desc",
        "circle",
    ]
)


class Page(HTMLParser):
    """What a browser would see: tags, attributes, texts by the field they are marked with."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.marked: dict[str, str] = {}
        self.exact: dict[str, str] = {}
        self.texts: list[str] = []
        self._field: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = dict(attrs)
        self.attributes |= found.keys()
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "srcset", "data")]
        self._field = found.get("data-figure") or found.get("data-field") or found.get("data-plot")
        if self._field:
            self.marked[self._field] = ""
            self.exact[self._field] = found.get("data-value") or ""

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._field:
            self.marked[self._field] += data

    def handle_endtag(self, tag: str) -> None:
        self._field = None


def page_of(content: dict[str, Any]) -> Page:
    return Page(render(reports.data(content))[HTML_FILE].decode())


def rows_of(content: dict[str, Any]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render(reports.data(content))[CSV_FILE].decode(), newline="")))


def test_the_page_tells_the_verdict_and_the_figures_as_they_are_in_the_report() -> None:
    content = reports.kept()
    page = page_of(content)
    assert (page.marked["verdict"], page.marked["reason"]) == ("Kept", "Faster")
    for card, figure in {"speedup": "speedup", "p50": "compiledP50Ms", "firstAnswer": "firstAnswerSeconds"}.items():
        assert page.exact[card] == content["figures"][figure]
        assert float(page.marked[card]) == pytest.approx(float(content["figures"][figure]), rel=5e-3)
    assert page.marked["memory"] == "340.0 MiB"
    assert {"latency-0", "latency-1", "first-answer", "submodules"} <= page.marked.keys()
    text = " ".join(page.texts)
    for record in content["speed"]:
        for name in ("eagerP50Ms", "eagerP95Ms", "compiledP99Ms", "compiledCallsPerSecond", "eagerVariation"):
            assert record[name] in text, name
    for words in ("encoder.layers.0.attention", "aten::addmm", "8.300", "9.8e-07", "read-only file system", "2.15.0"):
        assert words in text, words


def test_the_table_has_a_row_for_each_measurement() -> None:
    content = reports.kept()
    rows = rows_of(content)
    assert tuple(rows[0]) == COLUMNS
    assert {(row["module"], row["bucket"], row["hardware"]) for row in rows} == {("main", "batch", "cpu")}

    def value(section: str, subject: str, inputs: str, measurement: str) -> str:
        wanted = (section, subject, inputs, measurement)
        (found,) = [
            row["value"]
            for row in rows
            if (row["section"], row["subject"], row["inputs"], row["measurement"]) == wanted
        ]
        return found

    low, high = content["speed"]
    assert value("speed", "eager", "low", "p95") == low["eagerP95Ms"]
    assert value("speed", "compiled", "high", "throughput") == high["compiledCallsPerSecond"]
    assert value("figures", "", "", "speedup") == content["figures"]["speedup"]
    assert value("memory", "compiled", "calls", "growth") == str(39 * reports.MIB)
    assert value("compile", "package", "", "compiler") == "8.300"
    assert value("reference", "eager", "low, seed 1", "maximum") == "1.1e-06"
    assert value("errors", "compiled", "low, seed 1", "nonFinite") == "4"
    assert value("submodules", "eager: head", "high", "share") == content["submodules"][0]["entries"][-1]["share"]
    assert sum(row["section"] == "firstAnswers" for row in rows) == 6
    assert all(float(row["value"]) is not None for row in rows if row["section"] != "verdict")


def test_a_few_slow_calls_are_not_most_of_the_picture() -> None:
    content = reports.kept()
    for kind, median in (("eager", 2.0), ("compiled", 1.0)):
        content["speed"][0][f"{kind}QuantilesMs"] = [str(median)] * 90 + [str(100 * median)] * 11
    (_, plot), _ = latency(Report.parse(reports.data(content)))
    labels = [float(text) for each in plot.iter("text") if re.fullmatch(r"[\d.]+", text := each.text or "")]
    assert max(label for label in labels if label != 100) <= 90  # the other axis, in per cent
    assert "200" not in {each.text for each in plot.iter("text")}


def test_drawing_leaves_pythons_imports_alone() -> None:
    render(reports.data(reports.kept()))
    assert "pygal" in sys.modules
    assert not [hook for hook in sys.meta_path if type(hook).__module__.startswith("pygal")]


def test_the_same_report_makes_the_same_files() -> None:
    content = reports.data(reports.kept())
    assert render(content) == render(content)


def test_a_page_is_one_file_without_scripts_or_links() -> None:
    page = page_of(reports.kept())
    assert page.tags <= ALLOWED_TAGS
    assert page.links == []
    assert not [name for name in page.attributes if name.startswith("on")]
    html = render(reports.data(reports.kept()))[HTML_FILE].decode()
    assert "default-src 'none'" in html
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/)", html)


def test_why_a_tier_was_not_possible_is_told_with_file_and_line() -> None:
    why = "ExportFailed: data-dependent branch (/app/model.py:37)"
    page = page_of(reports.kept(tier="caches", fallbacks=[{"tier": "package", "why": why}]))
    assert page.marked["fallback"] == why


def test_what_was_carried_over_says_of_which_revision_it_is() -> None:
    content = reports.kept(carriedOver=[{"base": "sha256:0a", "environment": None}])
    assert page_of(content).marked["carriedOver"] == (
        "Not compiled again: all that was seen is of an earlier revision, sha256:0a."
    )
    content = reports.kept(carriedOver=[{"base": "sha256:0a", "why": "it has no report"}])
    assert page_of(content).marked["carriedOver"].endswith(" There is less of it, since it has no report.")


def test_how_much_a_proof_could_see_is_told_and_where_it_saw_nothing() -> None:
    proofs = [
        {"name": "random weights", "answerMoved": "0.83", "limit": "0.0100"},
        {"name": "shuffled integers", "why": "eager refuses them: ValueError"},
    ]
    text = " ".join(page_of(reports.kept(proofs=proofs)).texts)
    assert "other weights moved the answer by 0.83, and the package followed to within 0.0100" in text
    assert "nothing was seen: eager refuses them: ValueError" in text


def test_the_graphs_are_told_with_the_users_file_and_line() -> None:
    content = reports.cut()
    page = page_of(content)
    (graphs,) = content["graphs"]
    assert page.marked["graphs"].startswith("It is compiled in 3 graphs; 2 recompiles")
    text = " ".join(page.texts)
    for each in graphs["breaks"]:
        assert all(each[name] in text for name in ("where", "reason", "remedy")), each
    assert page.marked["draws"].splitlines() == ["aten.rand /app/model.py:9", "aten.bernoulli /app/model.py:30"]
    assert "blocks.4 and 19 more" in text
    assert "6 operations were tuned in 12.500 s; 2 have torch's own kernels" in text
    rows = {(row["section"], row["subject"], row["measurement"]): row["value"] for row in rows_of(content)}
    told = {"graphs": "3", "recompiles": "2", "breaks": "2"}
    assert {name: rows["graphs", "", name] for name in told} == told
    assert (rows["regions", "blocks.0", "blocks"], rows["regions", "blocks.0", "sizeBytes"]) == ("24", "81234")
    assert (rows["tuning", "", "tuned"], rows["tuning", "", "seconds"]) == ("6", "12.500")


def test_one_graph_and_none_are_told_as_such() -> None:
    said = {
        count: page_of(reports.kept(graphs=[{"graphs": count, "breaks": [], "recompiles": 0}])).marked["graphs"]
        for count in (0, 1)
    }
    assert said == {
        0: "torch.compile compiles nothing of it.",
        1: "It is one graph, without a recompile over the bucket's whole range.",
    }


def test_a_target_that_failed_early_has_a_page_too() -> None:
    page = page_of(reports.failed())
    assert page.marked["verdict"] == "Failed"
    assert any("Nothing was timed" in text for text in page.texts)
    assert [row["measurement"] for row in rows_of(reports.failed())] == ["verdict", "reason"]


EVIL = "</style></pre><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202e"


def test_what_the_report_holds_never_becomes_markup() -> None:
    content = reports.kept(
        module=EVIL, verdict=EVIL, reason=EVIL, message=EVIL, hardware=EVIL, environment={EVIL: EVIL},
        fallbacks=[{"tier": EVIL, "why": EVIL}], stages=[{"name": EVIL, "seconds": EVIL}],
        submodules=[{"kind": "eager", "entries": [{"name": EVIL, "type": EVIL, "selfMs": "1", "share": "0.5"}]}],
    )  # fmt: skip
    page = page_of(content)
    assert page.tags <= ALLOWED_TAGS
    assert not {"onerror", "src"} & page.attributes
    text = "".join(page.texts)
    assert "<script>alert(1)</script>" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_no_text_is_a_formula_in_a_spreadsheet(formula: str) -> None:
    rows = rows_of(reports.kept(module=formula, message=formula))
    assert not rows[0]["module"].startswith(("=", "+", "-", "@", "\t"))


@pytest.mark.parametrize("odd", [1e308, -1e308, 1e200, 1e19, 1e18, 1e-300, 5e-324, 0, -1])
def test_a_figure_that_is_none_costs_its_plot_and_not_the_page(odd: float) -> None:
    content = reports.kept()
    for record in content["speed"]:
        for kind in ("eager", "compiled"):
            record[f"{kind}QuantilesMs"][50:] = [odd] * 51
            record[f"{kind}P50Ms"] = odd
    for record in content["firstAnswers"]:
        record["served"] = record["eager"] = [odd]
    for record in content["submodules"]:
        record["entries"][0]["share"] = odd
    for record in content["memory"]:
        record["peakBytes"] = odd
    page = page_of(content)
    assert page.marked["verdict"] == "Kept"
    assert ("first-answer" in page.marked) == (abs(odd) <= 1e18)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


# Drawing takes its time, which on a busy machine hypothesis would take for a fault.
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_report_is_too_odd_to_be_told(data: st.DataObject) -> None:
    content = reports.kept()
    for name in data.draw(st.sets(st.sampled_from(sorted(content)), max_size=4)):
        if name != "formatVersion":
            content[name] = data.draw(JSON_VALUES)
    for section in data.draw(st.sets(st.sampled_from(["speed", "memory", "submodules", "firstAnswers", "proofs"]))):
        records = content.get(section)
        if isinstance(records, list) and records and isinstance(records[0], dict) and records[0]:
            records[0][data.draw(st.sampled_from(sorted(records[0])))] = data.draw(JSON_VALUES)
    files = render(json.dumps(content).encode())
    assert Page(files[HTML_FILE].decode()).tags <= ALLOWED_TAGS
    assert files[CSV_FILE].decode().startswith(",".join(COLUMNS))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b"\xff", b'{"formatVersion": 2}', b'{"formatVersion": "1"}',
        b"[" * 100_000, b" " * (MAX_REPORT_BYTES + 1),
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(ReportError):
        render(data)


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(reports.data(reports.kept()))
    command = [sys.executable, "-m", "preheat_operator.report", str(tmp_path / "report.json")]
    done = subprocess.run([*command, "-o", str(tmp_path / "out")], capture_output=True, text=True, check=True)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {CSV_FILE, HTML_FILE}
    assert done.stdout.split() == [str(tmp_path / "out" / name) for name in (CSV_FILE, HTML_FILE)]
    (tmp_path / "report.json").write_text("{}")
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "formatVersion" in failed.stderr
