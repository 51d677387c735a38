"""What the comparison found: ratios with intervals, misses in words, a table, a plot. Pure: no process, no clock."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pygal
from peer_ways import EAGER, PREHEAT, WORDS
from pygal.style import Style
from shared import vars_of

import preheat_operator.report.plots  # takes pygal's import hook out again
from preheat_compiler.intervals import Interval, median, median_interval

assert preheat_operator.report.plots

#: Preheat's first answer over eager's, in both measures.
TARGET = 1.05
MEASURES = {"total_seconds": "from the start of the process", "after_import_seconds": "after `import torch`"}
#: Of Okabe and Ito, told apart also by who sees fewer colours.
COLOURS = {
    "cold": "#999999",
    "warm": "#56B4E9",
    "traced": "#0072B2",
    "mega": "#E69F00",
    "b10": "#CC79A7",
    "preheat": "#009E73",
}


def summary(rounds: list[dict[str, Any]], bytes_moved: dict[str, int]) -> dict[str, Any]:
    """For each way: medians, the ratios to the eager start of the same round, and Preheat's to it; faults, each once."""
    ways = [way for way in WORDS if any(way in each for each in rounds)]
    found: dict[str, Any] = {}
    for way in ways:
        rows = [each[way] for each in rounds if way in each]
        pairs = [(each[way], each[EAGER], each[PREHEAT]) for each in rounds if way in each]
        found[way] = {
            "samples": len(rows),
            "p50_ms": median_interval([row["p50_ms"] for row in rows]).estimate,
            "bytes_moved": bytes_moved.get(way),
            "compiler_runs": median([row["compiler_runs"] for row in rows]),
            "faults": sorted({fault for row in rows for fault in row["faults"]}),
            **{name: median_interval([row[name] for row in rows]).estimate for name in MEASURES},
            "over_eager": {n: ratio([row[n] / eager[n] for row, eager, _ in pairs]) for n in MEASURES},
            "preheat_over_it": {n: ratio([hot[n] / row[n] for row, _, hot in pairs]) for n in MEASURES},
        }
    return found


def ratio(values: list[float]) -> dict[str, float]:
    """Their median with its interval, as JSON."""
    return vars_of(median_interval(values))


def judge(subjects: dict[str, Any]) -> list[str]:
    """Every missed target in words: not within TARGET of eager, not ahead of a peer, not what it is called."""
    misses = []
    for name, ways in subjects.items():
        for measure, words in MEASURES.items():
            own = ways[PREHEAT]["over_eager"][measure]
            behind = {
                way: each["preheat_over_it"][measure] for way, each in ways.items() if way not in (EAGER, PREHEAT)
            }
            if not own["estimate"] <= TARGET:
                misses.append(f"{name}, {words}: Preheat is {shown(own)} times eager, target at most {TARGET}")
            misses += [
                f"{name}, {words}: Preheat is {shown(each)} times {WORDS[way]}"
                for way, each in behind.items()
                if not each["estimate"] < 1
            ]
        misses += [f"{name}, {WORDS[way]}: {fault}" for way, found in ways.items() for fault in found["faults"]]
    return misses


def shown(of: dict[str, float]) -> str:
    """`1.02 (0.99–1.04)`; without an interval where there are too few samples for one."""
    if Interval(**of).samples < 6:  # type: ignore[arg-type]
        return f"{of['estimate']:.2f}"
    return f"{of['estimate']:.3f} ({of['low']:.3f}–{of['high']:.3f})"


