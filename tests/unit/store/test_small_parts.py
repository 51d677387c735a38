"""The store's settings, keys and reading of errors; fit, termination messages, merging: each rule by itself."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from botocore import exceptions
from hypothesis import given
from hypothesis import strategies as st

from preheat_operator.containers import termination
from preheat_operator.containers.fit import Machine, fits
from preheat_operator.containers.untrusted import UntrustedFileError, UntrustedFolder
from preheat_operator.store.config import StoreConfig, read_credentials
from preheat_operator.store.errors import Retry, StoreCredentialsMissingError, StoreDeniedError, StoreError
from preheat_operator.store.keys import Keys
from preheat_operator.store.objects import translate
from preheat_runtime.fingerprint import CPU_CLASSES
from preheat_runtime.manifest import Target

if TYPE_CHECKING:
    import random
    from pathlib import Path

TARGET = Target(
    module="main", bucket="batch", hardware="cpu", verdict="Kept", reason="Faster", message="", tier="package",
    request_key="0" * 64, fingerprint={"machine": "x86_64", "device": "cpu", "cpuIsa": "X86_64_V3"},
    figures={"speedup": "1.75"}, files=(),
)  # fmt: skip
V3 = Machine(architecture="x86_64", cpu_flags=CPU_CLASSES["X86_64_V3"])
ENV = {"PREHEAT_STORE_BUCKET": "models", "PREHEAT_STORE_TENANT": "cluster.prod"}


@pytest.mark.parametrize(
    ("verdict", "fingerprint", "machine", "expected"),
    [
        ("Kept", {}, V3, True),
        ("Rejected", {}, V3, True),
        ("Failed", {}, V3, False),
        ("Kept", {"cpuIsa": "X86_64_V4"}, V3, False),
        ("Kept", {"cpuIsa": "X86_64_V4"}, replace(V3, cpu_flags=CPU_CLASSES["X86_64_V4"]), True),
        ("Kept", {"cpuIsa": "X86_64_V4", "device": "cuda"}, V3, True),
        ("Kept", {"cpuIsa": "Native:avx2,fma"}, V3, True),
        ("Kept", {"cpuIsa": "Native:avx2,avx512f"}, V3, False),
        ("Kept", {"cpuIsa": "ARM64_V9"}, V3, True),
        ("Kept", {"machine": "aarch64"}, V3, False),
        ("Kept", {"machine": "aarch64", "device": "cuda"}, V3, False),
        ("Kept", {}, replace(V3, cpu_flags=V3.cpu_flags - {"avx2"}), False),
        ("Kept", {}, replace(V3, cpu_flags=frozenset()), True),
    ],
)
def test_which_targets_fit_a_machine(
    verdict: str, fingerprint: dict[str, str], machine: Machine, expected: bool
) -> None:
    target = replace(TARGET, verdict=verdict, fingerprint={**(TARGET.fingerprint or {}), **fingerprint})
    assert fits(target, machine) is expected


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PREHEAT_STORE_BUCKET", ""),
        ("PREHEAT_STORE_BUCKET", "Not/A/Bucket"),
        ("PREHEAT_STORE_TENANT", ""),
        ("PREHEAT_STORE_TENANT", "../other"),
        ("PREHEAT_STORE_TENANT", "a/b"),
        ("PREHEAT_STORE_TENANT", "a..b"),
        ("PREHEAT_STORE_ENDPOINT", "s3.example.org:9000"),
        ("PREHEAT_STORE_ENDPOINT", "ftp://s3.example.org"),
        ("PREHEAT_STORE_ENDPOINT", "http://user:hidden@s3.example.org"),
        ("PREHEAT_STORE_ENDPOINT", "http://s3.example.org:port"),
        ("PREHEAT_STORE_CA", "/nonexistent/ca.crt"),
    ],
)
def test_a_wrong_setting_is_named(variable: str, value: str) -> None:
    with pytest.raises(StoreDeniedError, match=variable) as raised:
        StoreConfig.from_env({**ENV, variable: value})
    assert "hidden" not in str(raised.value)


def test_an_empty_endpoint_means_aws() -> None:
    config = StoreConfig.from_env({**ENV, "PREHEAT_STORE_ENDPOINT": ""})
    assert (config.endpoint, config.region) == (None, "us-east-1")


def test_credentials_come_from_the_mounted_secret(tmp_path: Path) -> None:
    assert read_credentials(None) is None
    assert read_credentials(tmp_path) is None
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("id\n")
    with pytest.raises(StoreCredentialsMissingError, match="AWS_SECRET_ACCESS_KEY"):
        read_credentials(tmp_path)
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text(" hidden \n")
    found = read_credentials(tmp_path)
    assert found is not None
    assert (found.key_id, found.secret, found.token) == ("id", "hidden", None)
    assert "hidden" not in repr(found)
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("hid den")
    with pytest.raises(StoreCredentialsMissingError) as raised:
        read_credentials(tmp_path)
    assert "hid den" not in str(raised.value)


def test_without_secret_or_web_identity_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from preheat_operator.store.client import make_client

    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws/credentials").write_text("[default]\naws_access_key_id=a\naws_secret_access_key=b\n")
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(StoreCredentialsMissingError, match="create the Secret"):
        make_client(replace(StoreConfig.from_env(ENV), credentials=tmp_path), connections=1)


def test_web_identity_is_used_where_the_secret_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from preheat_operator.store.client import make_client

    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/preheat")
    client = make_client(StoreConfig.from_env(ENV), connections=1)
    assert client.meta.region_name == "us-east-1"
    client.close()


def test_clients_of_one_process_share_what_s3_is_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from preheat_operator.store.client import make_client

    # Of another S3, as botocore would find it below the home.
    models = tmp_path / ".aws/models/s3/9999-01-01"
    models.mkdir(parents=True)
    (models / "service-2.json").write_text('{"metadata": {"apiVersion": "9999-01-01"}, "operations": {}}')
    monkeypatch.setenv("HOME", str(tmp_path))
    signed = []
    for name in ("one", "two"):
        secret = tmp_path / name
        secret.mkdir()
        (secret / "AWS_ACCESS_KEY_ID").write_text(f"key-{name}")
        (secret / "AWS_SECRET_ACCESS_KEY").write_text(f"secret-{name}")
        config = replace(StoreConfig.from_env(ENV), endpoint=f"http://{name}.invalid", credentials=secret)
        client = make_client(config, connections=1)
        signed.append(client.generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"}))
        client.close()
    for name, url in zip(("one", "two"), signed, strict=True):
        assert url.startswith(f"http://{name}.invalid/b/k?")
        assert f"X-Amz-Credential=key-{name}" in url


def test_keys_never_leave_the_tenant() -> None:
    keys = Keys("cluster.prod")
    assert keys.blob("a" * 64) == f"v1/cluster.prod/blobs/sha256/{'a' * 64}"
    assert keys.manifest("sha256:" + "b" * 64) == f"v1/cluster.prod/manifests/sha256/{'b' * 64}.json"
    assert keys.job("0a-1b") == "v1/cluster.prod/index/job-0a-1b.json"
    for make, text in [
        (keys.blob, "../x"), (keys.blob, "A" * 64), (keys.manifest, "b" * 64), (keys.request, "x/y"), (keys.job, "../x"),
        (keys.job, ""),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match="is no"):
            make(text)


def client_error(code: str, status: int) -> exceptions.ClientError:
    body: Any = {
        "Error": {"Code": code, "Message": "text of the server"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return exceptions.ClientError(body, "PutObject")


@pytest.mark.parametrize(
    ("error", "reason", "retry"),
    [
        (client_error("AccessDenied", 403), "StoreDenied", Retry.NEVER),
        (client_error("SignatureDoesNotMatch", 403), "StoreDenied", Retry.NEVER),
        (client_error("NoSuchBucket", 404), "StoreDenied", Retry.NEVER),
        (client_error("PermanentRedirect", 301), "StoreDenied", Retry.NEVER),
        (client_error("SlowDown", 503), "StoreUnreachable", Retry.LATER),
        (client_error("TooMany", 429), "StoreUnreachable", Retry.LATER),
        (client_error("BadDigest", 400), "StoreUnreachable", Retry.LATER),
        (client_error("Whatever", 500), "StoreUnreachable", Retry.LATER),
        (client_error("ConditionalRequestConflict", 409), "StoreUnreachable", Retry.LATER),
        (client_error("MethodNotAllowed", 405), "Internal", Retry.NEVER),
        (exceptions.NoCredentialsError(), "StoreCredentialsMissing", Retry.NEVER),
        (exceptions.EndpointConnectionError(endpoint_url="http://x"), "StoreUnreachable", Retry.LATER),
        (exceptions.ReadTimeoutError(endpoint_url="http://x"), "StoreUnreachable", Retry.LATER),
        (exceptions.SSLError(endpoint_url="http://x", error="e"), "StoreUnreachable", Retry.LATER),
        (ConnectionResetError(), "StoreUnreachable", Retry.LATER),
        (KeyError("x"), "Internal", Retry.NEVER),
    ],
)
def test_what_the_library_says_becomes_a_reason(error: Exception, reason: str, retry: Retry) -> None:
    found = translate(error, "put key")
    assert isinstance(found, StoreError)
    assert (found.reason, found.retry) == (reason, retry)
    assert "text of the server" not in str(found)


def test_a_short_termination_message_is_plain() -> None:
    message = json.loads(termination.published("sha256:x", "/app", [TARGET]))
    assert message == {"v": 1, "digest": "sha256:x", "pythonPath": "/app", "targets": ["main|batch|Kept|Faster|1.75||"]}


def test_what_went_wrong_is_in_the_termination_message_failures_first() -> None:
    rejected = replace(TARGET, bucket="slow", verdict="Rejected", reason="SpeedupBelowMinimum", message="it is slower")
    failed = replace(
        TARGET, bucket="broken", verdict="Failed", reason="FactoryFailed", message="model.py:3: " + "x" * 900
    )
    message = json.loads(termination.published("sha256:x", None, [TARGET, rejected, failed]))
    assert list(message["words"]) == ["main/broken", "main/slow"]
    assert message["words"]["main/broken"] == "model.py:3: " + "x" * 488
    many = [replace(failed, bucket=f"broken{n}") for n in range(50)]
    full = termination.published("sha256:x", None, many)
    assert len(full) <= 4096
    assert 0 < len(json.loads(full)["words"]) < 50


@given(st.integers(0, 256), st.integers(1, 63), st.integers(0, 2000), st.randoms(use_true_random=False))
def test_a_termination_message_always_fits_and_has_the_digest(
    count: int, length: int, path: int, chance: random.Random
) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    targets = [replace(TARGET, bucket="".join(chance.choices(letters, k=length))) for _ in range(count)]
    data = termination.published("sha256:x", "/" * path, targets)
    assert len(data) <= 4096
    message = json.loads(data)
    assert (message["digest"], message["pythonPath"]) == ("sha256:x", "/" * path)
    if "targetsZ" in message:
        assert len(json.loads(zlib.decompress(base64.b64decode(message["targetsZ"])))) == count


@given(st.text(max_size=3000))
def test_a_failure_always_fits(text: str) -> None:
    data = termination.failed("Internal", text)
    assert len(data) <= 4096
    assert text.startswith(json.loads(data)["message"])


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "growing").write_bytes(b"x" * 100)
    (tmp_path / "shrinking").write_bytes(b"x" * 100)
    with UntrustedFolder(tmp_path) as folder:
        with folder.open("growing", limit=1000) as source:
            (tmp_path / "growing").write_bytes(b"x" * 200)
            with pytest.raises(UntrustedFileError, match="changed its size"):
                source.read(100)
        with folder.open("shrinking", limit=1000) as source:
            (tmp_path / "shrinking").write_bytes(b"")
            with pytest.raises(UntrustedFileError, match="changed its size"):
                source.read(100)


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 100)
    with UntrustedFolder(tmp_path) as folder, pytest.raises(UntrustedFileError, match="100 bytes, more than 99"):
        folder.open("big", limit=99)
