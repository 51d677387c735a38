"""The documents speak of what is there: files, headings, tests, targets of make, policies of the chart.

Why it exists: text is not run. A test that was renamed, or a policy that was added, is otherwise noticed by a reader.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from preheat_runtime.reasons import CLASSES

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(path for path in REPOSITORY.glob("**/*.md") if path.relative_to(REPOSITORY).parts[0] != "build")


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def anchors(text: str) -> set[str]:
    """The names by which links reach headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def definitions() -> set[str]:
    """Names of all tests, and of the modules that they are in."""
    tests = subprocess.run(
        ["git", "ls-files", "-z", "tests"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    modules = [REPOSITORY / name for name in tests if name.endswith(".py") and (REPOSITORY / name).is_file()]
    found = {module.stem for module in modules}
    for module in modules:
        found |= set(re.findall(r"^(?:async )?def (test_\w+)", module.read_text(encoding="utf-8"), re.MULTILINE))
    return found


def test_there_is_something_to_read() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/faults.md"} <= {named(path) for path in DOCUMENTS}
    assert len(definitions()) > 500
    assert anchors("## `preheat why POD`, and more\n") == {"preheat-why-pod-and-more"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        if link.startswith("http"):
            continue
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_tests_that_are_named_are_there(document: Path) -> None:
    """`test_it_works`, or the beginning of a long one: `test_it_…`."""
    known = definitions()
    missing = [
        name + rest
        for name, rest in re.findall(r"`(test_\w+?)(_?…)?`", document.read_text(encoding="utf-8"))
        if not (any(each.startswith(name) for each in known) if rest else name in known)
    ]
    assert missing == []


def test_every_class_of_reasons_has_its_meaning() -> None:
    text = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    (rows,) = re.findall(r"^\| `reason` \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    told = [word for row in rows.splitlines() for word in re.findall(r"`(\w+)`", row.split(" | ")[0])]
    assert sorted(told) == sorted(CLASSES)


def test_every_cause_of_preheat_why_is_told() -> None:
    text = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    (rows,) = re.findall(r"^\| `outcome` \| `cause` \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    code = (REPOSITORY / "operator/preheat_operator/explain/decide.py").read_text(encoding="utf-8")
    given = r'(?:cause=|return |return _held\(|return _waits\(|return \(\n +)"([A-Z]\w+)",'
    causes = set(re.findall(given, code))
    assert {"NotLabelled", "Gated", "Unscheduled", "LogOff", "NotLoaded"} <= causes
    assert causes - set(re.findall(r"`(\w+)`", rows)) == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_what_make_is_asked_for_it_can_make(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"test", "demo", "demo-down"} <= targets
    text = document.read_text(encoding="utf-8")
    commands = "".join(re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    asked = re.findall(r"^make ([a-z-]+)", commands, re.MULTILINE) + re.findall(r"`make ([a-z-]+)", text)
    assert [name for name in asked if name not in targets] == []


def test_the_chart_s_policies_are_told_all_and_no_other() -> None:
    templates = (REPOSITORY / "charts/preheat/templates").glob("*.yaml")
    kind = r"^kind: (?:Validating|Mutating)AdmissionPolicy\nmetadata:\n  name: (?:\|-\n    )?\{\{.*\}\}-([a-z-]+)$"
    there = {name for path in templates for name in re.findall(kind, path.read_text(encoding="utf-8"), re.MULTILINE)}
    values = (REPOSITORY / "docs/values.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `<release>-([a-z-]+)` \|", values, re.MULTILINE)
    assert set(told) == there
    assert len(told) == len(there) > 5
