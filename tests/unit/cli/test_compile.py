"""`preheat compile` up to the compile: the command line, the request, the Python, the store; tests/torch compiles."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomllib
import yaml

from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.cli import exits
from preheat_operator.cli.document import read_document
from preheat_operator.containers import sources
from preheat_operator.plan import revision as revisions
from preheat_operator.plan.jobs import JobKey, compile_job
from preheat_operator.plan.termination import TargetName
from preheat_operator.plan.workload import Serving
from unit.cli.conftest import ROOT, Place, document
from unit.plan.simulation import INSTALLATION, deployment, spec

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A real Python that has no torch."""
    venv.create(tmp_path / "bare")
    return str(tmp_path / "bare/bin/python")


def request_of(
    place: Place, *words: str, code: int = exits.TORCH, bare: str, text: str | None = None
) -> dict[str, Any]:
    """What the compile driver is asked for; the compile itself ends at once, for want of torch."""
    (place.folder / "cm.yaml").write_text(text or yaml.safe_dump(document(hardware=("cpu", "big"))))
    ended = place.preheat("compile", "-f", "cm.yaml", "--store", "store", "--work", "w", "--python", bare, *words)
    assert ended.code == code, ended.err
    return json.loads((place.folder / "w/request.json").read_text())  # type: ignore[no-any-return]


def test_the_request_is_the_controllers(place: Place, bare_python: str) -> None:
    """Of the same spec and image a compile Job is given the same, but for the uid that only a cluster has."""
    asked = request_of(place, "--hardware", "big", "--image", "registry/vision:1", bare=bare_python)
    body = document(hardware=("cpu", "big"))
    model = CompiledModel.model_validate({**body, "metadata": {"name": "vision", "namespace": "default", "uid": "u"}})
    pod = deployment("registry/vision:1")["spec"]["template"]
    serving = Serving(template=pod, container=pod["spec"]["containers"][0])
    want = revisions.wanted(model="vision", spec=model.spec, image=serving.image)
    job = compile_job(
        model=model, key=JobKey(uid="u", want=want, hardware="big", attempt=0), hardware=model.spec.hardware[1],
        serving=serving, installation=INSTALLATION, targets=[TargetName(module="main", bucket="one")], recover_job="",
    )  # fmt: skip
    containers = job["spec"]["template"]["spec"]["initContainers"]
    env = {entry["name"]: entry.get("value") for entry in containers[0]["env"]}
    assert asked == json.loads(env["PREHEAT_REQUEST"]) | {"uid": "local"}


def test_options_win_over_the_document(place: Place, bare_python: str) -> None:
    asked = request_of(place, "--hardware", "cpu", "--timeout", "7", "--namespace", "prod", bare=bare_python)
    assert (asked["timeoutSeconds"], asked["namespace"], asked["hardware"]) == (7, "prod", "cpu")
    assert (place.folder / "store/v1/local.prod/tenant.json").is_file()


def test_a_python_without_torch_ends_it_with_the_remedy(place: Place, bare_python: str) -> None:
    (place.folder / "cm.yaml").write_text(yaml.safe_dump(document()))
    ended = place.preheat("compile", "-f", "cm.yaml", "--store", "store", "--python", bare_python)
    assert (ended.code, ended.out) == (exits.TORCH, "")
    assert "TorchMissing: " in ended.err
    assert "--python" in ended.err.splitlines()[-1]
    assert [path.name for path in (place.folder / "store/v1/local.default").iterdir()] == ["tenant.json"]


def test_the_yaml_may_come_through_a_pipe(place: Place, bare_python: str) -> None:
    words = ("compile", "-f", "-", "--store", "store", "--python", bare_python)
    assert place.preheat(*words, stdin=yaml.safe_dump(document())).code == exits.TORCH
    ended = place.preheat(*words, stdin="kind: Deployment")
    assert ended.code == exits.USAGE
    assert "standard input: must hold one object of kind CompiledModel" in ended.err


