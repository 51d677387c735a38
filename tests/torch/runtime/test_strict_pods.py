"""What an inference pod really is: nothing to write to, no name, no home, another path, another Python prefix; hot all the same.

All tests share one package and one set of caches. Each runs a fresh process in a container of its own: see `container`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from container import APP, PREHEAT, WORK, Container
from preheat_compiler.layout import compiler_runs, shims
from preheat_runtime.reasons import unable_to_compile
from seen import ONE_ANSWER, records

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a container"),
]

HERE = Path(__file__).parent
OTHER_CODE = "import nets; nets.GAIN = 3.0\n" + ONE_ANSWER


@dataclass
class Strict:
    """A strict pod; `serve` runs a script in it."""

    container: Container
    said: Callable[[str], list[dict[str, object]]]

    def run(self, *words: str, **env: str | None) -> subprocess.CompletedProcess[str]:
        given = {
            "PATH": "/nowhere",
            "PYTHONPATH": f"{PREHEAT}/site:{APP}",
            "PREHEAT_DIR": PREHEAT,
            "PREHEAT_WORK_DIR": WORK,
            "PREHEAT_MODEL": "vision",
            **env,
        }
        command = self.container.command(
            *words, env={name: value for name, value in given.items() if value is not None}
        )
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    def serve(self, script: str = ONE_ANSWER, *, python: str = sys.executable, **env: str | None) -> dict[str, object]:
        """The one line that the runtime wrote about an answer."""
        done = self.run(python, "-c", script, **env)
        assert done.returncode == 0, done.stderr[-3000:]
        lines = self.said(done.stderr)
        (line,) = records(lines, "preheat")
        assert not records(lines, "preheat-error")
        return line


@pytest.fixture
def strict(pod, tmp_path):
    """Makes a strict pod that was given one artifact; its own code lies where no compile Job had it."""

    def make(directory: Path, **entry: str) -> Strict:
        pod.write((directory, pod.entry(directory, **entry)))
        _ = pod.site
        app, work = tmp_path / "app", tmp_path / "work"
        app.mkdir()
        shutil.copy(HERE / "nets.py", app)
        work.mkdir()
        work.chmod(0o777)  # as the kubelet makes an emptyDir
        # Links lead to folders that are not there in the container.
        shutil.copytree(pod.root, tmp_path / "copy")
        for path in (tmp_path / "copy").rglob("*"):
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))
        return Strict(Container(preheat=tmp_path / "copy", app=app, work=work), pod.said)

    return make


@pytest.fixture
def with_package(strict, trap_package):
    return strict(trap_package[0])


def test_the_container_is_what_the_others_take_it_for(with_package):
    script = """
import json, os, pwd
def can_write(folder):
    try:
        open(folder + "/probe", "x").close()
    except OSError:
        return False
    return True
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
noexec = {each: bool(os.statvfs(each).f_flag & os.ST_NOEXEC) for each in ("/tmp", "/dev/shm", "/var/cache/preheat")}
print(json.dumps({
    "writable": [each for each in ("/", "/tmp", "/srv/app", "/opt/preheat", "/var/cache/preheat") if can_write(each)],
    "noexec": noexec, "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "user": os.getuid(), "named": any(os.getuid() == each.pw_uid for each in pwd.getpwall()), "pid": os.getpid(),
    "rights": int(status["CapEff"], 16), "new": int(status["NoNewPrivs"]), "home": os.environ.get("HOME"),
    "name": os.uname().nodename, "interfaces": os.listdir("/sys/class/net") if 0 else [n for _, n in __import__("socket").if_nameindex()],
}))
"""
    seen = json.loads(with_package.run(sys.executable, "-c", script).stdout)
    assert seen == {
        "writable": ["/var/cache/preheat"], "shm": 65536, "user": 1000660000, "named": False, "pid": 1, "rights": 0, "new": 1,
        "noexec": {"/tmp": False, "/dev/shm": True, "/var/cache/preheat": False},
        "home": None, "name": "pod-of-somebody-else", "interfaces": ["lo"],
    }  # fmt: skip
    with_package.container = replace(with_package.container, tmp="noexec")
    seen = json.loads(with_package.run(sys.executable, "-c", script).stdout)
    assert (seen["writable"], seen["noexec"]["/tmp"]) == (["/tmp"], True)  # what was written before is still there


@pytest.mark.parametrize(
    ("changes", "env"),
    [
        ({}, {}),
        ({"tmp": "noexec"}, {"TMPDIR": "/tmp", "HOME": "/nonexistent"}),
        # Preheat's own volume full, or not to be written to, or not there: nothing is written, and nothing is missed.
        ({}, {"PREHEAT_WORK_DIR": "/opt"}),
        ({}, {"PREHEAT_WORK_DIR": None}),
    ],
    ids=["nothing to write to", "noexec /tmp, no home", "read-only work folder", "no work folder"],
)
def test_hot(with_package, changes, env):
    with_package.container = replace(with_package.container, **changes)
    line = with_package.serve(**env)
    assert (line["outcome"], line["reason"], line["pid"]) == ("hot", "package", 1)
    reports = with_package.container.work / "reports.jsonl"
    assert reports.exists() == ("PREHEAT_WORK_DIR" not in env)


def test_hot_in_another_python_s_prefix_with_a_path_of_the_image(with_package):
    """No virtual environment, as in conda's and most images; packages come from the image's own PYTHONPATH."""
    base = Path(sys.base_prefix, "bin", f"python{sysconfig.get_python_version()}")
    path = f"{PREHEAT}/site:{APP}:{sysconfig.get_path('purelib')}"
    told = "import sys; assert sys.prefix == sys.base_prefix; assert not sys.flags.ignore_environment\n"
    assert with_package.serve(told + ONE_ANSWER, python=str(base), PYTHONPATH=path)["outcome"] == "hot"


@pytest.fixture
def conda(with_package, tmp_path):
    """A prefix laid out as conda lays its own: Python, its libraries and all packages below it, and what conda notes of them."""
    version, prefix = f"python{sysconfig.get_python_version()}", tmp_path / "envs" / "serving"
    base, packages = Path(sys.base_prefix), prefix / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta" / "history").touch()
    shutil.copy(base / "bin" / version, prefix / "bin" / "python")
    for each in base.glob("lib/libpython*"):
        (prefix / "lib" / each.name).symlink_to(each)
    for each in (base / "lib" / version).iterdir():
        if each.name != packages.name:
            (prefix / "lib" / version / each.name).symlink_to(each)
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if each.suffix != ".pth":  # no editable install
            (packages / each.name).symlink_to(each)
    with_package.container = replace(with_package.container, also=[prefix])
    return with_package, prefix


def test_hot_in_a_prefix_as_conda_makes_it(conda):
    """Nothing else is on the path than Preheat's folder, which injection puts there, and the working directory."""
    given, prefix = conda
    told = f"import sys, torch; assert sys.prefix == sys.base_prefix == {str(prefix)!r}, sys.prefix\n"
    told += "assert torch.__file__.startswith(sys.prefix), torch.__file__\n"
    env = {"CONDA_PREFIX": str(prefix), "PYTHONPATH": f"{PREHEAT}/site"}
    assert given.serve(told + ONE_ANSWER, python=str(prefix / "bin" / "python"), **env)["outcome"] == "hot"


