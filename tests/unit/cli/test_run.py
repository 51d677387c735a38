"""`preheat run`: the environment of an injected pod, or a cold start with a reason; never a script that does not start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from preheat_operator.cli import exits
from preheat_operator.cli.revisions import Folder
from preheat_operator.cli.run import serving
from preheat_operator.injection.reference import inject
from preheat_operator.injection.settings import InjectionSettings
from preheat_runtime.policy import Serving, read
from store.kit import fingerprint, target
from store.local import MODEL

if TYPE_CHECKING:
    from pathlib import Path

    from unit.cli.conftest import Place

DIGEST = "sha256:" + "a" * 64
SHOW = "import json, os, sys; print(json.dumps({'env': dict(os.environ), 'argv': sys.argv[1:]}))"
SCRIPT = ("--", sys.executable, "-c", SHOW, "--store", "its own", "--")


@pytest.mark.parametrize(
    "own", [{}, {"PYTHONPATH": "/app"}, {"PYTHONPATH": ""}, {"HOME": "/root", "PREHEAT_LOG": "off"}]
)
def test_the_environment_is_that_of_an_injected_container(own: dict[str, str], tmp_path: Path) -> None:
    pod = {
        "metadata": {"namespace": "default", "labels": {"preheat.dev/model": "vision"}},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": k, "value": v} for k, v in own.items()]}]},
    }
    index = f"\nvision Cold 0 -\nvision|i={DIGEST} -\n"
    injected = inject(pod, index, InjectionSettings(image="p", cluster_id="c", store_bucket="b"))
    expected = {entry["name"]: entry["value"] for entry in injected["spec"]["containers"][0]["env"]}
    folder = Folder(root=tmp_path / "revision", work=tmp_path / "work")
    got = serving(own, "vision", folder)
    places = {str(folder.root): "/opt/preheat", str(folder.work): "/var/cache/preheat"}
    for there, in_pod in places.items():
        got = {key: value.replace(there, in_pod) for key, value in got.items()}
    assert got == expected


def test_serving_is_said_as_in_a_pod(place: Place) -> None:
    place.publish()
    flags = ("--on-miss", "Eager", "--on-reject", "Compile", "--verify", "Before")
    ended = place.process("run", "--store", "store", *flags, "vision", *SCRIPT)
    said = json.loads(ended.out)["env"]["PREHEAT_SERVING"]
    assert (said, ended.err) == ("onMiss=Eager,onReject=Compile,verify=Before", "")
    assert read({"PREHEAT_SERVING": said}) == (Serving(on_miss="Eager", on_reject="Compile", verify="Before"), None)
    wrong = place.process("run", "--store", "store", "--on-miss", "Cold", "vision", *SCRIPT)
    assert wrong.code == exits.USAGE
    assert "Compile" in wrong.err
    assert "Fail" in wrong.err


def test_what_a_run_around_this_one_set_is_replaced(tmp_path: Path) -> None:
    folder = Folder(root=tmp_path / "revision", work=tmp_path / "work")
    outer = {
        "PREHEAT_DIR": "/outer", "PREHEAT_WORK_DIR": "/outer", "PREHEAT_MODEL": "other", "PREHEAT_SERVING": "onMiss=Fail",
    }  # fmt: skip
    got = serving(outer, "vision", folder)
    assert "PREHEAT_SERVING" not in got
    assert (got["PREHEAT_DIR"], got["PREHEAT_WORK_DIR"], got["PREHEAT_MODEL"]) == (
        str(folder.root), str(folder.work), "vision",
    )  # fmt: skip


def test_a_script_starts_with_the_verified_revision(place: Place) -> None:
    digest = place.publish()
    ended = place.process("run", "--store", "store", "vision", *SCRIPT)
    assert (ended.code, ended.err) == (0, "")
    seen = json.loads(ended.out)
    assert seen["argv"] == ["--store", "its own", "--"], "the command's own words are left alone"
    root = place.folder.joinpath(seen["env"]["PREHEAT_DIR"])
    assert seen["env"]["PREHEAT_MODEL"] == "vision"
    assert seen["env"]["PYTHONPATH"].split(":")[0] == str(root / "site")
    assert (root / "revision/main/batch/cpu/model.so").read_bytes() == MODEL
    assert json.loads((root / "fetch.json").read_text())["manifest"] == digest
    assert sorted(path.name for path in root.iterdir()) == ["fetch.json", "revision", "site"]
    assert root.parent.stat().st_mode & 0o777 == 0o700


def test_a_second_start_needs_no_store_once_the_digest_is_known(place: Place) -> None:
    digest = place.publish()
    first = place.process("run", "--store", "store", digest, *SCRIPT)
    for blob in (place.folder / "store/v1/local.default/blobs/sha256").iterdir():
        blob.unlink()
    second = place.process("run", "--store", "store", digest, *SCRIPT)
    assert json.loads(first.out)["env"]["PREHEAT_DIR"] == json.loads(second.out)["env"]["PREHEAT_DIR"]


@pytest.mark.parametrize("damaged", ["revision/main/batch/cpu/model.so", "site/preheat_runtime/hook.py"])
def test_what_was_damaged_in_the_cache_is_brought_anew(place: Place, damaged: str) -> None:
    place.publish()
    root = (
        place.folder / json.loads(place.process("run", "--store", "store", "vision", *SCRIPT).out)["env"]["PREHEAT_DIR"]
    )
    before = (root / damaged).read_bytes()
    (root / damaged).write_bytes(b"raise SystemExit('never')")
    assert place.process("run", "--store", "store", "vision", *SCRIPT).code == 0
    assert (root / damaged).read_bytes() == before
    assert [path.name for path in root.parent.iterdir() if path.name.startswith(".")] == []


def test_the_newest_that_fits_this_machine_is_taken(place: Place) -> None:
    fits = place.publish()
    elsewhere = place.publish(targets=[target(fingerprint=fingerprint(machine="made-up"))], hardware="other")
    assert fits != elsewhere
    root = json.loads(place.process("run", "--store", "store", "vision", *SCRIPT).out)["env"]["PREHEAT_DIR"]
    assert json.loads((place.folder / root / "fetch.json").read_text())["manifest"] == fits


def test_an_image_can_be_asked_for(place: Place) -> None:
    old = place.publish(image="r:1")
    place.publish(image="r:2", model=b"newer")
    root = json.loads(place.process("run", "--store", "store", "--image", "r:1", "vision", *SCRIPT).out)["env"][
        "PREHEAT_DIR"
    ]
    assert json.loads((place.folder / root / "fetch.json").read_text())["manifest"] == old


MISSING = {
    "no store": ("vision", "nowhere", "StoreDenied: --store: there is no folder"),
    "no such model": ("other", "store", "nothing was compiled of other in"),
    "no such digest": (DIGEST, "store", "ManifestMissing"),
    "no credentials": (
        "vision",
        "s3://bucket",
        "StoreCredentialsMissing: no credentials in the environment: set AWS_ACCESS",
    ),
    "another machine": ("elsewhere", "store", "main/batch/cpu needs made-up"),
}


@pytest.mark.parametrize(("name", "store", "says"), MISSING.values(), ids=MISSING.keys())
def test_with_nothing_usable_the_script_starts_cold_and_says_why(
    place: Place, name: str, store: str, says: str
) -> None:
    place.publish()
    place.publish(name="elsewhere", targets=[target(fingerprint=fingerprint(machine="made-up"))])
    cold = place.process("run", "--store", store, name, *SCRIPT)
    assert cold.code == 0
    assert "starts cold" in cold.err
    assert says in cold.err
    assert "PREHEAT_DIR" not in json.loads(cold.out)["env"]
    fail = place.process("run", "--store", store, "--when-missing", "Fail", name, *SCRIPT)
    assert (fail.code, fail.out) == (exits.MISSING, "")
    assert says in fail.err


def test_a_damaged_artifact_is_never_served(place: Place) -> None:
    place.publish()
    for blob in (place.folder / "store/v1/local.default/blobs/sha256").iterdir():
        blob.write_bytes(b"x" + blob.read_bytes()[1:])
    cold = place.process("run", "--store", "store", "vision", *SCRIPT)
    assert cold.code == 0
    assert "PieceCorrupt" in cold.err
    assert not [
        path for path in (place.folder / "cache/preheat/revisions").iterdir() if not path.name.endswith(".work")
    ]


def test_the_commands_own_exit_code_is_kept(place: Place) -> None:
    place.publish()
    assert place.process("run", "--store", "store", "vision", "--", "sh", "-c", "exit 7").code == 7
    assert place.process("run", "--store", "store", "vision", "--", "no-such-command").code == 127
    assert place.process("run", "--store", "store", "vision", "--", "/etc/hostname").code == 126


def test_why_a_command_cannot_be_started(place: Place) -> None:
    place.publish()
    (place.folder / "plain").write_text("no program")
    for word, code, says in (
        ("/", 126, "/: is a folder"), ("./store", 126, "./store: is a folder"), ("store", 127, "there is no such command"),
        ("./plain", 126, "may not be executed"), ("./none", 127, "there is no such command"),
        ("/etc/hostname/x", 127, "there is no such command"),
    ):  # fmt: skip
        ended = place.process("run", "--store", "store", "vision", "--", word)
        assert (ended.code, ended.out) == (code, ""), word
        assert says in ended.err


def started_by(place: Place, prologue: str, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """`preheat run` in a process that has done `prologue` before; what it says comes through pipes."""
    code = f"import os, sys\n{prologue}\nfrom preheat_operator.cli.main import main\nsys.exit(main({list(words)!r}))"
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=place.folder, env=env or place.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_user_without_a_home_starts_cold_and_is_told_of_the_cache(place: Place) -> None:
    place.publish()
    env = {key: value for key, value in place.environment.items() if key not in ("HOME", "XDG_CACHE_HOME")}
    nobody = "import pwd\ndef unknown(uid): raise KeyError(uid)\npwd.getpwuid = unknown"
    words = ("run", "--store", "store", "vision", *SCRIPT)
    out, err = started_by(place, nobody, *words, env=env).communicate(timeout=60)
    assert "this user has no home to keep artifacts in: --cache names a folder" in err
    assert "PREHEAT_DIR" not in json.loads(out)["env"]
    out, err = started_by(place, nobody, *words[:3], "--cache", "c", *words[3:], env=env).communicate(timeout=60)
    assert err == ""
    assert json.loads(out)["env"]["PREHEAT_DIR"].startswith(str(place.folder / "c"))


def test_in_a_folder_that_is_gone_the_script_starts_cold(place: Place) -> None:
    place.publish()
    gone = "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')"
    out, err = started_by(place, gone, "run", "--store", "../store", "vision", *SCRIPT).communicate(timeout=60)
    assert "starts cold: StoreDenied: --store: ../store lies in the present folder, which is gone" in err
    assert "PREHEAT_DIR" not in json.loads(out)["env"]
    inspect = started_by(place, gone, "inspect", "--store", "../store", "vision")
    assert "which is gone" in inspect.communicate(timeout=60)[1]
    assert inspect.returncode == exits.REFUSED
    # A store that can be found from anywhere serves there as well.
    out, err = started_by(place, gone, "run", "--store", str(place.folder / "store"), "vision", *SCRIPT).communicate()
    assert err == ""
    assert "PREHEAT_DIR" in json.loads(out)["env"]


def test_a_fault_of_ours_does_not_keep_the_script_from_starting(place: Place) -> None:
    place.publish()
    fault = "import preheat_operator.cli.run as run\nrun.read_pointer = lambda *_: 1 / 0"
    words = ("run", "--store", "store", "vision", *SCRIPT)
    out, err = started_by(place, fault, *words).communicate(timeout=60)
    assert "starts cold: Internal: a fault of Preheat: ZeroDivisionError: division by zero" in err
    assert "PREHEAT_DIR" not in json.loads(out)["env"]
    fail = started_by(place, fault, *words[:3], "--when-missing", "Fail", *words[3:])
    assert fail.communicate(timeout=60)[0] == ""
    assert fail.returncode == exits.MISSING


@pytest.mark.parametrize(
    ("words", "env"), [(("--cache", "a:b"), {}), (("--cache", "a:b/c"), {}), ((), {"XDG_CACHE_HOME": "a:b"})]
)
def test_a_cache_that_pythonpath_cannot_name_is_refused(
    place: Place, words: tuple[str, ...], env: dict[str, str]
) -> None:
    place.publish()
    ended = place.process("run", "--store", "store", *words, "vision", *SCRIPT, **env)
    assert f"starts cold: PYTHONPATH cannot name {place.folder}/a:b" in ended.err
    assert "PREHEAT_DIR" not in json.loads(ended.out)["env"]
    assert not (place.folder / "a:b").exists()


def test_signals_are_as_without_it(place: Place) -> None:
    place.publish()
    command = ["grep", "SigIgn", "/proc/self/status"]
    # What this process was started with counts as well, so the measure is a child that has nothing of ours.
    plain = subprocess.run(command, capture_output=True, text=True, check=True)
    assert place.process("run", "--store", "store", "vision", "--", *command).out == plain.stdout


def test_nothing_is_loaded_from_a_cache_that_others_can_write_to(place: Place) -> None:
    place.publish()
    shared = place.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    ended = place.process("run", "--store", "store", "--cache", "shared", "vision", *SCRIPT)
    assert "others can write to the cache" in ended.err
    assert "PREHEAT_DIR" not in json.loads(ended.out)["env"]


def test_what_lies_in_the_cache_and_is_not_ours_stays(place: Place) -> None:
    place.publish()
    mine = place.folder / "mine"
    (mine / ".config").mkdir(parents=True)
    (mine / ".preheat-incoming-1").mkdir()
    for path in mine.iterdir():
        os.utime(path, (0, 0))
    place.process("run", "--store", "store", "--cache", "mine", "vision", *SCRIPT)
    left = [path.name for path in mine.iterdir() if path.name.startswith(".")]
    assert left == [".config"]


@pytest.mark.parametrize("words", [("vision",), ("vision", "--"), ("Not_A_Name", "--", "true"), ("../x", "--", "true")])
def test_a_wrong_command_line_does_not_start_anything(place: Place, words: tuple[str, ...]) -> None:
    ended = place.process("run", "--store", "store", *words)
    assert ended.code == exits.USAGE
    assert ended.err


def test_starting_loads_neither_pydantic_nor_the_s3_library(place: Place) -> None:
    place.publish()
    code = (
        "import sys, os; from preheat_operator.cli.main import main\n"
        "os.execve = lambda *_: (print(sorted({'pydantic','botocore','yaml','celpy'} & set(sys.modules))), os._exit(0))\n"
        "sys.stdout.flush(); main(['run', '--store', 'store', 'vision', '--', 'true'])"
    )
    import subprocess

    env = {
        **os.environ,
        "XDG_CACHE_HOME": str(place.folder),
        "PYTHONPATH": ":".join(p for p in sys.path if p),
        "PYTHONUNBUFFERED": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=place.folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