MISTAKES: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "a wrong field": (
        document(suspend="On"),
        (),
        "cm.yaml: spec.suspend: must be a string, one of Disabled, Enabled, not 'On'",
    ),
    "no file": (document(), ("-f", "none.yaml"), "none.yaml: No such file"),
    "which hardware": (
        document(hardware=("cpu", "big")),
        (),
        "--hardware: name the profile that this machine is: cpu, big",
    ),
    "no such hardware": (document(), ("--hardware", "gpu"), "--hardware: 'gpu' is no profile of vision: cpu"),
    "no such python": (document(), ("--python", "/none/python"), "--python: there is no program /none/python"),
    "seconds": (document(), ("--timeout", "1h"), "'1h' must be whole seconds"),
    "store": (document(), ("--store", "gs://x"), "gs:// is no store"),
    "abbreviated": (document(), ("--time", "5"), "unrecognized arguments: --time"),
}


@pytest.mark.parametrize(("body", "words", "says"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_names_the_option_or_the_field(
    place: Place, body: dict[str, Any], words: tuple[str, ...], says: str
) -> None:
    (place.folder / "cm.yaml").write_text(yaml.safe_dump(body))
    ended = place.preheat("compile", "-f", "cm.yaml", "--store", "store", *words)
    assert (ended.code, ended.out) == (exits.USAGE, "")
    assert says in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({}, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ({"AWS_PROFILE": "work"}, "profiles are not read"),
        ({"AWS_ACCESS_KEY_ID": "a"}, "AWS_SECRET_ACCESS_KEY"),
        (
            {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": "s3.example.org"},
            "AWS_ENDPOINT_URL: ",
        ),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_CA_BUNDLE": "/none"}, "AWS_CA_BUNDLE: "),
    ],
)
def test_a_store_that_would_refuse_is_found_out_before_compiling(place: Place, env: dict[str, str], says: str) -> None:
    (place.folder / "cm.yaml").write_text(yaml.safe_dump(document()))
    ended = place.preheat("compile", "-f", "cm.yaml", "--store", "s3://models/here", "--work", "w", **env)
    assert ended.code == exits.REFUSED
    assert says in ended.err
    assert not (place.folder / "w").exists()


def test_a_store_out_of_reach_is_a_code_of_its_own(place: Place) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b-secret", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}
    ended = place.preheat("inspect", "--store", "s3://models", "vision", AWS_PROFILE="none", **keys)
    assert ended.code == exits.UNREACHABLE
    assert "b-secret" not in ended.err


def test_told_to_stop_it_ends_what_it_started(place: Place, tmp_path: Path) -> None:
    (place.folder / "cm.yaml").write_text(yaml.safe_dump(document()))
    python = tmp_path / "python-that-waits"
    python.write_text("#!/bin/sh\necho $$ > started\nexec sleep 600\n")
    python.chmod(0o755)
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'compiler_job'}"}
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "preheat_operator.cli", "compile", "-f", "cm.yaml", "--store", "store", "--python", python],
        cwd=place.folder, env={**env, "TMPDIR": str(tmp_path / "tmp")}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    started = place.folder / "started"
    for _ in range(600):
        if started.exists() and started.read_text():
            break
        time.sleep(0.05)
    driver = int(started.read_text())
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == exits.SIGNALLED + signal.SIGTERM, said
    assert not Path(f"/proc/{driver}").exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_line_for_each_target_and_a_code_for_the_failed_one(place: Place, finished: str) -> None:
    words = ("compile", "-f", "cm.yaml", "--store", "store", "--python", finished)
    ended = place.preheat(*words)
    assert ended.code == exits.DIFFERENT
    one, two, last = ended.out.splitlines()
    assert one.split()[:7] == ["main/one/cpu", "Kept", "Faster", "1.75", "x", "eager", "1.9"]
    assert two.split()[:5] == ["main/two/cpu", "Failed", "InputsRefused", "-", "-"]
    assert two.endswith("the model refused them")
    said = place.preheat(*words, "--output", "json").json
    assert last.split()[2] == said["digest"]
    assert [(t["bucket"], t["verdict"], t["figures"].get("speedup")) for t in said["targets"]] == [
        ("one", "Kept", "1.7500"), ("two", "Failed", None),
    ]  # fmt: skip
    assert place.preheat("inspect", "--store", "store", "vision", "--output", "json").json["digest"] == said["digest"]


