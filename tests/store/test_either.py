"""The store in a folder and the store on S3 keep the same promises: one suite for both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from preheat_operator.cli import revisions
from preheat_operator.cli.stores import StoreLocation
from preheat_operator.store.errors import ManifestCorruptError, UnknownFormatError
from preheat_operator.store.pointers import Entry, read_pointer, update_pointer, with_newest
from preheat_runtime.manifest import Manifest
from store.both import AWS, put, sha256
from store.kit import BUCKET, ROOT, S3Server
from store.local import MODEL, published
from store.proxy import Behaviour, proxy
from store.test_fetch_faults import ALTERATIONS, FORGERIES, wait_for_worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.both import Either

# On a bucket of its own `test_fetch_faults` tries the same with the containers themselves.
WITHOUT_PLAIN_S3 = pytest.mark.parametrize("either", ["folder", "s3-prefix"], indirect=True)


def test_what_was_put_is_there_whole(either: Either) -> None:
    store, keys = either.opened
    key, data = f"{keys.prefix}x/y.json", b"0123456789" * 100_000
    assert store.head(key) is store.get(key, limit=10) is store.get_versioned(key, limit=10) is None
    with store.chunks(key) as chunks:
        assert chunks is None
    assert put(store, key, data)
    info = store.head(key)
    assert info is not None
    assert info.size == len(data)
    assert info.sha256 in (None, sha256(data))
    assert store.get(key, limit=2_000_000) == data
    assert store.get(key, limit=10) == data[:11]
    with store.chunks(key) as chunks:
        assert chunks is not None
        assert b"".join(chunks) == data


def test_a_conditional_put_leaves_what_is_there(either: Either) -> None:
    store, keys = either.opened
    key = f"{keys.prefix}x"
    assert put(store, key, b"one", only_if_absent=True)
    assert not put(store, key, b"two", only_if_absent=True)
    assert store.get(key, limit=10) == b"one"
    assert put(store, key, b"three")
    assert store.get(key, limit=10) == b"three"


def test_a_version_is_replaced_once(either: Either) -> None:
    store, keys = either.opened
    key = f"{keys.prefix}x"
    put(store, key, b"one")
    seen = store.get_versioned(key, limit=10)
    assert seen is not None
    assert seen.data == b"one"
    assert store.replace(key, b"two", sha256=sha256(b"two"), version=seen.version)
    assert not store.replace(key, b"three", sha256=sha256(b"three"), version=seen.version)
    assert store.get(key, limit=10) == b"two"
    assert not store.replace(f"{key}-none", b"x", sha256=sha256(b"x"), version=seen.version)
    assert store.head(f"{key}-none") is None


def test_of_many_at_once_one_writes(either: Either) -> None:
    store, keys = either.opened
    key = f"{keys.prefix}x"
    values = [bytes([65 + i]) * 50_000 for i in range(8)]
    barrier = threading.Barrier(len(values))

    def write(data: bytes) -> bool:
        barrier.wait()
        return put(store, key, data, only_if_absent=True)

    with ThreadPoolExecutor(len(values)) as pool:
        wrote = list(pool.map(write, values))
    assert sum(wrote) == 1
    assert store.get(key, limit=100_000) == values[wrote.index(True)]


def entry(n: int) -> Entry:
    return Entry(image=f"r:{n}", hardware="cpu", revision="vision-1", digest=f"sha256:{n:064x}")


def test_no_entry_of_a_pointer_is_lost_among_many_writers(either: Either) -> None:
    barrier = threading.Barrier(6)

    def write(n: int) -> None:
        store, keys = either.opened
        barrier.wait()
        update_pointer(store, keys, "vision", lambda entries: with_newest(entries, [entry(n)]))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert set(read_pointer(*either.opened, "vision")) == {entry(n) for n in range(6)}
    assert either.keys_below(f"{either.opened[1].prefix}names/") == [either.opened[1].name("vision")]


def test_the_newest_entry_is_first_and_takes_the_place_of_its_own_kind(either: Either) -> None:
    store, keys = either.opened
    for each in (entry(1), entry(2), entry(1)):
        update_pointer(store, keys, "vision", lambda entries, each=each: with_newest(entries, [each]))
    assert read_pointer(store, keys, "vision") == (entry(1), entry(2))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"no json", ManifestCorruptError),
        (b'{"formatVersion":2,"newest":[]}', UnknownFormatError),
        (b'{"formatVersion":1,"newest":{}}', ManifestCorruptError),
        (b'{"formatVersion":1,"newest":[{"digest":"x"}]}', ManifestCorruptError),
        (b'{"formatVersion":1,"newest":[' + b" " * 300_000 + b"]}", ManifestCorruptError),
    ],
)
def test_a_pointer_that_is_none_is_neither_believed_nor_written_over(
    either: Either, data: bytes, error: type[Exception]
) -> None:
    store, keys = either.opened
    put(store, keys.name("vision"), data)
    with pytest.raises(error):
        read_pointer(store, keys, "vision")
    with pytest.raises(error):
        update_pointer(store, keys, "vision", lambda entries: with_newest(entries, [entry(1)]))
    assert store.get(keys.name("vision"), limit=400_000) == data


def bring(either: Either, tmp_path: Path, digest: str) -> Path:
    return revisions.prepare(tmp_path / "cache", digest, either.location, seconds=60).root


def test_the_layout_is_that_of_a_job_and_the_name_points_to_it(either: Either, tmp_path: Path) -> None:
    store, keys = either.opened
    digest = published(tmp_path / "work", store, keys)
    manifest = Manifest.parse(store.get(keys.manifest(digest), limit=10**6) or b"", digest=digest)
    blobs = [keys.blob(piece.sha256) for file in manifest.targets[0].files for piece in file.pieces]
    assert manifest.targets[0].request_key is not None
    index = keys.request(manifest.targets[0].request_key)
    expected = sorted({*blobs, keys.manifest(digest), index, keys.name("vision")})
    assert either.keys_below(keys.prefix) == expected
    (there,) = read_pointer(store, keys, "vision")
    assert there == Entry(image="local", hardware="cpu", revision=manifest.revision, digest=digest)
    assert (bring(either, tmp_path, digest) / "revision/main/batch/cpu/model.so").read_bytes() == MODEL


def test_a_store_can_be_copied_from_one_kind_to_the_other(either: Either, tmp_path: Path) -> None:
    store, keys = either.opened
    digest = published(tmp_path / "work", store, keys)
    copy = tmp_path / "copy"
    for key in either.keys_below(keys.prefix):
        path = copy / key.removeprefix(keys.below)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(key, limit=10**8) or b"")
    location = StoreLocation.parse(str(copy), tenant=keys.tenant)
    assert read_pointer(*location.open(), "vision")[0].digest == digest
    root = revisions.prepare(tmp_path / "cache", digest, location, seconds=60).root
    assert (root / "revision/main/batch/cpu/model.so").read_bytes() == MODEL


def model_piece(either: Either, digest: str) -> tuple[str, bytes]:
    store, keys = either.opened
    manifest = Manifest.parse(store.get(keys.manifest(digest), limit=10**6) or b"")
    file = next(file for file in manifest.targets[0].files if file.path == "model.so")
    key = keys.blob(file.pieces[0].sha256)
    return key, store.get(key, limit=10**8) or b""


def refused(either: Either, tmp_path: Path, digest: str) -> str:
    with pytest.raises(revisions.NotBroughtError) as caught:
        bring(either, tmp_path, digest)
    assert [path.name for path in (tmp_path / "cache").iterdir() if not path.name.endswith(".work")] == []
    return str(caught.value).partition(":")[0]


@WITHOUT_PLAIN_S3
@pytest.mark.parametrize("alteration", ALTERATIONS.values(), ids=ALTERATIONS.keys())
def test_an_altered_piece_is_refused_and_publishing_again_heals(
    either: Either, tmp_path: Path, alteration: Callable[[bytes], bytes]
) -> None:
    digest = published(tmp_path / "work", *either.opened)
    key, data = model_piece(either, digest)
    either.write(key, alteration(data))
    assert refused(either, tmp_path, digest) == "PieceCorrupt"
    assert published(tmp_path / "work", *either.opened) == digest
    assert (bring(either, tmp_path, digest) / "revision/main/batch/cpu/model.so").read_bytes() == MODEL


def test_what_is_missing_is_said(either: Either, tmp_path: Path) -> None:
    digest = published(tmp_path / "work", *either.opened)
    either.delete(model_piece(either, digest)[0])
    assert refused(either, tmp_path, digest) == "PieceMissing"
    assert refused(either, tmp_path, "sha256:" + "0" * 64) == "ManifestMissing"


@WITHOUT_PLAIN_S3
@pytest.mark.parametrize(
    ("reason", "change"), [FORGERIES[name] for name in FORGERIES if name != "more than the disk has"],
    ids=[name for name in FORGERIES if name != "more than the disk has"],
)  # fmt: skip
def test_a_forged_manifest_with_its_right_digest(
    either: Either, tmp_path: Path, reason: str, change: Callable[[dict[str, Any]], None]
) -> None:
    from preheat_runtime.manifest import canonical_json, digest_of

    store, keys = either.opened
    digest = published(tmp_path / "work", store, keys)
    value = json.loads(store.get(keys.manifest(digest), limit=10**6) or b"")
    change(value)
    data = canonical_json(value)
    put(store, keys.manifest(digest_of(data)), data)
    assert refused(either, tmp_path, digest_of(data)) == reason


def test_a_replaced_manifest(either: Either, tmp_path: Path) -> None:
    store, keys = either.opened
    digest = published(tmp_path / "work", store, keys)
    data = store.get(keys.manifest(digest), limit=10**6) or b""
    either.write(keys.manifest(digest), data.replace(b"vision-7f3a19c2", b"vision-00000000"))
    assert refused(either, tmp_path, digest) == "ManifestCorrupt"


def test_the_command_line_on_either(either: Either, tmp_path: Path) -> None:
    digest = published(tmp_path / "work", *either.opened)

    def preheat(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = f"{ROOT / 'operator'}:{ROOT / 'compiler_job'}"
        where = ["--store", str(either.location), "--tenant", either.location.tenant]
        return subprocess.run(
            [sys.executable, "-m", "preheat_operator.cli", words[0], *where, *words[1:]], text=True, timeout=120,
            env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path), **env}, capture_output=True,
        )  # fmt: skip

    assert json.loads(preheat("inspect", "vision", "--output", "json").stdout)["digest"] == digest
    show = "import os, pathlib; print(pathlib.Path(os.environ['PREHEAT_DIR'], 'revision/main/batch/cpu/model.so'))"
    ran = preheat("run", "vision", "--", sys.executable, "-c", show)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert Path(ran.stdout.strip()).read_bytes() == MODEL
    if either.client is not None:
        denied = preheat(
            "run", "--when-missing", "Fail", "vision", "--", "true", AWS_SECRET_ACCESS_KEY="not-the-secret"
        )
        assert denied.returncode == 69
        assert "StoreDenied" in denied.stderr
        assert "not-the-secret" not in denied.stderr


def test_told_to_stop_while_fetching_the_command_is_not_started(
    s3: S3Server, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in AWS:
        monkeypatch.setenv(name, (s3.credentials["publish"] / name).read_text().strip())
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    location = StoreLocation.parse(f"s3://{BUCKET}", tenant=tenant)
    published(tmp_path / "work", *location.open(writing=True))
    with proxy(s3.port, Behaviour(bytes_per_second=3000)) as endpoint:
        env = {**os.environ, "AWS_ENDPOINT_URL_S3": endpoint, "XDG_CACHE_HOME": str(tmp_path)}
        env["PYTHONPATH"] = f"{ROOT / 'operator'}:{ROOT / 'compiler_job'}"
        words = ["run", "--store", f"s3://{BUCKET}", "--tenant", tenant, "vision", "--", "echo", "started"]
        process = subprocess.Popen(
            [sys.executable, "-m", "preheat_operator.cli", *words],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        worker = wait_for_worker(process)  # type: ignore[arg-type]
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, b""), err
    assert not Path(f"/proc/{worker}").exists()
    assert [path.name for path in (tmp_path / "preheat/revisions").iterdir() if path.name.startswith(".")] == []
