"""The compile container's main program: one subprocess and one verdict for each target.

Why it exists: whatever one bucket does (crash, hang, eat all memory, fill the disk) must cost that bucket alone, and
whatever happens to the container must leave a termination message that says what was running. So the driver itself
does nothing that can go wrong: it imports neither torch nor the user's code, and only starts, waits, and writes down.

Exit codes: 0 every target has a verdict; 64 the request cannot be read; 65 no usable torch; 66 a fault of the driver;
137 the first import of torch was killed; 143 told to stop (129, 130: by its terminal).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preheat_compiler import features, ingredients, parent, processes
from preheat_compiler.faults import REMEDIES, describe, print_traceback
from preheat_compiler.fields import RequestError
from preheat_compiler.ledger import Ledger
from preheat_compiler.processes import EXIT_DISK_FULL, SCRATCH
from preheat_compiler.progress import TERMINATION_LOG, Termination, complain, say
from preheat_compiler.report import LOADING, LOADING_AGAIN, LOADING_TO_BIND, RUNNING, Report, write_atomically
from preheat_compiler.request import Request, read_request
from preheat_compiler.verdict import TargetResult
from preheat_runtime.processors import processors
from preheat_runtime.redaction import printable, redact
from preheat_runtime.variables import ENV_DISABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_DONE, EXIT_REQUEST, EXIT_TORCH, EXIT_INTERNAL, EXIT_KILLED = 0, 64, 65, 66, 137
#: To be told to stop; the exit code is 128 and the number.
_TOLD = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


#: Of the stages in which code of the user's runs and hardly any of ours: the reason when it ends the process; what it is; what to do.
_OF_THE_USER = {
    **dict.fromkeys(
        (LOADING, LOADING_AGAIN, LOADING_TO_BIND),
        (
            "FactoryFailed",
            "torch.factory, or what it imports,",
            "It must return the model and leave the process running, also when it is called again.",
        ),
    ),
    RUNNING: (
        "InputsRefused",
        "the model's own code",
        "It must answer the inputs of the bucket and leave the process running.",
    ),
}


class _TorchError(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def main(argv: Sequence[str], *, launcher: str) -> int:
    """Compile every target of the request; returns the exit code."""
    parser = argparse.ArgumentParser(prog="compile.py", description="Compile the targets of a request.")
    parser.add_argument("--request", type=Path, required=True, help="request.json")
    parser.add_argument("--out", type=Path, required=True, help="folder for result.json and artifacts")
    parser.add_argument(
        "--termination-log", type=Path, default=TERMINATION_LOG, help="where the container's last words go"
    )
    parser.add_argument(
        "--attended", action="store_true", help="a person has asked for this run: what is Failed is tried again"
    )
    parser.add_argument("--parent", type=int, help="the process that ends us with it; none in a container")
    options = parser.parse_args(argv)
    termination = Termination(options.termination_log)
    for number in _TOLD:
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:  # nohup, a shell's background
            signal.signal(number, _stop)
    if options.parent is not None:
        parent.end_with(options.parent, signal.SIGTERM)
    # `publish` runs as another user than this image's.
    os.umask(0o022)
    try:
        if (options.out / "recovered.json").exists():
            say("a former attempt's result was found in the store: nothing to compile")
            termination.running(None, [])
            return EXIT_DONE
        request = read_request(options.request)
        ledger = Ledger(options.out.resolve(), request, around=ingredients.around(), attended=options.attended)
        _compile_all(ledger, request, options.request.resolve(), options.out.resolve(), Path(launcher), termination)
    except RequestError as error:
        return _fault(termination, EXIT_REQUEST, "Internal", str(error))
    except _TorchError as error:
        # What was killed may do better next time; nothing else would.
        return _fault(termination, EXIT_KILLED if error.reason == "Killed" else EXIT_TORCH, error.reason, str(error))
    except Exception as error:
        print_traceback()
        return _fault(termination, EXIT_INTERNAL, "Internal", f"the compile driver failed: {describe(error)}")
    return EXIT_DONE


def time_limit(left: float, waiting: int) -> float:
    """Seconds the next of `waiting` targets may take of the `left` ones.

    The last one may take all. Before that, half of an even share is held back for each of those behind it: a target
    that hangs costs the others time, but never all of it.
    """
    return max(left, 0.0) * (1 - 0.5 * (waiting - 1) / waiting)


def _compile_all(
    ledger: Ledger, request: Request, request_file: Path, out: Path, launcher: Path, termination: Termination
) -> None:
    deadline = time.monotonic() + request.timeout_seconds
    results = {target: ledger.result(*target) for target in request.targets}
    waiting = [target for target in request.targets if results[target] is None]
    done = [f"{module}/{bucket}" for module, bucket in request.targets if (module, bucket) not in waiting]
    termination.running(None, done)
    if done:
        say(f"already compiled: {', '.join(done)}")
    while waiting:
        module, bucket = waiting[0]
        name = f"{module}/{bucket}"
        termination.running(name, done)
        result = ledger.killed_before(module, bucket)
        if result is None:
            limit = time_limit(deadline - time.monotonic(), len(waiting))
            say(f"{name}: target {len(done) + 1} of {len(request.targets)}, at most {limit:.0f} s")
            result = _compile_one(ledger, request, request_file, launcher, module, bucket, limit, first=not done)
        say(f"{name}: {result.verdict} ({result.reason}): {result.message}")
        results[waiting.pop(0)] = result
        done.append(name)
    content = {
        "formatVersion": 1,
        "imagePythonPath": printable(os.environ.get("PYTHONPATH", "")) or None,
        "python": platform.python_version(),
        "targets": [result.to_json() for result in results.values() if result is not None],
    }
    write_atomically(out / "result.json", json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    ledger.clean()
    termination.running(None, done)


def _check_torch(work: Path, ended: processes.Ended, *, first: bool) -> None:
    """Raises _TorchError when what a target's process met is no fault of this target: all of them would meet it."""
    try:
        found = json.loads((work / features.FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # Where another could import torch, this one met something of its own; too little time has a field to raise;
        # and 1 is an exception that nobody caught, which is a fault of ours.
        if ended.timed_out or not first or ended.code == 1:
            return
        raise _without_answer(ended) from None
    if found["reason"] is not None:
        raise _TorchError(found["reason"], found["message"])


def _without_answer(ended: processes.Ended) -> _TorchError:
    """What is said of a process that ended before it could tell of any torch: only a crash is torch's own fault."""
    if ended.out_of_memory:
        return _TorchError("OutOfMemory", f"importing torch was killed for memory. {REMEDIES['OutOfMemory']}")
    if ended.killed:
        return _TorchError("Killed", "importing torch was killed, not for memory as far as can be seen")
    if ended.code == EXIT_DISK_FULL:
        return _TorchError("DiskFull", f"the disk ran full while importing torch. {REMEDIES['DiskFull']}")
    return _TorchError("TorchUnsupported", f"importing torch {ended.how}; see the log of container compile")


def _compile_one(
    ledger: Ledger, request: Request, request_file: Path, launcher: Path, module: str, bucket: str, limit: float,
    *, first: bool,
) -> TargetResult:  # fmt: skip
    work = ledger.begin(module, bucket)
    arguments = ["--request", str(request_file), "--work", str(work), "--module", module, "--bucket", bucket]
    arguments += ["--seconds", f"{limit:.1f}"]
    try:
        ended = processes.run(launcher, "target", arguments, seconds=limit, environment=target_environment(work))
    except (SystemExit, KeyboardInterrupt):
        ledger.stopped(module, bucket)
        raise
    _check_torch(work, ended, first=first)
    result = ledger.verdict(module, bucket)
    if result is None:
        result = _unfinished(module, bucket, ended, ledger.stage(module, bucket))
        try:
            Report(target=result.name).write(work / "artifact", result, hardware=request.hardware)
        except OSError as error:
            say(f"{result.name}: no report: {error}")
        else:
            result = TargetResult.from_json({**result.to_json(), "files": ["report.json"]})
    return ledger.finish(result)


def _unfinished(module: str, bucket: str, ended: processes.Ended, stage: str) -> TargetResult:
    """The verdict on a target whose process ended without one."""
    while_ = f"while {stage}" if stage else "before it began"
    if ended.timed_out:
        reason = "Timeout"
        message = f"it was ended after {ended.seconds:.0f} s {while_}. "
        message += "Raise spec.compile.timeoutSeconds, or use fewer buckets."
    elif ended.out_of_memory:
        reason, message = "OutOfMemory", f"the process was killed for memory {while_}. {REMEDIES['OutOfMemory']}"
    elif ended.killed:
        reason = "Killed"
        message = (
            f"the process was killed {while_}, not for memory as far as can be seen. See the log of container compile."
        )
    elif ended.code == EXIT_DISK_FULL:
        reason, message = "DiskFull", f"the disk ran full {while_}. {REMEDIES['DiskFull']}"
    elif ended.code < 0:
        reason = "CompileFailed"
        message = f"the process crashed ({ended.how}) {while_}. See the log of container compile."
    elif stage in _OF_THE_USER:
        # What is raised there has a verdict; so it was os._exit, or a library's exit.
        reason, what, must = _OF_THE_USER[stage]
        message = f"the process {ended.how} while {stage}: {what} ended it. {must}"
    else:
        reason = "Internal"
        message = f"the process {ended.how} {while_} without a verdict. See the log of container compile."
    return TargetResult(module=module, bucket=bucket, verdict="Failed", reason=reason, message=redact(message))


def target_environment(work: Path) -> dict[str, str]:
    """The user's environment, with caches and temporary files of the target's own, and no Preheat in it.

    The user's TMPDIR is left out on purpose: what compilers leave there must not reach the next target.
    """
    for folder in SCRATCH.values():
        (work / folder).mkdir(parents=True, exist_ok=True)
    return {
        **os.environ,
        **{name: str(work / folder) for name, folder in SCRATCH.items()},
        "TORCHINDUCTOR_COMPILE_THREADS": str(processors()),
        ENV_DISABLE: "1",
    }


def _fault(termination: Termination, code: int, reason: str, message: str) -> int:
    complain(f"{reason}: {message}")
    termination.fault(reason, message)
    return code


def _stop(number: int, frame: Any) -> None:
    del frame
    # A terminal tells all of us, and whoever started us passes it on: nothing is to interrupt the ending of the target.
    for each in _TOLD:
        signal.signal(each, signal.SIG_IGN)
    # The termination message stays as it is: it says what was running.
    sys.exit(128 + number)
