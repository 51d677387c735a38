"""What a compile without a cluster leaves in a store, made without compiling."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from preheat_operator.cli.compile import publish_result
from preheat_operator.containers.request import JobRequest
from preheat_runtime.manifest import canonical_json
from store.kit import REQUEST, artifact, fingerprint, target, write_out

if TYPE_CHECKING:
    from pathlib import Path

    from preheat_operator.store.interface import Objects
    from preheat_operator.store.keys import Keys

# Half of it does not compress.
MODEL = random.Random(1).randbytes(50_000) + b"\0" * 50_000
LOCAL: dict[str, Any] = {**REQUEST, "namespace": "default", "uid": "local", "image": "local"}


@dataclass
class Out:
    """A folder as a compile pod has it, for `write_out`."""

    directory: Path


def here(**changes: Any) -> dict[str, Any]:
    """A fingerprint that fits this machine as far as a fetch can see."""
    return fingerprint(cpuIsa="Native:", **changes)


def asked_target(asked: dict[str, Any] | None, **changes: Any) -> tuple[dict[str, Any], bytes]:
    """A target whose key is the hash of `asked`, and its report.json."""
    made = target(fingerprint=here(), **changes)
    if asked is not None:
        made["requestKey"] = hashlib.sha256(canonical_json(asked)).hexdigest()
    report = {
        "formatVersion": 1,
        "hardware": "cpu",
        **{k: made[k] for k in ("module", "bucket", "requestKey", "fingerprint")},
    }
    return made, json.dumps({**report, "asked": asked}).encode()


def published(
    folder: Path, store: Objects, keys: Keys, *, model: bytes = MODEL, targets: list[dict[str, Any]] | None = None,
    files: dict[str, bytes] | None = None, **request: Any,
) -> str:  # fmt: skip
    """Publish one artifact as `preheat compile` does; returns the digest."""
    out = folder / "out"
    out.mkdir(parents=True, exist_ok=True)
    made = [target(fingerprint=here())] if targets is None else targets
    write_out(Out(folder), {**artifact(model), **(files or {})}, made)  # type: ignore[arg-type]
    pairs = [{"module": each["module"], "bucket": each["bucket"]} for each in made]
    asked = JobRequest.parse(json.dumps({**LOCAL, "targets": pairs, **request}))
    return publish_result(out, asked, store, keys)[0]
