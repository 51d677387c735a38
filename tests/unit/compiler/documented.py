"""What a report.json holds that docs/report.md does not tell."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from lab.paths import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unit.compiler.jobs import Job

#: What is told on other pages: of a request, of a pod's own words, of the manifest.
_ELSEWHERE = ("asked", "fingerprint", "figures", "said")
#: Figures of single calls are told once for both.
_KINDS = ("eager", "compiled")


def undocumented(job: Job) -> list[str]:
    """Every field of a job's reports, and every name in its records, that docs/report.md does not tell."""
    targets = job.result()["targets"]
    reports = {each["directory"]: job.report(each["module"], each["bucket"]) for each in targets}
    return [f"{place}: {words}" for place, report in reports.items() for words in unknown(report)]


def unknown(report: dict[str, Any]) -> list[str]:
    """What the row of its field in the table, and the section that the row points to, do not have."""
    found = [field for field in report if field not in _fields()]
    for field, told in _fields().items():
        names = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", told))))
        found += [
            f"{field}: {name}" for name in dict.fromkeys(_names(report.get(field), field)) if not _in(names, name)
        ]
    return found


def _in(names: set[str], name: str) -> bool:
    return name in names or any(name.removeprefix(kind) in names for kind in _KINDS)


def _names(value: Any, field: str) -> Iterator[str]:
    if field in _ELSEWHERE:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _names(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner, field)


@cache
def _fields() -> dict[str, str]:
    """By field: the text of its row, and of the section that the row points to."""
    text = (REPOSITORY / "docs/report.md").read_text()
    sections = {
        title.lower().replace(" ", "-"): body
        for title, body in re.findall(r"^##+ (.+)\n((?:(?!##).*\n)*)", text, re.MULTILINE)
    }
    table = sections["report.json"]
    found = {}
    for names, told in re.findall(r"^\| (`.+?`) \| (.+) \|$", table, re.MULTILINE):
        pointed = "".join(sections[anchor] for anchor in re.findall(r"\]\(#([\w-]+)\)", told))
        found |= dict.fromkeys(re.findall(r"`(\w+)`", names), told + pointed)
    return found
