"""A real S3 server (SeaweedFS) on loopback, for the store's tests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from children import die_with_parent
from folders import of_folder
from preheat_operator.cli.stores import StoreLocation
from preheat_operator.store.client import make_client
from store.both import AWS, Either
from store.kit import BUCKET, Pod, S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

IDENTITIES = {"admin": ["Admin"], "publish": ["Read", "Write", "List"], "fetch": ["Read", "List"]}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _credentials(folder: Path, name: str, secret: str | None = None) -> Path:
    folder = folder / name
    folder.mkdir(parents=True)
    (folder / "AWS_ACCESS_KEY_ID").write_text(f"{name}-key\n")
    (folder / "AWS_SECRET_ACCESS_KEY").write_text(f"{secret or name + '-secret'}\n")
    return folder


@pytest.fixture(scope="module")
def s3(request: pytest.FixtureRequest) -> S3Server:
    """The S3 server of this folder's tests."""
    return of_folder(request, _running)


@contextlib.contextmanager
def _running() -> Iterator[S3Server]:
    home = Path(tempfile.mkdtemp(prefix="preheat-s3-"))
    weed = shutil.which("weed") or str(Path(sys.executable).parent / "weed")
    identities = [
        {
            "name": name,
            "credentials": [{"accessKey": f"{name}-key", "secretKey": f"{name}-secret"}],
            "actions": actions if name == "admin" else [f"{action}:{BUCKET}" for action in actions],
        }
        for name, actions in IDENTITIES.items()
    ]
    (home / "s3.json").write_text(json.dumps({"identities": identities}))
    (home / "data").mkdir()
    names = ("master", "volume", "filer", "s3")
    ports = {name: free_port() for name in names}
    arguments = [f"-{name}.port={port}" for name, port in ports.items()]
    arguments += [f"-{name}.port.grpc={free_port()}" for name in names]
    with (home / "weed.log").open("wb") as log:
        process = subprocess.Popen(
            [
                weed, "server", "-s3", f"-s3.config={home / 's3.json'}", f"-dir={home / 'data'}", "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1", "-volume.max=20", "-master.volumeSizeLimitMB=512",
                "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0", *arguments,
            ],
            stdout=log, stderr=subprocess.STDOUT, cwd=home, preexec_fn=die_with_parent,
        )  # fmt: skip
    server = S3Server(
        endpoint=f"http://127.0.0.1:{ports['s3']}",
        port=ports["s3"],
        credentials={name: _credentials(home, name) for name in IDENTITIES}
        | {"wrong": _credentials(home / "wrong", "publish", "not-the-secret"), "missing": home / "missing"},
    )
    try:
        _wait_ready(server, process, home / "weed.log")
        yield server
    finally:
        # Nothing in it is worth a graceful end, which takes half a minute.
        process.kill()
        process.wait(10)
        shutil.rmtree(home, ignore_errors=True)


def _wait_ready(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    admin = make_client(server.config("admin"), connections=1)
    for _ in range(240):
        if process.poll() is not None:
            break
        try:
            admin.create_bucket(Bucket=BUCKET)
            admin.put_object(Bucket=BUCKET, Key="ready", Body=b"yes")
        except Exception:
            time.sleep(0.25)
        else:
            return
    pytest.fail(f"the S3 server did not become ready:\n{log.read_text()[-4000:]}")


@pytest.fixture
def admin(s3: S3Server) -> Iterator[Any]:
    client = make_client(s3.config("admin"), connections=4)
    yield client
    client.close()


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> str:
    """A prefix of the bucket for one test alone."""
    return "test." + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]


@pytest.fixture
def pod(tmp_path: Path, s3: S3Server, tenant: str) -> Pod:
    directory = tmp_path / "compile-pod"
    (directory / "out").mkdir(parents=True)
    return Pod(directory, s3, tenant)


@pytest.fixture
def server_pod(tmp_path: Path, s3: S3Server, tenant: str) -> Pod:
    """A serving pod in the same tenant as `pod`."""
    directory = tmp_path / "serving-pod"
    directory.mkdir()
    return Pod(directory, s3, tenant)


@pytest.fixture(params=["folder", "s3", "s3-prefix"])
def either(request: pytest.FixtureRequest, tmp_path: Path, tenant: str, monkeypatch: pytest.MonkeyPatch) -> Either:
    if request.param == "folder":
        return Either(StoreLocation.parse(str(tmp_path / "store"), tenant=tenant), None)
    server: S3Server = request.getfixturevalue("s3")
    folder = server.credentials["publish"]
    for name in AWS:
        monkeypatch.setenv(name, (folder / name).read_text().strip())
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
    below = "/some/where" if request.param == "s3-prefix" else ""
    location = StoreLocation.parse(f"s3://{BUCKET}{below}", tenant=tenant)
    return Either(location, request.getfixturevalue("admin"))
