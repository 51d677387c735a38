"""`preheat diff`: why the request keys of two manifests' targets differ, field by field.

A request key is a hash, so each target's report.json keeps what it is the hash of (`asked`). What is compared is that
document; where it is not there (an older artifact, a target that failed early) the manifest's own fields are, and it
is said.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preheat_operator.cli import exits
from preheat_operator.cli.errors import CommandError
from preheat_operator.cli.found import find, is_file, is_report, read_report
from preheat_operator.cli.output import write, write_json
from preheat_operator.cli.stores import StoreLocation, location_of
from preheat_runtime.manifest import ManifestError, canonical_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

Key = tuple[str, str, str]
_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one target's key was made of; `note` says when that is not the whole of it."""

    request_key: str | None
    document: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field in which two documents differ; None stands for an absent value."""

    field: str
    a: Any
    b: Any


def main(options: argparse.Namespace) -> int:
    """Print the differences; returns the exit code. Raises CommandError or StoreError."""
    location = location_of(options)
    a, b = (_asked(what, location) for what in (options.a, options.b))
    # Two lone targets are compared also when they are called differently: there is nothing else to compare them with.
    alone = len(a) == len(b) == 1
    pairs = list(zip(a, b, strict=True)) if alone else [(key, key) for key in a if key in b]
    compared = [(one, other, _compared(a[one], b[other])) for one, other in pairs]
    only_a = [key for key in a if key not in {one for one, _ in pairs}]
    only_b = [key for key in b if key not in {other for _, other in pairs}]
    same = not only_a and not only_b and all(_same(a[one], b[other]) for one, other in pairs)
    if options.output == "json":
        write_json(
            {
                "same": same,
                "targets": [_as_json(one, other, a[one], b[other], found) for one, other, found in compared],
                "onlyA": ["/".join(key) for key in only_a],
                "onlyB": ["/".join(key) for key in only_b],
            }
        )
    else:
        for one, other, found in compared:
            for line in _lines(one, other, a[one], b[other], found):
                write(line)
        for key in only_a:
            write(f"{'/'.join(key)}: only in {options.a}")
        for key in only_b:
            write(f"{'/'.join(key)}: only in {options.b}")
    return exits.OK if same else exits.DIFFERENT


def differences(a: Any, b: Any, field: str = "") -> Iterator[Difference]:
    """The leaves in which two JSON values differ, in the order of their paths."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            yield from differences(a.get(key, _ABSENT), b.get(key, _ABSENT), f"{field}.{key}" if field else key)
    elif isinstance(a, list) and isinstance(b, list):
        for i in range(max(len(a), len(b))):
            one, other = (each[i] if i < len(each) else _ABSENT for each in (a, b))
            yield from differences(one, other, f"{field}[{i}]")
    elif a is _ABSENT or b is _ABSENT or a != b or type(a) is not type(b):
        yield Difference(field=field, a=None if a is _ABSENT else a, b=None if b is _ABSENT else b)


def _same(a: Asked, b: Asked) -> bool:
    return a.request_key is not None and a.request_key == b.request_key


def _compared(a: Asked, b: Asked) -> list[Difference]:
    return [] if _same(a, b) else list(differences(a.document, b.document))


def _asked(what: str, location: StoreLocation | None) -> dict[Key, Asked]:
    if is_file(what) and is_report(Path(what)):
        alone = read_report(Path(what))
        key = (str(alone.get("module")), str(alone.get("bucket")), str(alone.get("hardware")))
        return {key: _of_report(alone, {"fingerprint": alone.get("fingerprint")})}
    found = find(what, location)
    answer = {}
    for target in found.manifest.targets:
        own = {"image": found.manifest.image, "fingerprint": target.fingerprint}
        try:
            report = found.report(target)
        except CommandError as error:
            answer[target.key] = Asked(request_key=target.request_key, document=own, note=str(error))
            continue
        answer[target.key] = (
            Asked(request_key=target.request_key, document=own, note="there is no report.json")
            if report is None
            else _of_report({**report, "requestKey": target.request_key}, own)
        )
    return answer


def _of_report(report: Mapping[str, Any], otherwise: Mapping[str, Any]) -> Asked:
    """What the report says was asked, if its hash is the key; else the fields that are known without it."""
    asked, key = report.get("asked"), report.get("requestKey")
    if not isinstance(asked, dict) or key is None:
        return Asked(request_key=key, document=otherwise, note="report.json does not say what was asked")
    try:
        right = hashlib.sha256(canonical_json(asked)).hexdigest() == key
    except ManifestError:
        right = False
    if not right:
        return Asked(
            request_key=key, document=otherwise, note="what report.json says was asked is not what the key says"
        )
    return Asked(request_key=key, document=asked)


def _lines(one: Key, other: Key, a: Asked, b: Asked, found: list[Difference]) -> Iterator[str]:
    title = "/".join(one) if one == other else f"{'/'.join(one)} and {'/'.join(other)}"
    if _same(a, b):
        yield f"{title}: the same key {a.request_key}"
        return
    yield f"{title}: {a.request_key or 'no key'} and {b.request_key or 'no key'}"
    for side, asked in (("A", a), ("B", b)):
        if asked.note:
            yield f"  {side}: {asked.note}; only {', '.join(sorted(asked.document))} are compared"
    for each in found:
        yield f"  {each.field}: {_shown(each.a)} -> {_shown(each.b)}"


def _as_json(one: Key, other: Key, a: Asked, b: Asked, found: list[Difference]) -> dict[str, Any]:
    def side(key: Key, asked: Asked) -> dict[str, Any]:
        return {"target": "/".join(key), "requestKey": asked.request_key, "note": asked.note}

    return {
        "a": side(one, a),
        "b": side(other, b),
        "differences": [{"field": each.field, "a": each.a, "b": each.b} for each in found],
    }


def _shown(value: Any) -> str:
    return "absent" if value is None else canonical_json(value).decode().strip()
