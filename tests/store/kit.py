"""What the store's tests need: a pod's folder, its containers as processes, and what a compile step leaves."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preheat_operator.store.config import StoreConfig
from preheat_operator.store.keys import Keys

ROOT = Path(__file__).resolve().parents[2]
BUCKET = "preheat"
TENANT = "cluster.prod"


# Identity, environment, and the reason with which a container that must write gives up.
REFUSALS: dict[str, tuple[str, dict[str, str], str]] = {
    "read-only": ("fetch", {}, "StoreDenied"),
    "wrong-key": ("wrong", {}, "StoreDenied"),
    "no-secret": ("missing", {}, "StoreCredentialsMissing"),
    "no-bucket": ("publish", {"PREHEAT_STORE_BUCKET": "no-such-bucket"}, "StoreDenied"),
}


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    port: int
    credentials: dict[str, Path]

    def config(self, identity: str = "publish", **changes: Any) -> StoreConfig:
        values = {
            "endpoint": self.endpoint, "bucket": BUCKET, "region": "us-east-1", "tenant": TENANT,
            "credentials": self.credentials[identity], "ca": None, **changes,
        }  # fmt: skip
        return StoreConfig(**values)


@dataclass
class Container:
    """One run of a container of Preheat; paths, exit code, and what it said."""

    code: int
    message: dict[str, Any]
    stdout: str
    stderr: str
    seconds: float

    @property
    def log(self) -> dict[str, Any]:
        return json.loads(self.stdout.strip().splitlines()[-1])


@dataclass
class Pod:
    """A pod's shared folder, and its containers as processes with the environment of docs/contracts.md, 2."""

    directory: Path
    s3: S3Server
    tenant: str
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> Keys:
        return Keys(self.tenant)

    def environment(self, identity: str, **env: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'compiler_job'}",
            "HOME": "/nonexistent",
            "PREHEAT_DIR": str(self.directory),
            "PREHEAT_NAMESPACE": "prod",
            "PREHEAT_MODEL": "vision",
            "PREHEAT_STORE_ENDPOINT": self.s3.endpoint,
            "PREHEAT_STORE_BUCKET": BUCKET,
            "PREHEAT_STORE_REGION": "us-east-1",
            "PREHEAT_STORE_TENANT": self.tenant,
            "PREHEAT_STORE_CREDENTIALS": str(self.s3.credentials[identity]),
            "PREHEAT_STORE_CA": "",
            "PREHEAT_TERMINATION_LOG": str(self.directory / "termination-log"),
            **self.extra,
            **env,
        }

    def start(self, name: str, *, identity: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", f"preheat_operator.{name}"],
            env=self.environment(identity, **env), text=True, cwd="/",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, name: str, *, identity: str, timeout: float = 120, **env: str) -> Container:
        started = time.monotonic()
        log = self.directory / "termination-log"
        log.unlink(missing_ok=True)
        process = self.start(name, identity=identity, **env)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        finally:
            process.kill()
            process.wait()
        message = json.loads(log.read_bytes()) if log.exists() else {}
        return Container(process.returncode, message, stdout, stderr, time.monotonic() - started)

    def publish(self, request: dict[str, Any] | None = None, *, identity: str = "publish", **env: str) -> Container:
        env = {"PREHEAT_JOB_UID": "5d1f0f3a-0000-4000-8000-000000000001", **env}
        return self.run("publish", identity=identity, PREHEAT_REQUEST=json.dumps(request or REQUEST), **env)

    def fetch(self, digest: str, *, identity: str = "fetch", **env: str) -> Container:
        return self.run("fetch", identity=identity, PREHEAT_MANIFEST=digest, **env)

    def receipt(self) -> dict[str, Any]:
        return json.loads((self.directory / "fetch.json").read_text())


REQUEST: dict[str, Any] = {
    "formatVersion": 1, "namespace": "prod", "name": "vision", "uid": "0b9e", "revision": "vision-7f3a19c2",
    "image": "registry/vision:1.4", "hardware": "cpu", "cpuIsa": "X86_64_V3", "torch": {"factory": "m:f"},
    "keepIf": {"minSpeedup": "1.05"}, "targets": [{"module": "main", "bucket": "batch"}], "timeoutSeconds": 60,
}  # fmt: skip


def fingerprint(**changes: Any) -> dict[str, Any]:
    return {
        "torch": "2.15.0", "python": "3.11", "machine": os.uname().machine, "device": "cpu", "cpuIsa": None,
        "gpuName": None, "gpuCapability": None, "cuda": None, "triton": None, "driver": None, "settings": {}, **changes,
    }  # fmt: skip


def target(module: str = "main", bucket: str = "batch", **changes: Any) -> dict[str, Any]:
    key = hashlib.sha256(f"{module}/{bucket}".encode()).hexdigest()
    return {
        "module": module, "bucket": bucket, "verdict": "Kept", "reason": "Faster", "message": "1.75 times as fast",
        "tier": "package", "requestKey": key, "fingerprint": fingerprint(),
        "figures": {"speedup": "1.7500", "firstAnswerSeconds": "0.1200", "sizeBytes": "1900000"},
        "directory": f"{module}/{bucket}", "files": ["model.so", "target.json", "report.json"], **changes,
    }  # fmt: skip


def write_out(pod: Pod, files: dict[str, bytes], targets: list[dict[str, Any]] | None = None) -> None:
    """Leave what the compile step leaves: files by their path below out/, and result.json."""
    out = pod.directory / "out"
    for path, data in files.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(data)
    result = {
        "formatVersion": 1, "imagePythonPath": "/app", "python": "3.11.2",
        "targets": [target()] if targets is None else targets,
    }  # fmt: skip
    (out / "result.json").write_text(json.dumps(result))


def artifact(model: bytes) -> dict[str, bytes]:
    return {"main/batch/model.so": model, "main/batch/target.json": b"{}\n", "main/batch/report.json": b'{"a":1}\n'}


def revision_files(pod: Pod) -> dict[str, bytes]:
    root = pod.directory / "revision"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