POINTER = "store/v1/local.default/names/vision.json"


@pytest.mark.parametrize(
    ("pointer", "says"),
    [
        (b"", "ManifestCorrupt: v1/local.default/names/vision.json: "),
        (b'{"formatVersion":1}', "Remove v1/local.default/names/vision.json from "),
        (b'{"formatVersion":2,"newest":[]}', "UnknownFormat: "),
    ],
)
def test_a_pointer_that_cannot_be_added_to_is_found_out_before_compiling(
    place: Place, finished: str, pointer: bytes, says: str
) -> None:
    path = place.folder / POINTER
    path.parent.mkdir(parents=True)
    path.write_bytes(pointer)
    words = ("compile", "-f", "cm.yaml", "--store", "store", "--python", finished, "--work", "w")
    ended = place.preheat(*words)
    assert (ended.code, ended.out) == (exits.MISSING, "")
    assert says in ended.err
    assert not (place.folder / "w").exists()
    assert path.read_bytes() == pointer, "another's entries are not written over"
    path.unlink()
    assert place.preheat(*words).code == exits.DIFFERENT


def test_of_a_pointer_that_is_damaged_meanwhile_the_digest_is_told(place: Place, finished: str) -> None:
    python = Path(finished)
    path = place.folder / POINTER
    copied = python.read_text()
    python.write_text(copied.replace("exec cp", f"mkdir -p {path.parent}; : > {path}\nexec cp"))
    ended = place.preheat("compile", "-f", "cm.yaml", "--store", "store", "--python", finished)
    assert (ended.code, ended.out) == (exits.MISSING, "")
    (digest,) = re.findall(r"vision-\w+ is (sha256:\w+), but vision does not point to it", ended.err)
    assert place.preheat("inspect", "--store", "store", digest).code == exits.OK
    work = ended.err.split("--work ")[1].split()[0]
    path.unlink()
    python.write_text(copied)
    words = ("compile", "-f", "cm.yaml", "--store", "store", "--python", finished, "--work", work)
    assert place.preheat(*words, "--output", "json").json["digest"] == digest


def test_an_image_that_a_manifest_has_no_room_for_is_refused_before_compiling(place: Place, finished: str) -> None:
    words = ("compile", "-f", "cm.yaml", "--store", "store", "--python", finished, "--work", "w", "--image")
    ended = place.preheat(*words, "i" * 1025)
    assert (ended.code, ended.out) == (exits.USAGE, "")
    assert "--image" in ended.err
    assert "image: must be a text of 1 to 1024 characters" in ended.err
    assert not (place.folder / "w").exists()
    assert place.preheat(*words, "i" * 1024).code == exits.DIFFERENT


