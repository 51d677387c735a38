"""`preheat-fetch`, init container of a serving pod: brings the revision of its image, and never stands in the way.

A pod is started by people who want it to run; Preheat may make it faster and must not make it fail. So whatever
happens the exit code is 0, unless the pod was told to fail rather than start without (whenMissing Fail); `site/` (which alone makes `PYTHONPATH` harmless) is written first, and what was done or
not done is said in `fetch.json` and one log line. A kill for memory is survived twice: the work is done in a child, and
when the whole container is killed, the marker it leaves behind makes the next attempt give up at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.containers import sources, supervised, termination
from preheat_operator.containers.files import remove
from preheat_operator.containers.receipt import FAILED, FETCHED, NO_REVISION, Receipt
from preheat_runtime.manifest import is_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from preheat_operator.store.interface import Objects
    from preheat_operator.store.keys import Keys

    OpenStore = Callable[[], tuple[Objects, Keys]]

DEFAULT_TIMEOUT_SECONDS: Final = 60
MAX_TIMEOUT_SECONDS: Final = 3600
_NONE = ("", names.MANIFEST_NONE, names.MANIFEST_PENDING)
#: Exit code under whenMissing Fail.
MISSING: Final = 69
_TERMINATION_LOG: Final = Path("/dev/termination-log")


@dataclass(frozen=True)
class Answer:
    """What a fetch came to: `outcome` and `reason` as in fetch.json."""

    outcome: str
    reason: str = ""
    message: str = ""
    bytes: int = 0
    again: bool = True
    """Whether another attempt in this pod may try."""
    stopped: bool = False
    """Whether it ended because this process was asked to stop."""


def main() -> int:
    """Fetch, write the receipt and the log line; answers 0, or `MISSING` where the pod must not start without."""
    started = time.monotonic()
    env = os.environ
    directory = Path(env.get(names.ENV_DIR) or "/opt/preheat")
    manifest = env.get(names.ENV_MANIFEST, "").strip()
    try:
        answer = fetch(directory, manifest, lambda: _opened(env), started + _timeout(env))
    except Exception as error:
        answer = _unexpected(error)
    receipt = Receipt(
        outcome=answer.outcome,
        reason=answer.reason,
        message=answer.message,
        manifest=manifest if is_digest(manifest) else None,
        bytes=answer.bytes,
        seconds=time.monotonic() - started,
    )
    try:
        receipt.write(directory)
        # Only now: until the receipt is there, this attempt has not answered. After a kill the mark stays: the kubelet
        # runs an init container again when the kernel killed anything in it for memory, also when it exited with 0.
        if answer.again:
            (directory / ".attempt").unlink(missing_ok=True)
    except OSError as error:
        sys.stderr.write(f"preheat-fetch: fetch.json cannot be written: {error}\n")
    with contextlib.suppress(OSError):  # the receipt is what the pod needs
        termination.note(receipt.termination_message().encode(), env)
    sys.stdout.write(receipt.log_line(env) + "\n")
    sys.stdout.flush()
    if env.get(names.ENV_WHEN_MISSING) != "Fail" or answer.outcome == FETCHED:
        return 0
    _tell_kubernetes(f"whenMissing is Fail: {answer.reason or answer.outcome}: {answer.message}")
    return MISSING


def _tell_kubernetes(why: str) -> None:
    """Say why the pod does not start where `kubectl describe` shows it; the log has it too."""
    with contextlib.suppress(OSError):
        if _TERMINATION_LOG.exists():
            _TERMINATION_LOG.write_text(why[:1024], encoding="utf-8")


def fetch(directory: Path, manifest: str, open_store: OpenStore, deadline: float) -> Answer:
    """Make `directory` what docs/contracts.md, 3 says, but for fetch.json; `deadline` is in monotonic seconds.

    The store is opened in a child process, which this one outlives. Raises OSError when the folder cannot be written.
    """
    incoming, revision, attempt = directory / ".incoming", directory / "revision", directory / ".attempt"
    killed_before = attempt.exists()
    remove(incoming)
    try:
        incoming.mkdir(mode=0o700)
        sources.write_site(incoming / "site")
        remove(directory / "site")
        (incoming / "site").rename(directory / "site")
        if manifest in _NONE:
            answer = Answer(NO_REVISION, message="no revision is ready for this image")
        elif not is_digest(manifest):
            answer = Answer(
                FAILED, "UnknownFormat", f"the annotation preheat.dev/manifest is no digest: {manifest[:80]!r}"
            )
        elif killed_before:
            answer = _killed("a former attempt in this pod was killed; most often for memory")
        else:
            attempt.touch()
            answer = _supervise(manifest, open_store, incoming, revision, deadline)
        if answer.outcome == FETCHED and (incoming / "revision").exists():
            remove(revision)
            (incoming / "revision").rename(revision)
        elif answer.outcome != FETCHED:
            remove(revision)
        with contextlib.suppress(OSError):  # it only saves time
            sources.add_bytecode(directory / "site", revision)
    except BaseException:
        # Whatever went wrong: a revision is there only together with a receipt that says Fetched.
        remove(revision)
        raise
    finally:
        remove(incoming)
    return answer


def _supervise(digest: str, open_store: OpenStore, incoming: Path, revision: Path, deadline: float) -> Answer:
    # The child gives up a little earlier, so that its own words are heard.
    child_deadline = deadline - min(1.0, (deadline - time.monotonic()) / 10)

    def work() -> dict[str, Any]:
        return _work(digest, open_store, incoming / "revision", revision, child_deadline)

    ended = supervised.run(work, deadline=deadline)
    if ended.answer is not None:
        return Answer(**ended.answer)
    if ended.timed_out:
        return Answer(FAILED, "DeadlineExceeded", "the deadline (PREHEAT_FETCH_TIMEOUT_SECONDS) passed")
    if ended.stopped:
        return Answer(FAILED, "Killed", "the container was asked to stop", stopped=True)
    if ended.signal:
        return _killed(f"the worker was ended by signal {ended.signal}; most often for memory")
    return Answer(FAILED, "Internal", f"the worker ended with status {ended.status}; its standard error says why")


def _work(digest: str, open_store: OpenStore, into: Path, present: Path, deadline: float) -> dict[str, Any]:
    """Run in the child: everything that needs memory, the network or trust."""
    from preheat_operator.containers.fit import Machine
    from preheat_operator.containers.revision import bring
    from preheat_operator.store.errors import StoreError
    from preheat_operator.store.fetching import Deadline

    try:
        brought = bring(
            digest=digest, open_store=open_store, into=into, present=present, machine=Machine.here(),
            deadline=Deadline(deadline),
        )  # fmt: skip
    except StoreError as error:
        return {"outcome": FAILED, "reason": error.reason, "message": str(error)}
    except OSError as error:
        return asdict(_unexpected(error))
    except MemoryError:
        return asdict(_killed("there was not enough memory"))
    how = "already here, verified again" if brought.reused else "verified"
    message = f"{brought.targets} of {brought.of_targets} targets, {how}"
    return {"outcome": FETCHED, "message": message, "bytes": brought.bytes}


def _opened(env: Mapping[str, str]) -> tuple[Objects, Keys]:
    # The S3 library is loaded in the child alone.
    from preheat_operator.containers.revision import opened

    return opened(env)


def _killed(message: str) -> Answer:
    return Answer(FAILED, "Killed", message, again=False)


def _unexpected(error: Exception) -> Answer:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Answer(FAILED, "NoSpace", "the volume is full")
    return Answer(FAILED, "Internal", f"{type(error).__name__}: {error}")


def _timeout(env: Mapping[str, str]) -> float:
    text = env.get(names.ENV_FETCH_TIMEOUT, "").strip()
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else DEFAULT_TIMEOUT_SECONDS
    return min(max(seconds, 1), MAX_TIMEOUT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