def test_a_volume_that_runs_no_programs_is_named(with_package):
    with_package.container = replace(with_package.container, volume="ro,noexec")
    line = with_package.serve()
    assert (line["outcome"], line["reasonClass"]) == ("eager", "NotExecutable")
    assert "/opt/preheat/revision/main/batch/cpu is mounted noexec, so no code in it can run" in line["reason"]


def test_files_that_the_user_may_not_read_are_named(with_package):
    (with_package.container.preheat / "revision" / "main" / "batch").chmod(0o700)
    line = with_package.serve()
    assert "its files cannot be read by user 1000660000: Permission denied" in line["reason"]


def test_a_miss_without_a_compiler_is_eager(with_package):
    line = with_package.serve(OTHER_CODE)
    assert (line["outcome"], line["reasonClass"]) == ("eager", "ModelDiffers")
    assert line["reason"].endswith("there is no C++ compiler in the image, so the model runs eagerly")


@pytest.fixture
def compilers(monkeypatch):
    """Gives a strict pod compilers that note each run in `compilers.log` of its work folder; the PATH that finds them."""

    def make(strict: Strict) -> str:
        monkeypatch.setenv("PATH", "/usr/bin:/bin")  # ccache has no place there
        shims(strict.container.app / "bin", log=Path(WORK, "compilers.log"), pass_on=True)
        return f"{APP}/bin:/usr/bin:/bin"

    return make


def test_a_miss_with_no_place_to_compile_in_is_eager(with_package, compilers):
    """torch.compile alone raises there: what it compiled cannot be loaded from /tmp."""
    with_package.container = replace(with_package.container, tmp="noexec")
    line = with_package.serve(OTHER_CODE, PATH=compilers(with_package), PREHEAT_WORK_DIR=None)
    assert (line["outcome"], line["reasonClass"], unable_to_compile(line["reason"])) == (
        "eager",
        "ModelDiffers",
        "NoRoom",
    )
    assert "/tmp is mounted noexec; PREHEAT_WORK_DIR is not set, so the model runs eagerly" in line["reason"]
    assert compiler_runs(with_package.container.work / "compilers.log") == 0


@pytest.mark.soak
def test_a_miss_is_compiled_in_preheat_s_own_volume(with_package):
    with_package.container = replace(with_package.container, tmp="noexec")
    line = with_package.serve(OTHER_CODE, PATH="/usr/bin:/bin")
    assert (line["outcome"], line["reasonClass"]) == ("cold", "ModelDiffers")
    assert list(with_package.container.work.glob("compiled/*/*.so"))


@pytest.mark.parametrize("threads", ["1", "3"])
def test_caches_are_found_by_another_user_on_another_host_with_other_cpus(strict, caches, compilers, threads):
    given = strict(caches, tier="caches")
    given.container = replace(given.container, tmp="noexec", hostname=f"node-{threads}")
    env = {"USER": "somebody", "LOGNAME": "somebody", "OMP_NUM_THREADS": threads}
    line = given.serve(PATH=compilers(given), **env)
    assert (line["outcome"], line["reason"]) == ("warm", "compiler caches")
    assert compiler_runs(given.container.work / "compilers.log") == 0
