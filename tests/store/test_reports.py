"""The report for people: made by publish, stored with the artifact, never brought into a pod, and never in the way."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import pytest

from preheat_operator.report import render
from preheat_operator.store import pieces
from preheat_runtime.manifest import File, Manifest
from store.kit import BUCKET, Pod, artifact, revision_files, target, write_out
from unit.report import reports

if TYPE_CHECKING:
    from store.kit import Container

MODEL = b"code"
FORGED = b"<script>alert(1)</script>"


def published_files(admin: Any, pod: Pod, published: Container) -> dict[str, bytes]:
    """What lies in the store, by its path in the artifact."""

    def read(file: File) -> bytes:
        parts: list[bytes] = []
        for piece in file.pieces:
            stored = admin.get_object(Bucket=BUCKET, Key=pod.keys.blob(piece.sha256))["Body"].read()
            pieces.decode(piece, io.BytesIO(stored), parts.append)
        return b"".join(parts)

    key = pod.keys.manifest(published.message["digest"])
    manifest = Manifest.parse(admin.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    return {file.path: read(file) for file in manifest.targets[0].files}


def test_the_report_is_stored_beside_the_artifact_and_no_pod_gets_it(pod: Pod, server_pod: Pod, admin: Any) -> None:
    content = reports.data(reports.kept())
    write_out(pod, {**artifact(MODEL), "main/batch/report.json": content})
    published = pod.publish()
    assert published.code == 0, published.stderr
    stored = published_files(admin, pod, published)
    assert stored == {"model.so": MODEL, "target.json": b"{}\n", "report.json": content, **render(content)}
    table = list(csv.reader(io.StringIO(stored["report.csv"].decode())))
    assert ["main", "batch", "cpu", "figures", "", "", "speedup", "1.4021", ""] in table

    assert server_pod.fetch(published.message["digest"]).log["outcome"] == "Fetched"
    there = {path.removeprefix("main/batch/cpu/") for path in revision_files(server_pod)}
    assert there == {"manifest.json", "model.so", "target.json"}
    # What a restarted pod checks is what it was brought.
    again = server_pod.fetch(published.message["digest"], PREHEAT_STORE_ENDPOINT="http://127.0.0.1:9")
    assert "already here" in again.log["message"]


@pytest.mark.parametrize("content", [b"{", b'{"formatVersion": 99}', b" " * (5 * 2**20), b"[" * 10_000])
def test_a_report_that_cannot_be_shown_does_not_cost_the_target(pod: Pod, admin: Any, content: bytes) -> None:
    write_out(pod, {**artifact(MODEL), "main/batch/report.json": content})
    published = pod.publish()
    assert published.code == 0, published.stderr
    assert set(published_files(admin, pod, published)) == {"model.so", "target.json", "report.json"}
    assert '"event": "no report", "target": "main/batch/cpu"' in published.stdout


def test_a_page_that_the_users_image_made_is_not_stored(pod: Pod, admin: Any) -> None:
    names = ["model.so", "report.csv", "report.html", "report.json", "target.json"]
    write_out(
        pod,
        {**artifact(MODEL), "main/batch/report.html": FORGED, "main/batch/report.csv": FORGED},
        [target(files=names)],
    )
    published = pod.publish()
    assert published.code == 0, published.stderr
    assert set(published_files(admin, pod, published)) == {"model.so", "report.json", "target.json"}


def test_a_folder_of_that_name_is_not_in_the_way(pod: Pod) -> None:
    content = reports.data(reports.kept())
    names = ["report.html/x", "report.json"]
    files = {"main/batch/report.html/x": FORGED, "main/batch/report.json": content}
    write_out(pod, files, [target(files=names)])
    assert pod.publish().code == 0
