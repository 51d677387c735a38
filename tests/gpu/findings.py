"""Writes what the experiments saw as the page docs/measured/cuda.md.

Why it exists: figures are copied by people into decisions, so they are rendered from the records and never by hand. The
page says what was seen and on what, and leaves conclusions to its reader.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Longest value on a line of its own; what is longer stands in cuda.json.
_LONGEST = 600


def markdown(records: Sequence[dict[str, Any]], *, device: str, day: str | None = None) -> str:
    """The page; a record is what spike.py writes."""
    machine = next((each["facts"] for each in records if each["experiment"] == "machine"), {})
    lines = [
        "# What was seen on a GPU" if device.startswith("cuda") else "# The experiments for a GPU, run on a CPU",
        "",
    ]
    lines += [
        f"{day or time.strftime('%Y-%m-%d')}, {_machine(machine)}. `tests/gpu/spike.py --device {device}` makes this file.",
        "",
    ]
    if not device.startswith("cuda"):
        lines += ["Nothing here was run on a GPU, and nothing here says anything of one.", ""]
    lines += ["| experiment | question | outcome | seconds |", "|---|---|---|---|"]
    for each in records:
        outcome = each["status"] if each["status"] == "ok" else f"{each['status']}: {each['error']}"
        lines.append(f"| {each['experiment']} | {_cell(each['question'])} | {_cell(outcome)} | {each['seconds']} |")
    for each in records:
        if each["facts"]:
            lines += ["", f"## {each['experiment']}", "", each["question"], ""]
            lines += _facts(each["facts"], 0)
        if each["status"] in ("crashed", "failed", "timeout"):
            lines += ["", f"It ended early, {each['status']}: {_plain(each['error'])}"]
    return "\n".join(lines) + "\n"


def _machine(facts: dict[str, Any]) -> str:
    devices = [f"{each['name']} (capability {each['capability']})" for each in facts.get("devices", ())]
    words = [*devices, f"torch {facts.get('torch', 'unknown')}", f"Python {facts.get('python', 'unknown')}"]
    if facts.get("cuda"):
        words.append(f"CUDA {facts['cuda']} of torch")
    return ", ".join([*words, f"{facts.get('cpus', '?')} CPUs"])


def _facts(facts: dict[str, Any], depth: int) -> Iterator[str]:
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            yield f"{'  ' * depth}- {_plain(name)}:"
            yield from _facts(value, depth + 1)
        else:
            yield f"{'  ' * depth}- {_plain(name)}: {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else json.dumps(value)
    return _plain(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …")


def _plain(text: Any) -> str:
    return " ".join(str(text).split()).replace("<", "&lt;")


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")
