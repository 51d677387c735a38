"""`preheat inspect`: what a manifest says, for people or for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from preheat_operator.cli import exits
from preheat_operator.cli.found import Found, find
from preheat_operator.cli.output import name, size, speedup, table, write, write_json
from preheat_operator.cli.stores import location_of
from preheat_runtime.manifest import load_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from preheat_runtime.manifest import Target

_WORDS = {
    "eagerP50Ms": "eager median ms", "compiledP50Ms": "compiled median ms", "maxError": "largest error",
    "firstAnswerSeconds": "first answer s", "eagerFirstAnswerSeconds": "eager first answer s",
    "compileSeconds": "compile s",
}  # fmt: skip


def main(options: argparse.Namespace) -> int:
    """Print the manifest; returns the exit code. Raises CommandError or StoreError."""
    found = find(options.what, location_of(options))
    if options.output == "json":
        write_json(as_json(found))
    else:
        for line in lines(found):
            write(line)
    return exits.OK


def as_json(found: Found) -> dict[str, Any]:
    """The manifest as it is, its digest, and the other manifests of the name it was found by."""
    manifest: dict[str, Any] = load_json(found.manifest.to_bytes())
    others = [entry.to_json() for entry in found.newest if entry.digest != found.digest]
    return {"digest": found.digest, "manifest": manifest, "others": others}


def lines(found: Found) -> Iterator[str]:
    """The manifest in words."""
    manifest = found.manifest
    facts = [
        ["revision", f"{manifest.revision} of {manifest.namespace}/{manifest.name}"],
        ["digest", found.digest],
        ["image", manifest.image],
        ["PYTHONPATH", manifest.image_python_path or "-"],
    ]
    facts += [
        ["also", f"{entry.revision} for {entry.hardware} in image {entry.image}: {entry.digest}"]
        for entry in found.newest
        if entry.digest != found.digest
    ]
    yield from table(facts)
    for target in manifest.targets:
        yield ""
        yield f"{name(target)}: {target.verdict} ({target.reason}){f', {target.tier}' if target.tier else ''}"
        yield from (f"  {line}" for line in table(_facts(target)))
        if target.files:
            rows = [[f"{file.size}", f"({size(_stored(file.pieces))} stored)", file.path] for file in target.files]
            yield from (f"    {line}" for line in table(rows))


def _facts(target: Target) -> list[list[str]]:
    rows = [["message", " ".join(target.message.split())]] if target.message else []
    if speed := speedup(target):
        low, high = target.figures.get("speedupLow"), target.figures.get("speedupHigh")
        rows.append(["speedup", f"{speed}{f' (95 %: {low} to {high})' if low and high else ''}"])
    rows += [[words, target.figures[key]] for key, words in _WORDS.items() if key in target.figures]
    if target.fingerprint is not None:
        rows.append(["fingerprint", ", ".join(_fingerprint(target.fingerprint))])
    rows.append(["request key", target.request_key or "-"])
    if target.files:
        rows.append(["files", f"{len(target.files)}, {size(sum(file.size for file in target.files))}"])
    return rows


def _fingerprint(fingerprint: Mapping[str, Any]) -> Iterator[str]:
    for key, value in fingerprint.items():
        if isinstance(value, dict):
            yield from (f"{name} {each}" for name, each in value.items())
        elif value is not None:
            yield f"{key} {value}"


def _stored(pieces: Any) -> int:
    return sum(piece.stored_size for piece in pieces)
