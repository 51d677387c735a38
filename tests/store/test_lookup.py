"""Looking which weights there are: in a real S3 server, and at a server that answers as the Hub's API is documented to.

huggingface.co itself is not asked: `HF_ENDPOINT`, by which its own clients are told of a mirror, names a server here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from preheat_operator.plan.termination import read_complaint, read_lookup
from store.kit import BUCKET, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.kit import S3Server

COMMIT = "c" * 40


class Looker:
    """The lookup container as a process, with the variables of a serving container."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "termination-log"

    def look(self, what: dict[str, Any], **env: str) -> tuple[int, str]:
        """Its exit code and its last words."""
        self.log.unlink(missing_ok=True)
        environment = {
            "PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'compiler_job'}", "HOME": "/nonexistent",
            "PREHEAT_LOOKUP": json.dumps(what), "PREHEAT_TERMINATION_LOG": str(self.log), **env,
        }  # fmt: skip
        command = [sys.executable, "-m", "preheat_operator.lookup"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        for secret in ("publish-secret", "hf_secret"):
            assert secret not in done.stdout + done.stderr + self.log.read_text()
        return done.returncode, self.log.read_text()

    def sees(self, what: dict[str, Any], **env: str) -> str:
        code, words = self.look(what, **env)
        seen = read_lookup(words)
        assert (code, seen is not None) == (0, True), words
        return str(seen)

    def fails(self, what: dict[str, Any], **env: str) -> tuple[str, str]:
        code, words = self.look(what, **env)
        complaint = read_complaint(words)
        assert code == 70
        assert complaint is not None
        return complaint.reason, complaint.message


@pytest.fixture
def looker(tmp_path: Path) -> Looker:
    return Looker(tmp_path)


KEYS = {"AWS_ACCESS_KEY_ID": "fetch-key", "AWS_SECRET_ACCESS_KEY": "fetch-secret"}


def test_what_lies_below_a_prefix_decides(looker: Looker, admin: Any, s3: S3Server, tmp_path: Path) -> None:
    prefix = f"{tmp_path.name}/weights/"

    def put(name: str, data: bytes) -> None:
        admin.put_object(Bucket=BUCKET, Key=name, Body=data)

    what = {"s3": {"endpoint": s3.endpoint, "bucket": BUCKET, "prefix": prefix}}
    put(prefix + "a.safetensors", b"one")
    put(prefix + "b.safetensors", b"two")
    first = looker.sees(what, **KEYS)
    assert first.startswith("s3:")
    put(f"{tmp_path.name}/other", b"beside it")
    put(prefix + "a.safetensors", b"one")
    assert looker.sees(what, **KEYS) == first, "the same again, and what is not below the prefix"
    seen = {first}
    put(prefix + "a.safetensors", b"six")
    seen.add(looker.sees(what, **KEYS))
    put(prefix + "c.safetensors", b"new")
    seen.add(looker.sees(what, **KEYS))
    admin.delete_object(Bucket=BUCKET, Key=prefix + "b.safetensors")
    seen.add(looker.sees(what, **KEYS))
    assert len(seen) == 4, "other content, one more, one less"


def test_more_than_a_page(looker: Looker, admin: Any, s3: S3Server, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        keys = [f"{tmp_path.name}/{number:05d}" for number in range(1005)]
        list(pool.map(lambda key: admin.put_object(Bucket=BUCKET, Key=key, Body=b"x"), keys))
    what = {"s3": {"endpoint": s3.endpoint, "bucket": BUCKET, "prefix": f"{tmp_path.name}/"}}
    before = looker.sees(what, **KEYS)
    admin.put_object(Bucket=BUCKET, Key=f"{tmp_path.name}/01004", Body=b"y")
    assert looker.sees(what, **KEYS) != before


@pytest.mark.parametrize(
    ("change", "env", "reason", "words"),
    [
        ({"prefix": "nothing-here/"}, KEYS, "Nothing", "check bucket and prefix"),
        ({"bucket": "no-such-bucket"}, KEYS, "Denied", "cannot be listed"),
        ({}, {**KEYS, "AWS_SECRET_ACCESS_KEY": "wrong"}, "Denied", "check bucket, keys and rights"),
        ({}, {}, "NoCredentials", "AWS_ACCESS_KEY_ID"),
        ({"endpoint": "http://127.0.0.1:9"}, KEYS, "Unreachable", "cannot be reached"),
    ],
)
def test_why_nothing_is_seen_in_s3(
    looker: Looker, s3: S3Server, change: dict[str, str], env: dict[str, str], reason: str, words: str
) -> None:
    said = looker.fails({"s3": {"endpoint": s3.endpoint, "bucket": BUCKET, "prefix": "x/", **change}}, **env)
    assert said[0] == reason
    assert words in said[1]


# The Hub.


@contextmanager
def hub(answers: dict[str, tuple[int, dict[str, str], Any]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server with these answers by path; its URL, and what it was asked: path and Authorization."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization", "")))
            status, headers, body = answers.get(self.path, (404, {}, {"error": "Repository not found"}))
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


PATH = "/api/models/org/vision/revision/main"
WHAT = {"huggingFace": {"repository": "org/vision", "revision": "main"}}
RIGHT = (200, {}, {"id": "org/vision", "sha": COMMIT, "siblings": []})


def test_a_branch_is_the_commit_it_stands_for(looker: Looker) -> None:
    with hub({PATH: RIGHT}) as (url, asked):
        assert looker.sees(WHAT, HF_ENDPOINT=url) == f"hf:{COMMIT}"
        assert looker.sees(WHAT, HF_ENDPOINT=url + "/", HF_TOKEN="hf_secret") == f"hf:{COMMIT}"
    assert asked == [(PATH, ""), (PATH, "Bearer hf_secret")]


def test_a_branch_with_a_slash_is_one_word(looker: Looker) -> None:
    with hub({"/api/models/org/vision/revision/refs%2Fpr%2F1": RIGHT}) as (url, _):
        what = {"huggingFace": {"repository": "org/vision", "revision": "refs/pr/1"}}
        assert looker.sees(what, HF_ENDPOINT=url) == f"hf:{COMMIT}"


def test_a_renamed_repository_is_followed_and_the_token_goes_to_no_other_host(looker: Looker) -> None:
    with hub({"/moved": RIGHT}) as (elsewhere, asked_elsewhere):
        answers = {
            PATH: (307, {"Location": "/api/models/new/vision"}, {}),
            "/api/models/new/vision": (307, {"Location": f"{elsewhere}/moved"}, {}),
        }
        with hub(answers) as (url, asked):
            assert looker.sees(WHAT, HF_ENDPOINT=url, HF_TOKEN="hf_secret") == f"hf:{COMMIT}"
    assert [token for _, token in asked] == ["Bearer hf_secret"] * 2
    assert asked_elsewhere == [("/moved", "")]


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        ((404, {}, {}), "Denied", "not there"),
        ((401, {}, {}), "Denied", "set HF_TOKEN"),
        ((403, {}, {}), "Denied", "gated"),
        ((503, {}, {}), "Unreachable", "503"),
        ((200, {}, {"id": "org/vision"}), "Unreachable", "names no commit"),
        ((200, {}, {"sha": "../x"}), "Unreachable", "names no commit"),
        ((200, {}, []), "Unreachable", "names no commit"),
        ((200, {}, b"<html>"), "Unreachable", "cannot be asked"),
    ],
)
def test_why_nothing_is_seen_on_the_hub(looker: Looker, answer: Any, reason: str, words: str) -> None:
    with hub({PATH: answer}) as (url, _):
        said = looker.fails(WHAT, HF_ENDPOINT=url, HF_TOKEN="hf_secret")
    assert said[0] == reason
    assert words in said[1]


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "file:///etc", "nonsense"])
def test_a_hub_that_cannot_be_asked(looker: Looker, endpoint: str) -> None:
    assert looker.fails(WHAT, HF_ENDPOINT=endpoint)[0] == "Unreachable"