def table(results: dict[str, Any]) -> str:
    """The figures as Markdown."""
    about = (
        f"Commit {results['commit']}, {results['date']}, {results['machine']}, torch {results['torch']}, seed {results['seed']}. Medians "
        "of *n* starts; each is a fresh process, and a round is one start in each way (the slow and the experimental in the first rounds only) in "
        "shuffled order. ÷ eager is the median of the ratios to the eager start of the same round, with its 95 % interval. Page "
        "cache warm, same threads, same weights from a fixed seed, for all. `make bench` makes this file."
    )
    ways = (
        "*Warm cache directory*: `TORCHINDUCTOR_CACHE_DIR` as a cold start of the same model left it, used in place: nothing is brought; also with "
        "the experimental `TORCH_CACHING_PRECOMPILE=1`, which keeps what Dynamo traced. "
        "*mega-cache*: `torch.compiler.load_cache_artifacts` of one file; it "
        "holds the sources of C++ kernels but not what was compiled of them, so each process compiles them. *b10-transfer*: version 0.4.1, `load_compile_cache()` from a "
        "local folder as its volume. *Preheat*: what a pod has after its init container; nothing but the environment differs from cold. "
        "Its gate is that of a user who gives no `keepIf`: what is slower compiled runs eager. "
        "The caches' four also get two settings that torch's documentation does not ask for, and that Preheat's own caches tier uses "
        "(`TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS=0`, `TORCHINDUCTOR_VEC_ISA_OK=1`): else each starts a C++ compiler for what is in no cache. "
        "Each start was seen to be what it is called: whether a compiler ran, "
        "hits and misses of torch's caches, Preheat's own record; and to answer as eager does. *Moved*: bytes that a new machine needs."
    )
    script = (
        "`open_clip` is a script that is not ours, as its package has it: `python -m open_clip_train.main --torchcompile` (open_clip_torch "
        "3.3.0) evaluates ViT-S-32-alt with random weights. Its log gives the times: the second measure is from its first line, after its "
        "imports, to the first batch's loss, and *steady* is a later batch with its data loading. mega-cache and b10-transfer need "
        "changes to a script, so they are not there."
    )
    measures = ("first answer, s", "÷ eager (95 %)", "after `import torch`, s", "÷ eager (95 %)")
    head = ["model", "", *measures, "steady p50, ms", "moved, MB", "C++ compiles", "n"]
    lines = ["# First answers, side by side", "", about, "", ways, "", script, "", "![ratios](peers.svg)", ""]
    lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, found in results["subjects"].items():
        for way, each in found.items():
            words = WORDS[way] + (", eager by its gate" if way == PREHEAT and name in results["rejected"] else "")
            cells = [name if way == EAGER else "", words + (" ⚠" if each["faults"] else "")]
            for measure in MEASURES:
                cells += [f"{each[measure]:.2f}", "1" if way == EAGER else shown(each["over_eager"][measure])]
            moved = each["bytes_moved"]
            cells += [f"{each['p50_ms']:.2f}", f"{moved / 1e6:.2f}" if moved is not None else "–"]
            cells += [f"{each['compiler_runs']:g}", str(each["samples"])]
            lines.append(f"| {' | '.join(f'**{cell}**' if way == PREHEAT and cell else cell for cell in cells)} |")
    rejected = results["rejected"]
    lines += ["", "Rejected, so run eager on purpose:", ""] if rejected else []
    lines += [f"- {name}: {reason}" for name, reason in rejected.items()]
    failing = [(name, way, said) for name, ways in results["failing"].items() for way, said in ways.items()]
    lines += ["", "Left out, since the process fails with it:", ""] if failing else []
    lines += [f"- {name}, {WORDS[way]}: `{said[:200]}`" for name, way, said in failing]
    verdict = "Met." if not results["misses"] else "MISSED:"
    lines += ["", f"Targets: Preheat ÷ eager ≤ {TARGET} in both measures, and ahead of every peer. {verdict}", ""]
    lines += [f"- {miss}" for miss in results["misses"]]
    return "\n".join(lines).rstrip() + "\n"


def chart(results: dict[str, Any]) -> bytes:
    """First answers over eager's, of all models and ways, on a scale of powers."""
    found = results["subjects"]
    ways = [way for way in WORDS if way != EAGER and any(way in each for each in found.values())]
    style = Style(
        background="white", plot_background="white", colors=tuple(COLOURS[way] for way in ways), font_family="system-ui, sans-serif",
        label_font_size=12, legend_font_size=13, title_font_size=15, transition="none",
    )  # fmt: skip
    drawing = pygal.Bar(
        width=980, height=420, js=(), style=style, logarithmic=True, legend_at_bottom=True, legend_at_bottom_columns=len(ways),
        title="First answer, from the start of the process ÷ eager's", truncate_legend=-1, x_label_rotation=20,
        value_formatter=lambda ratio: f"{ratio:.3g} ×", disable_xml_declaration=True,
    )  # fmt: skip
    drawing.uuid = "peers"  # random by default
    drawing.x_labels = list(found)
    for way in ways:
        ratios = [each[way]["over_eager"]["total_seconds"] if way in each else None for each in found.values()]
        drawing.add(WORDS[way].replace("`", ""), [each and each["estimate"] for each in ratios])
    root = drawing.render_tree()
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("script", ElementTree.Comment):
                parent.remove(child)
    return ElementTree.tostring(root) + b"\n"
