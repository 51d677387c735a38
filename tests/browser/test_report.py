"""report.html in a real browser: what a reader sees of it, on a machine without any network."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from browser.chromium import Browser, browser
from lab import debian
from preheat_operator.report import HTML_FILE, render
from unit.report import reports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Of every plot: where it is, and where each thing in it that carries a figure is.
GEOMETRY = """
(() => Object.fromEntries([...document.querySelectorAll("figure[data-plot]")].map(figure => {
  const svg = figure.querySelector("svg"), box = svg.getBoundingClientRect();
  const of = selector => [...svg.querySelectorAll(selector)].map(each => {
    const r = each.getBoundingClientRect();
    return {x: r.x - box.x, y: r.y - box.y, width: r.width, height: r.height, text: each.textContent,
            fill: getComputedStyle(each).fill, stroke: getComputedStyle(each).stroke,
            length: each.getTotalLength ? each.getTotalLength() : 0};
  });
  return [figure.dataset.plot, {width: box.width, height: box.height, lines: of(".series path.line"),
          bars: of(".series rect.rect"), labels: of(".axis text"), values: of(".text-overlay text.value")}];
})))()
"""


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return reports.kept()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]) -> Iterator[Browser]:
    debian.ensure(debian.BROWSER)
    folder = tmp_path_factory.mktemp("report")
    with browser(folder / "profile") as opened:
        opened.open(_written(folder, content))
        yield opened


def _written(folder: Path, content: dict[str, Any]) -> str:
    file = folder / HTML_FILE
    file.write_bytes(render(reports.data(content))[HTML_FILE])
    return file.as_uri()


def _plots(page: Browser) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(GEOMETRY)
    return found


def test_nothing_but_the_file_is_asked_for_and_nothing_complains(page: Browser) -> None:
    asked = [
        event["params"]["request"]["url"] for event in page.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert len(asked) == 1
    assert asked[0].startswith("file:")
    complaints = [
        event for event in page.events
        if event["method"] in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Audits.issueAdded")
    ]  # fmt: skip
    assert complaints == []
    assert page.evaluate("document.compatMode") == "CSS1Compat"


def test_the_plots_are_there_with_what_they_show(page: Browser, content: dict[str, Any]) -> None:
    plots = _plots(page)
    assert set(plots) == {"latency-0", "latency-1", "first-answer", "submodules"}
    for name, plot in plots.items():
        assert plot["width"] > 300, name
        assert plot["height"] > 80, name
        for each in (*plot["lines"], *plot["bars"], *plot["labels"], *plot["values"]):
            assert each["x"] >= -1, (name, each)
            assert each["y"] >= -1, (name, each)
            assert each["x"] + each["width"] <= plot["width"] + 1, (name, each)
            assert each["y"] + each["height"] <= plot["height"] + 1, (name, each)
        assert all(label["width"] > 2 and label["height"] > 4 for label in plot["labels"]), name
    for plot in (plots["latency-0"], plots["latency-1"]):
        eager, compiled = plot["lines"]
        assert eager["stroke"] != compiled["stroke"]
        # Both rise over the whole plot, and what is faster lies further left.
        assert min(eager["height"], compiled["height"]) > plot["height"] / 3
        assert min(eager["length"], compiled["length"]) > plot["height"] / 3
        assert compiled["x"] + compiled["width"] < eager["x"] + eager["width"]
    shares = [float(entry["share"]) for entry in content["submodules"][0]["entries"]]
    bars = sorted((bar["width"] for bar in plots["submodules"]["bars"]), reverse=True)
    assert len(bars) == len(shares)
    assert [bar / bars[0] for bar in bars] == pytest.approx([share / shares[0] for share in shares], abs=0.02)
    compiled, eager = sorted(plots["first-answer"]["bars"], key=lambda bar: bar["width"])
    assert compiled["width"] / eager["width"] == pytest.approx(2.1 / 2.2, abs=0.02)
    assert {value["text"] for value in plots["first-answer"]["values"]} >= {"2.1 s", "2.2 s"}


def test_the_figures_are_those_of_the_report(page: Browser, content: dict[str, Any]) -> None:
    cards = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('[data-figure]')].map(e => [e.dataset.figure, e.innerText]))"
    )
    figures = content["figures"]
    names = {"speedup": "speedup", "p50": "compiledP50Ms", "maxError": "maxError", "firstAnswer": "firstAnswerSeconds"}
    for card, name in names.items():
        assert float(cards[card]) == pytest.approx(float(figures[name]), rel=5e-3)
    text = page.evaluate("document.body.innerText")
    for record in content["speed"]:
        assert all(record[name] in text for name in ("speedup", "eagerP50Ms", "compiledP95Ms", "eagerP99Ms"))


def test_it_is_readable_in_light_in_dark_and_on_paper(page: Browser) -> None:
    luminance = (
        "(() => { const [ink, paper] = ['color', 'backgroundColor'].map(name => "
        "getComputedStyle(document.body)[name].match(/[0-9.]+/g).slice(0, 3).map(Number)); "
        "const of = c => c.map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)"
        ".reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0); return [of(ink), of(paper)]; })()"
    )
    seen = {}
    for name, media, scheme in (("light", "screen", "light"), ("dark", "screen", "dark"), ("paper", "print", "dark")):
        page.call(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        ink, paper = page.evaluate(luminance)
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 7, name
        seen[name] = paper > ink
    assert seen == {"light": True, "dark": False, "paper": True}
    page.call("Emulation.setEmulatedMedia", media="", features=[])


@pytest.mark.parametrize("width", [380, 1400])
def test_it_fits_a_narrow_and_a_wide_window(page: Browser, width: int) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert all(plot["width"] > 250 for plot in _plots(page).values())
    page.call("Emulation.clearDeviceMetricsOverride")


def test_what_a_model_puts_into_its_report_is_not_run(page: Browser, tmp_path: Path) -> None:
    evil = "</style><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
    report = reports.kept(message=evil, fallbacks=[{"tier": evil, "why": evil}], environment={evil: evil})
    report["submodules"][0]["entries"][0]["name"] = evil
    page.open(_written(tmp_path, report))
    assert "taken" not in page.evaluate("document.title")
    assert page.evaluate("document.querySelectorAll('script, img, iframe, link').length") == 0
    assert evil in page.evaluate("document.querySelector('[data-field=message]').textContent")


def test_a_script_would_be_refused_and_noticed(page: Browser, tmp_path: Path) -> None:
    """That nothing complains says something only where something would."""
    file = tmp_path / HTML_FILE
    html = render(json.dumps(reports.kept()).encode())[HTML_FILE].decode()
    file.write_text(
        html.replace("<main>", "<main><script>document.title = 'taken'</script><img src='http://127.0.0.1/x'>")
    )
    seen = len(page.events)
    page.open(file.as_uri())
    assert "taken" not in page.evaluate("document.title")
    assert [event for event in page.events[seen:] if event["method"] in ("Log.entryAdded", "Audits.issueAdded")]
