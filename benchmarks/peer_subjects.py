"""What is started in the comparison, and in which environment each way starts it.

Why it exists: a comparison is fair when all ways have the same process, threads, weights and page cache, and when each is
seen to be what it is called: `faults` of a start says in what it was not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from peer_ways import B10, COLD, EAGER, MEGA, PREHEAT, PREPARE, PREPARE_TRACED, QUICK, TRACED, WARM
from shared import ROOT

from architectures.check import MAX_ERROR
from preheat_compiler.layout import compiler_runs, shims
from preheat_compiler.prove import said_by_runtime
from preheat_runtime.environment import cache_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from artifacts import Artifact

#: What reads or writes torch's caches.
CACHED = (WARM, MEGA, B10, TRACED, PREPARE, PREPARE_TRACED)
#: Variables of our own caches tier that the peers get too, when writing and when reading.
HELP = ("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "TORCHINDUCTOR_VEC_ISA_OK")

Row = dict[str, Any]


class StartFailed(SystemExit):
    """A process that did not end well; `said` is its last line."""

    def __init__(self, name: str, way: str, stderr: str) -> None:
        super().__init__(f"{name}, {way}: {stderr[-3000:]}")
        self.said = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "nothing")


class Subject(Protocol):
    """Something to start in several ways."""

    name: str
    artifact: Artifact
    ways: tuple[str, ...]
    failing: dict[str, str]
    """The peers that cannot do it, with what their process said last; they are none of its ways."""

    def prepare(self) -> None:
        """Fill all caches and start once in each way; does nothing when that was done."""

    def start(self, way: str) -> Row:
        """One fresh process. Seconds and milliseconds by name, and `faults`: in what it was not what it is called."""

    def bytes_moved(self) -> dict[str, int]:
        """What has to be brought to a machine that has nothing, for each way that brings something."""


@dataclass
class Place:
    """Folders of one subject, and the environment of its processes."""

    keep: Path
    scratch: Path
    log: Path = field(init=False)
    bin: Path = field(init=False)

    def __post_init__(self) -> None:
        self.keep.mkdir(parents=True, exist_ok=True)
        self.log, self.bin = self.scratch / "compilers", self.keep / "bin"

    def environment(self, way: str, artifact: Artifact) -> dict[str, str]:
        """An empty home, the compilers watched; caches as the way has them. Empties the scratch folder first."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        for name in ("home", "tmp", "work"):
            (self.scratch / name).mkdir(parents=True)
        shutil.rmtree(self.bin, ignore_errors=True)
        shims(self.bin, log=self.log, pass_on=True)
        path = [*artifact.python_path]
        env = {name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH") if name in os.environ}
        env |= {
            "PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.scratch / "home"), "TMPDIR": str(self.scratch / "tmp"),
            # As in a pod, where Preheat's code is on a read-only file system.
            "PYTHONDONTWRITEBYTECODE": "1", **artifact.architecture.environment,
        }  # fmt: skip
        if way == PREHEAT:
            path.insert(0, artifact.pod / "site")
            env |= artifact.served_environment(self.scratch / "work")
        elif way in (WARM, PREPARE):
            env["TORCHINDUCTOR_CACHE_DIR"] = str(self.keep / "warm")
        elif way in (TRACED, PREPARE_TRACED):
            env |= {"TORCHINDUCTOR_CACHE_DIR": str(self.keep / "traced"), "TORCH_CACHING_PRECOMPILE": "1"}
        elif way != EAGER:
            env["TORCHINDUCTOR_CACHE_DIR"] = str(self.scratch / "inductor")
        if way in CACHED:
            # Else each would start a compiler for what torch keeps in no cache: a header, and a probe of the CPU.
            env |= {name: cache_environment()[name] for name in HELP}
        if way in (B10, PREPARE):
            env |= {
                "BASETEN_FS_ENABLED": "1", "B10FS_CACHE_DIR": str(self.keep / "b10"), "LOCAL_WORK_DIR": str(self.scratch / "work"),
                # Its volume is taken for one of terabytes, with fifty replicas that save at once.
                "MIN_B10FS_SPACE_MB": "1000", "MAX_CONCURRENT_SAVES": "1",
            }  # fmt: skip
        return env | {"PYTHONPATH": os.pathsep.join(map(str, path))}

    def seen(self, way: str) -> Row:
        """What a process left behind: how often it ran a compiler, and how Preheat says that it was served."""
        said = [line for line in said_by_runtime(self.scratch / "work") if line.get("event") == "preheat"]
        return {"compiler_runs": compiler_runs(self.log), "outcomes": [line["outcome"] for line in said]}


def faults_of(way: str, row: Row, *, served: str) -> Iterator[str]:
    """In what a start was not what its way is called; `served` is what Preheat has to say of its own."""
    if not row["error"] <= MAX_ERROR:
        yield f"its answer differs from eager's by {row['error']}"
    ran = row["compiler_runs"]
    # torch's mega-cache holds the sources of C++ kernels, not what was made of them: each process compiles them.
    if way != MEGA and (way == COLD) != (ran > 0):
        yield f"a compiler ran {ran} times"
    if row["outcomes"] != ([served] if way == PREHEAT else []):
        yield f"Preheat says {row['outcomes']}"
    if "hits" in row:
        if (way in (WARM, TRACED, MEGA, B10)) != (row["hits"] > 0) or (way not in (COLD, PREPARE) and row["misses"]):
            yield f"the compiler's caches had {row['hits']} hits and {row['misses']} misses"
        if way in (EAGER, PREHEAT) and row["imported"]:
            yield f"it imported {row['imported']}"
        if way in (MEGA, B10) and row["loaded"] != "SUCCESS":
            yield f"loading said {row['loaded']}"


@dataclass
class Model:
    """One architecture of the table."""

    artifact: Artifact
    place: Place
    ways: tuple[str, ...] = (*QUICK, TRACED, COLD)
    failing: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As in the table."""
        return self.artifact.architecture.name

    def prepare(self) -> None:
        """One eager start for the answer, one cold start that fills the caches, and one of each other way."""
        done = self.place.keep / "prepared"
        if done.exists():
            self._leave_out(json.loads(done.read_text()))
            return
        for name in ("warm", "traced", "b10"):
            shutil.rmtree(self.place.keep / name, ignore_errors=True)
        (self.place.keep / "eager.pt").unlink(missing_ok=True)
        self._run(EAGER)
        saved = self._run(PREPARE)["saved"]
        if saved != "SUCCESS":
            raise SystemExit(f"{self.name}: b10-transfer saved nothing: {saved}")
        failing: dict[str, str] = {}
        for way in (PREPARE_TRACED, WARM, TRACED, MEGA, B10, PREHEAT):
            try:
                tell(self.name, way, self._run(way))
            except StartFailed as error:
                if way == PREHEAT:
                    raise
                failing[{PREPARE_TRACED: TRACED}.get(way, way)] = error.said
                print(f"{self.name}, {way}: FAILED, and is left out: {error.said}", flush=True)
        self._leave_out(failing)
        done.write_text(json.dumps(failing))

    def _leave_out(self, failing: dict[str, str]) -> None:
        self.failing = failing
        self.ways = tuple(way for way in self.ways if way not in failing)

    def start(self, way: str) -> Row:
        """See Subject."""
        row = self._run(way)
        return row | {"faults": list(faults_of(way, row, served=self.artifact.outcome))}

    def bytes_moved(self) -> dict[str, int]:
        """See Subject."""
        keep = self.place.keep
        archive = sum(path.stat().st_size for path in (keep / "b10").glob("*.tar.gz"))
        return {
            WARM: size_of(keep / "warm"), TRACED: size_of(keep / "traced"), MEGA: (keep / "mega.bin").stat().st_size, B10: archive,
            PREHEAT: self.artifact.bytes_moved,
        }  # fmt: skip

    def _run(self, way: str) -> Row:
        architecture = self.artifact.architecture
        env = self.place.environment(way, self.artifact) | {
            "BENCH_WAY": way, "BENCH_KEEP": str(self.place.keep),
            "BENCH_FACTORY": self.artifact.factory, "BENCH_PATH": architecture.path,
            "BENCH_BUCKET": json.dumps(architecture.bucket), "BENCH_SIZES": json.dumps(architecture.sizes[-1]),
        }  # fmt: skip
        words = [sys.executable, str(ROOT / "benchmarks" / "peer_start.py")]
        before = time.perf_counter()
        done = subprocess.run(
            words, cwd=self.artifact.app, env=env, capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode:
            raise StartFailed(self.name, way, done.stderr)
        row: Row = json.loads(done.stdout.splitlines()[-1])
        # Both processes read the same clock: CLOCK_MONOTONIC, which perf_counter is on Linux.
        row["total_seconds"] = row.pop("first_at") - before
        return row | self.place.seen(way)


@dataclass
class Script:
    """open_clip's own command, as it is: it evaluates a model on a list of images and texts, and has a flag for torch.compile.

    Its log says when it answers, so the lines are timed as they come: the first one is written when everything is imported and
    the options are read, the first with a loss when the first batch is answered.
    """

    artifact: Artifact
    place: Place
    name: str = "open_clip"
    ways: tuple[str, ...] = (EAGER, WARM, PREHEAT, COLD)
    failing: dict[str, str] = field(default_factory=dict)

    batch = 2
    batches = 20

    def prepare(self) -> None:
        """Images of noise, and caches that one cold start filled."""
        done = self.place.keep / "prepared"
        if done.exists():
            return
        shutil.rmtree(self.place.keep / "warm", ignore_errors=True)
        write_pictures(self.place.keep / "pictures", self.batch * self.batches)
        (self.place.keep / "loss").write_text(str(self._run(EAGER)["loss"]))
        for way in (PREPARE, WARM, PREHEAT):
            tell(self.name, way, self._run(way))
        done.touch()

    def start(self, way: str) -> Row:
        """See Subject."""
        row = self._run(way)
        row["error"] = abs(row["loss"] / float((self.place.keep / "loss").read_text()) - 1)
        return row | {"faults": list(faults_of(way, row, served=self.artifact.outcome))}

    def bytes_moved(self) -> dict[str, int]:
        """See Subject."""
        return {WARM: size_of(self.place.keep / "warm"), PREHEAT: self.artifact.bytes_moved}

    def _run(self, way: str) -> Row:
        model = self.artifact.architecture.environment["CLIP_MODEL"]
        pictures = self.place.keep / "pictures" / "list.csv"
        words = [
            sys.executable,
            *["-m", "open_clip_train.main", "--precision", "fp32", "--device", "cpu", "--workers", "0"],
        ]
        words += [
            "--model",
            model,
            "--dataset-type",
            "csv",
            "--val-data",
            str(pictures),
            "--batch-size",
            str(self.batch),
        ]
        words += ["--torchcompile"] if way != EAGER else []
        env = self.place.environment(way, self.artifact)
        before = time.perf_counter()
        cwd = self.place.scratch / "work"
        process = subprocess.Popen(
            words, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        lines = [(time.perf_counter(), line) for line in process.stderr or ()]
        if process.wait(timeout=900):
            said = "".join(line for _, line in lines[-20:])
            raise SystemExit(f"{self.name}, {way} ended with {process.returncode}: {said}")
        imported = next(at for at, line in lines if "Running with a single process" in line)
        first, loss = next((at, found[1]) for at, line in lines if (found := re.search(r"Clip Loss: (\S+)", line)))
        last = next(at for at, line in lines if "clip_val_loss" in line)
        row = {
            "total_seconds": first - before, "after_import_seconds": first - imported, "loss": float(loss),
            "p50_ms": 1000 * (last - first) / (self.batches - 1),
        }  # fmt: skip
        return row | self.place.seen(way)


def tell(name: str, way: str, row: Row) -> None:
    """A line, for who waits for the rounds to begin."""
    print(f"{name}, {way}: first answer after {row['total_seconds']:.1f} s, not counted", flush=True)


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def write_pictures(folder: Path, count: int) -> None:
    """Pictures of noise and a list of them with captions; of a seed, so always the same."""
    import torch
    from torchvision.io import write_png

    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    lines = ["filepath\ttitle"]
    for number in range(count):
        write_png(torch.randint(256, (3, 224, 224), dtype=torch.uint8), str(folder / f"{number}.png"))
        lines.append(f"{folder / f'{number}.png'}\tpicture number {number}")
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
