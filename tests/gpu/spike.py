"""One command that asks a GPU everything that Preheat has to know before it may serve packages on one.

    python tests/gpu/spike.py --out spike                 # about nine minutes at most, on one GPU
    python tests/gpu/spike.py --out spike --device cpu    # every path that needs no GPU, to see that it runs

Why it exists: a GPU is lent rarely and for half an hour. Nothing here needs a cluster or more than torch; each
experiment runs in a process of its own, so that one that crashes or hangs costs only itself. `--out` gets
`cuda.json` with all that was seen and `cuda.md` in the form of docs/measured. Nothing is judged here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import findings
from context import Context, Experiment

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds of the whole run. Who lends a GPU may end a command after ten minutes, and then nothing comes back.
LIMIT = 520
#: Seconds below which an experiment is not begun.
LEAST = 10


def experiments() -> tuple[Experiment, ...]:
    """All of them; those whose files others need come first, and those that run alone last."""
    import caching
    import operators
    import packages
    import running

    every = (*packages.EXPERIMENTS, *operators.EXPERIMENTS, *running.EXPERIMENTS, *caching.EXPERIMENTS)
    return tuple(sorted(every, key=lambda each: (each.alone, bool(each.needs) and not each.alone)))


def preflight(device: str) -> str:
    """Why nothing can be run on `device` with this Python, in words; empty when it can."""
    script = "import torch; print(torch.__version__, torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return f"{sys.executable} has no torch that works: {' '.join(done.stderr.split())[-300:]}"
    version, _, available = done.stdout.strip().rpartition(" ")
    if device.startswith("cuda") and available != "True":
        return f"torch {version} of {sys.executable} sees no CUDA device; --device cpu runs what needs none"
    return ""


@dataclass(kw_only=True)
class Spike:
    """One run: where it writes, how long it may take, what came of each experiment so far."""

    out: Path
    device: str
    options: dict[str, str]
    deadline: float
    patience: float = 1.0
    script: Path = field(default_factory=lambda: Path(sys.argv[0]).resolve())
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, every: Sequence[Experiment], *, lanes: int) -> None:
        """Run those that may share the machine in `lanes`, in two rounds for what they need, then the others singly."""
        shared = [each for each in every if not each.alone]
        for group in ([e for e in shared if not e.needs], [e for e in shared if e.needs]):
            with ThreadPoolExecutor(lanes) as pool:
                list(pool.map(self.one, group))
        for each in every:
            if each.alone:
                self.one(each)

    def one(self, experiment: Experiment) -> None:
        """Run one experiment and write all records anew, so that whatever ends this process loses nothing."""
        record = {
            "experiment": experiment.name,
            "question": experiment.question,
            "seconds": 0.0,
            "facts": {},
            "said": "",
        }
        record.update(self._skipped(experiment) or self._ran(experiment))
        with self._lock:
            self.records[experiment.name] = record
            print(f"{record['status']:>8} {record['seconds']:6.1f} s  {experiment.name}", flush=True)
            self.write()

    def _skipped(self, experiment: Experiment) -> dict[str, Any] | None:
        if experiment.cuda_only and not self.device.startswith("cuda"):
            return {"status": "skipped", "error": "it needs a CUDA device"}
        for need in experiment.needs:
            if self.records.get(need, {}).get("status") != "ok":
                return {"status": "skipped", "error": f"it needs {need}, which is not there"}
        if self.deadline - time.monotonic() < LEAST:
            return {"status": "skipped", "error": "no time was left"}
        return None

    def _ran(self, experiment: Experiment) -> dict[str, Any]:
        folder = self.out / "work" / experiment.name
        folder.mkdir(parents=True, exist_ok=True)
        answer, said = folder / "answer.json", folder / "said.txt"
        seconds = min(experiment.seconds * self.patience, self.deadline - time.monotonic())
        command = [sys.executable, str(self.script), "--child", experiment.name, "--device", self.device]
        command += ["--out", str(self.out), "--seconds", f"{seconds:.1f}"]
        command += [f"--option={name}={value}" for name, value in self.options.items()]
        begin = time.monotonic()
        with said.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **_own_caches(folder), **experiment.environment()},
            )  # fmt: skip
            try:
                code: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        facts = _read(answer)
        tail = said.read_text(errors="replace")[-2000:]
        found = {"seconds": round(time.monotonic() - begin, 1), "facts": facts}
        if code == 0:
            return {**found, "status": "ok", "error": None}
        if code is None:
            return {**found, "status": "timeout", "error": f"it took longer than {seconds:.0f} s", "said": tail}
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
        status = "crashed" if code < 0 else "failed"
        last = next((line for line in reversed(tail.splitlines()) if line.strip()), "")
        return {**found, "status": status, "error": f"{how}: {last[:300]}", "said": tail}

    def write(self) -> None:
        """Both files, each whole or not at all."""
        order = list(self.records.values())
        content = {"formatVersion": 1, "device": self.device, "records": order}
        _replace(self.out / "cuda.json", json.dumps(content, indent=1) + "\n")
        _replace(self.out / "cuda.md", findings.markdown(order, device=self.device))


def _own_caches(folder: Path) -> dict[str, str]:
    """Caches and temporary files of its own, so that no experiment finds what another compiled."""
    (folder / "tmp").mkdir(exist_ok=True)
    return {
        "TMPDIR": str(folder / "tmp"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "caches"),
        "TRITON_CACHE_DIR": str(folder / "caches" / "triton"),
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the experiment's own session, its children included."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def child(options: argparse.Namespace, every: Sequence[Experiment]) -> int:
    """Run one experiment in this process; its facts are written as it goes."""
    (experiment,) = [each for each in every if each.name == options.child]
    folder = options.out / "work" / experiment.name
    context = Context(
        device=options.device, work=folder, shared=options.out / "work",
        answer=folder / "answer.json", deadline=time.monotonic() + options.seconds - 2,
        options=dict(each.split("=", 1) for each in options.option),
    )  # fmt: skip
    try:
        experiment.run(context)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def main() -> int:
    """Run the spike; 0 when every experiment was tried, whatever came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for cuda.json and cuda.md")
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument(
        "--limit",
        type=int,
        default=LIMIT,
        help="seconds for everything; more than the default gives each experiment more, too",
    )
    parser.add_argument("--lanes", type=int, help="experiments that may run at the same time")
    parser.add_argument("--only", default="", help="names of experiments, with commas; what they need is added")
    parser.add_argument("--pairs", type=int, default=5, help="fresh processes of each way")
    parser.add_argument("--other-python", help="an interpreter with another torch")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--option", action="append", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out = options.out.resolve()
    every = experiments()
    if options.child:
        return child(options, every)
    names = {each.name: each for each in every}
    wanted = [name for name in options.only.split(",") if name] or list(names)
    if unknown := sorted(set(wanted) - set(names)):
        parser.error(f"--only: there is no {', '.join(unknown)}; there are {', '.join(names)}")
    needed = {need for name in wanted for need in names[name].needs}
    if complaint := preflight(options.device):
        parser.error(complaint)
    options.out.mkdir(parents=True, exist_ok=True)
    if (options.out / "work").exists():
        parser.error(f"--out: {options.out} holds another run's work; name a new folder")
    further = {"pairs": str(options.pairs)}
    if options.other_python:
        further["other-python"] = options.other_python
    spike = Spike(
        out=options.out, device=options.device, options=further,
        deadline=time.monotonic() + options.limit, patience=max(1.0, options.limit / LIMIT),
    )  # fmt: skip
    lanes = options.lanes or max(1, min(4, (os.cpu_count() or 1) // 4))
    spike.run([each for each in every if each.name in {*wanted, *needed}], lanes=lanes)
    print(f"written: {options.out / 'cuda.json'}, {options.out / 'cuda.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
