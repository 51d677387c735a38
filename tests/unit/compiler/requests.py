"""A valid request, to be changed by each test."""

from __future__ import annotations

from typing import Any


def make(**changes: Any) -> dict[str, Any]:
    bucket = {
        "name": "batch",
        "dims": [{"name": "n", "min": 1, "max": 32, "multipleOf": 1}],
        "args": [{"tensor": {"shape": ["n", 64], "dtype": "float32"}}],
        "kwargs": [{"name": "flag", "const": {"type": "Bool", "value": "true"}}],
    }
    request: dict[str, Any] = {
        "formatVersion": 1,
        "namespace": "prod",
        "name": "vision",
        "uid": "0c5b",
        "revision": "vision-7f3a19c2",
        "image": "registry/vision:1.4",
        "hardware": "cpu",
        "cpuIsa": "X86_64_V3",
        "torch": {"factory": "model:load", "modules": [{"name": "main", "path": "", "buckets": [bucket]}]},
        "keepIf": {"minSpeedup": "1.05"},
        "targets": [{"module": "main", "bucket": "batch"}],
        "timeoutSeconds": 3600,
    }
    request.update(changes)
    return request