def test_a_disk_without_room_is_told_as_one(
    place: Place, finished: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("compile", "-f", "cm.yaml", "--store", "store", "--python", finished)
    monkeypatch.setattr(sources, "write_toolkit", refuse(errno.ENOSPC))
    (tmp_path / "tmp").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
        ended = place.preheat(*words)
    assert (ended.code, ended.out) == (exits.REFUSED, "")
    assert "no temporary folder can be made: No space left on device: TMPDIR or --work names one" in ended.err
    assert list((tmp_path / "tmp").iterdir()) == []
    ended = place.preheat(*words, "--work", "w")
    assert ended.code == exits.REFUSED
    assert f"--work: {place.folder}/w cannot be laid out: No space left on device" in ended.err
    monkeypatch.setattr(sources, "write_toolkit", refuse(errno.EACCES))
    assert place.preheat(*words, "--work", "w").code == exits.USAGE
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkdtemp", refuse(errno.ENOSPC))
        ended = place.preheat(*words)
    assert ended.code == exits.REFUSED
    assert "no temporary folder can be made: No space left on device" in ended.err


def refuse(number: int) -> Callable[..., None]:
    def act(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return act


def test_a_work_folder_that_pythonpath_cannot_name_is_refused(
    place: Place, finished: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("compile", "-f", "cm.yaml", "--store", "store", "--python", finished)
    ended = place.preheat(*words, "--work", "a:b")
    assert (ended.code, ended.out) == (exits.USAGE, "")
    assert f"--work: PYTHONPATH cannot name {place.folder}/a:b" in ended.err
    (tmp_path / "t:p").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path / "t:p"))
        ended = place.preheat(*words)
    assert (ended.code, ended.out) == (exits.USAGE, "")
    assert f"TMPDIR: PYTHONPATH cannot name {tmp_path}/t:p" in ended.err


def test_what_could_not_be_published_is_kept_and_published_by_another_run(place: Place, finished: str) -> None:
    blobs = place.folder / "store/v1/local.default/blobs"
    blobs.parent.mkdir(parents=True)
    blobs.write_text("in the way")
    words = ("compile", "-f", "cm.yaml", "--store", "store", "--python", finished)
    ended = place.preheat(*words)
    assert (ended.code, ended.out) == (exits.REFUSED, "")
    work = ended.err.split("--work ")[1].split()[0]
    blobs.unlink()
    again = place.preheat(*words, "--work", work)
    assert again.code == exits.DIFFERENT
    assert "main/one/cpu" in again.out
    assert Path(work, "out/result.json").is_file(), "a folder that was named is the user's"


def modes(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_mode & 0o777 for name in (".", "out")}


def test_nobody_else_can_write_to_a_work_folder(place: Place, finished: str) -> None:
    umask = os.umask(0)
    try:
        words = ("compile", "-f", "cm.yaml", "--store", "store", "--python", finished, "--work", "w")
        assert [place.preheat(*words).code for _ in range(2)] == [exits.DIFFERENT] * 2
    finally:
        os.umask(umask)
    assert modes(place.folder / "w") == {".": 0o700, "out": 0o700}


@pytest.mark.parametrize("shared", ["w", "w/out"])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_what_others_could_have_put_into_a_work_folder_is_not_published(
    place: Place, finished: str, shared: str, mode: int
) -> None:
    (place.folder / "w/out").mkdir(parents=True, mode=0o700)
    (place.folder / "w").chmod(0o700)
    (place.folder / shared).chmod(mode)
    ended = place.preheat("compile", "-f", "cm.yaml", "--store", "store", "--python", finished, "--work", "w")
    assert (ended.code, ended.out) == (exits.USAGE, "")
    assert f"--work: others can write to {place.folder / shared}," in ended.err
    assert not (place.folder / "w/request.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_work_folder_of_somebody_else_is_not_used(place: Place, finished: str) -> None:
    (place.folder / "w").mkdir(mode=0o755)
    os.chown(place.folder / "w", 4242, 4242)
    ended = place.preheat("compile", "-f", "cm.yaml", "--store", "store", "--python", finished, "--work", "w")
    assert (ended.code, ended.out) == (exits.USAGE, "")
    assert "--work: others can write to" in ended.err


def test_the_exit_codes_are_documented() -> None:
    table = (ROOT / "docs/cli.md").read_text().split("## Exit codes")[1]
    documented = {int(n) for row in re.findall(r"^\| ([0-9, ]+) \|", table, flags=re.MULTILINE) for n in row.split(",")}
    known = {value for name, value in vars(exits).items() if name.isupper() and name != "SIGNALLED"}
    signals = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    assert documented == known | {exits.SIGNALLED + number for number in signals}


def test_the_entry_point_is_the_command() -> None:
    module, _, name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["preheat"].partition(
        ":"
    )
    assert getattr(importlib.import_module(module), name)


def test_a_document_of_a_cluster_asks_for_the_same(place: Place) -> None:
    here = read_document(yaml.safe_dump(document()), namespace=None)
    there = read_document(yaml.safe_dump({**document(), "spec": spec()}), namespace=None)
    assert revisions.spec_hash(here.spec) == revisions.spec_hash(there.spec)
