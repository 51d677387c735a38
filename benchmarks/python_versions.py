"""Which versions of Python the compile driver and the runtime work with: each compiles here, and serves there.

Why it exists: users' images bring their own Python, and code is compared as bytecode, which every version writes in its own
way. In an environment of its own with each Python on this machine: a small model to a package and one that does not export to
caches; both are served there by fresh processes, and what one Python compiled is shown to another, which must refuse it in
words. A version that torch has no wheels for, or that is not on this machine, is told so. Exits 1 when one does not work.

    python benchmarks/python_versions.py 3.10 3.12 3.13 3.14
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from shared import add_out, earlier, origin
from torch_versions import MODELS, environment, faults_of, of_models, works, write

from architectures.check import faults
from architectures.job import compile_architecture
from architectures.table import BY_NAME
from lab.paths import cache_root
from lab.venv import ensure_uv

#: What pyproject.toml pins for our own tests; then what else is supported, for a Python that the newest has no wheels for.
TORCHES = ("2.15.0", "2.14.1", "2.13.0")


def interpreter(version: str) -> str | None:
    """A Python of that minor version on this machine; none is downloaded."""
    env = dict(os.environ)
    if shutil.which("pyenv"):
        # Its shims only run the versions that are chosen: all of them.
        listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=False).stdout
        env["PYENV_VERSION"] = ":".join(listed.split())
    words = [ensure_uv(), "python", "find", "--no-python-downloads", "--system", version]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    return done.stdout.strip() or None


def exact(python: str) -> str:
    """Its whole version."""
    script = "import sys; print('{}.{}.{}'.format(*sys.version_info))"
    return subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def same_minor(python: str, other: str) -> bool:
    """Whether what one compiled is for the other as well."""
    return exact(python).rpartition(".")[0] == exact(other).rpartition(".")[0]


def attempt(name: str, python: str, other: str) -> dict[str, Any]:
    """What becomes of one architecture with that Python, and what `other` says of its artifact."""
    nothing = Path("/nonexistent")
    with tempfile.TemporaryDirectory(prefix="preheat-python-") as scratch:
        folder = Path(scratch)
        try:
            job = compile_architecture(BY_NAME[name], folder / "job", nothing, python=python)
            served = job.serve(folder / "served", nothing) if job.target["tier"] else None
            elsewhere = refused_by(other, job, folder / "elsewhere") if served else None
        except AssertionError as error:
            return {"verdict": "refused", "said": str(error)[-1500:], "faults": [str(error)[-1500:]]}
        target = job.target
        found = faults(job, served)
        if elsewhere is not None and ("Python " in elsewhere) == same_minor(python, other):
            found.append(f"another Python says {elsewhere!r}")
        return {
            "verdict": f"{target['verdict']} {target['reason']}",
            "tier": target["tier"],
            "said": target["message"].replace(f"{folder}/job/app/", ""),
            "outcomes": served and served.outcomes,
            "error": served and max(served.answer["errors"]),
            "elsewhere": elsewhere,
            "faults": found,
        }


def refused_by(other: str, job: Any, folder: Path) -> str:
    """What another Python, with a torch of the same version, says of the artifact: the reason against its fingerprint."""
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from preheat_runtime.fingerprint import Fingerprint, reasons_against\n"
        "print('; '.join(reasons_against(Fingerprint.from_json(json.loads(sys.argv[2])))))"
    )
    words = [other, "-c", script, str(job.pod(folder) / "site"), json.dumps(job.target["fingerprint"])]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def row(version: str) -> dict[str, Any]:
    """What that version can do; its environment is removed."""
    about = {
        "version": version,
        "torch": TORCHES[0],
        **origin(),
    }
    python = interpreter(version)
    if python is None:
        return {
            **about,
            "not_run": f"there is no Python {version} on this machine; install one and run this again",
            "models": {},
        }
    about["python"] = exact(python)
    name, why = f"-python-{version}", ""
    for torch in TORCHES:
        try:
            place = environment(torch, python, name=name, cache=cache_root() / "uv")
            models = {each: attempt(each, str(place / "bin" / "python"), sys.executable) for each in MODELS}
            return {**about, "torch": torch, "models": models}
        except subprocess.CalledProcessError as error:
            words = " ".join(str(error.stderr or error).split())[-300:]
            why = why or f"torch {torch} cannot be installed: {words}"
        finally:
            shutil.rmtree(cache_root() / f"torch-{torch}{name}", ignore_errors=True)
    return {**about, "unsupported": why, "models": {}}


def renewed(kept: dict[str, Any] | None, found: dict[str, Any]) -> dict[str, Any]:
    """The row to keep: that this machine lacks a version says nothing against what another machine saw of it."""
    return kept if kept is not None and "not_run" in found else found


def verdict(each: dict[str, Any]) -> str:
    """The row in a word."""
    return (
        "not run" if "not_run" in each else "not supported" if "unsupported" in each else "yes" if works(each) else "NO"
    )


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    about = (
        "Each version of Python in an environment of its own with the newest torch that has wheels for it, from the package registry's default ones (CUDA builds, "
        "run on a CPU): a small model with the weights that compilers bake in, to a package served hot, and one with control flow on "
        "values, to caches served warm, by fresh processes of the same Python; and what the Python of our own tests says of that "
        "package. *Error* is the largest relative error that an independent calculation saw in the served process. "
        "`python benchmarks/python_versions.py VERSION …` makes this file."
    )
    head = ["Python", "torch", "package", "caches", "another Python says", "works", "measured"]
    lines = ["# Versions of Python", "", about, "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for each in rows:
        cells = [each.get("python", each["version"]), each["torch"] if each["models"] else "–"]
        cells += of_models(each)
        said = [found["elsewhere"] for found in each["models"].values() if found.get("elsewhere")]
        cells += [said[0] if said else "–", verdict(each)]
        cells.append(f"{each['commit']}, {each['date']}, {each['machine']}")
        lines.append(f"| {' | '.join(cells)} |")
    words = [f"- {each['version']}: {each[why]}." for each in rows for why in ("not_run", "unsupported") if why in each]
    words += faults_of(rows)
    return "\n".join(
        [*lines, *(["", "## What is not in it, or was not as it must be", "", *words] if words else []), ""]
    )


def main() -> int:
    """Try the versions, renew their rows, and say whether each works, or why it cannot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    add_out(parser)
    arguments = parser.parse_args()
    place = arguments.out / "python-versions.json"
    rows = earlier(place, "version")
    for version in arguments.versions:
        found = row(version)
        rows[version] = renewed(rows.get(version), found)
        print(f"Python {version}: {verdict(found)}", flush=True)
        write(place, rows, table)
    return 1 if any(verdict(each) == "NO" for each in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
