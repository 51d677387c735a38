"""What a compile pod is given to start with, and how a lost result is found again."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from typing import Any

import pytest

from store.kit import BUCKET, REFUSALS, REQUEST, Container, Pod, artifact, write_out

FORMER = "11111111-0000-4000-8000-000000000001"
NOW = "22222222-0000-4000-8000-000000000002"


def toolkit(pod: Pod, request: dict[str, Any] = REQUEST, **env: str) -> Container:
    return pod.run("toolkit", identity="publish", PREHEAT_REQUEST=json.dumps(request), **env)


def test_the_user_s_python_can_use_what_is_laid_out(pod: Pod) -> None:
    assert toolkit(pod).code == 0
    assert json.loads((pod.directory / "request.json").read_text()) == REQUEST
    root = pod.directory / "toolkit"
    code = "import preheat_compiler, preheat_runtime.manifest as m; print(m.__file__)"
    found = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == str(root / "preheat_runtime/manifest.py")
    assert (root / "compile.py").is_file()
    assert stat.S_IMODE((root / "compile.sh").stat().st_mode) == 0o755
    # Whoever the image runs as must be able to leave a result.
    assert stat.S_IMODE((pod.directory / "out").stat().st_mode) == 0o777


def test_it_can_run_again_in_the_same_pod(pod: Pod) -> None:
    assert [toolkit(pod).code, toolkit(pod).code] == [0, 0]


def test_a_request_that_cannot_be_read(pod: Pod) -> None:
    ended = toolkit(pod, {**REQUEST, "formatVersion": 3})
    assert (ended.code, ended.message["reason"]) == (64, "Internal")
    assert "formatVersion 3" in ended.message["message"]
    assert not (pod.directory / "request.json").exists()


@pytest.mark.parametrize(("identity", "env", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_what_could_not_be_published_is_not_compiled(pod: Pod, identity: str, env: dict[str, str], reason: str) -> None:
    ended = pod.run("toolkit", identity=identity, PREHEAT_REQUEST=json.dumps(REQUEST), **env)
    assert (ended.code, ended.message["reason"]) == (70, reason), ended.message
    assert "secret" not in (ended.stdout + ended.stderr).replace("Secret", "")


def test_a_store_out_of_reach_may_be_back_in_time(pod: Pod) -> None:
    ended = toolkit(pod, PREHEAT_STORE_ENDPOINT="http://127.0.0.1:9")
    assert ended.code == 0
    assert "StoreUnreachable" in ended.stdout


def test_the_tenant_is_marked_once(admin: Any, pod: Pod) -> None:
    key = pod.keys.tenant_marker
    assert toolkit(pod).code == 0
    before = admin.head_object(Bucket=BUCKET, Key=key)["LastModified"]
    assert admin.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b'{"formatVersion":1}'
    assert toolkit(pod).code == 0
    assert admin.head_object(Bucket=BUCKET, Key=key)["LastModified"] == before


def lose_a_result(pod: Pod) -> str:
    """Publish as the former Job did, and leave nothing in the pod."""
    write_out(pod, artifact(b"compiled" * 1000))
    digest = pod.publish(PREHEAT_JOB_UID=FORMER).message["digest"]
    for path in sorted((pod.directory / "out").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    return str(digest)


def test_a_lost_result_is_found_and_reported(pod: Pod) -> None:
    digest = lose_a_result(pod)
    assert toolkit(pod, PREHEAT_RECOVER_JOB=FORMER).code == 0
    assert json.loads((pod.directory / "out/recovered.json").read_text()) == {"digest": digest}
    ended = pod.publish(PREHEAT_JOB_UID=NOW, PREHEAT_RECOVER_JOB=FORMER)
    assert ended.code == 0, ended.message
    assert ended.message["digest"] == digest
    assert ended.message["targets"] == ["main|batch|Kept|Faster|1.7500|0.1200|1900000"]


def test_a_recovered_result_is_never_taken_from_the_pod_s_own_folder(pod: Pod) -> None:
    digest = lose_a_result(pod)
    (pod.directory / "out/recovered.json").write_text(json.dumps({"digest": digest}))
    ended = pod.publish(PREHEAT_JOB_UID=NOW, PREHEAT_RECOVER_JOB="33333333-0000-4000-8000-000000000003")
    assert ended.code == 66


@pytest.mark.parametrize(
    "harm", ["unknown-job", "other-revision", "other-target", "index", "manifest", "piece", "store"]
)
def test_what_cannot_be_used_is_compiled_anew(admin: Any, pod: Pod, harm: str) -> None:
    digest = lose_a_result(pod)
    request, env = REQUEST, {"PREHEAT_RECOVER_JOB": FORMER}
    if harm == "unknown-job":
        env["PREHEAT_RECOVER_JOB"] = NOW
    elif harm == "other-revision":
        request = {**REQUEST, "revision": "vision-other"}
    elif harm == "other-target":
        request = {**REQUEST, "targets": [{"module": "main", "bucket": "other"}]}
    elif harm == "index":
        admin.put_object(Bucket=BUCKET, Key=pod.keys.job(FORMER), Body=b"{}")
    elif harm == "manifest":
        admin.put_object(Bucket=BUCKET, Key=pod.keys.manifest(digest), Body=b"{}")
    elif harm == "piece":
        for item in admin.list_objects_v2(Bucket=BUCKET, Prefix=f"{pod.keys.prefix}blobs/")["Contents"]:
            admin.delete_object(Bucket=BUCKET, Key=item["Key"])
    else:
        env["PREHEAT_STORE_ENDPOINT"] = "http://127.0.0.1:9"
    ended = toolkit(pod, request, **env)
    assert ended.code == 0
    assert ended.log["recovered"] is None
    assert not (pod.directory / "out/recovered.json").exists()
