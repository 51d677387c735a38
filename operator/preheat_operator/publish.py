"""`publish`, last container of a compile pod: puts what the user's image made into the store, reports its digest.

It stands between code that nobody vouches for and the store that pods load from. It holds the credentials the user's
image never sees, believes the files that image left only after checking them, and says what it published through the
Kubernetes API (the termination message), so that writing to the bucket alone makes no pod load anything.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from preheat_operator.api import names
from preheat_operator.containers import exits, former, termination
from preheat_operator.containers.merging import merge
from preheat_operator.containers.recovery import recover
from preheat_operator.containers.request import JobRequest, RequestError
from preheat_operator.containers.result import MAX_RESULT_BYTES, Result, ResultError, parse_result
from preheat_operator.containers.untrusted import UntrustedFileError, UntrustedFolder, read_whole
from preheat_operator.store.client import make_client
from preheat_operator.store.config import StoreConfig
from preheat_operator.store.errors import Retry, StoreError
from preheat_operator.store.keys import Keys, is_job_uid
from preheat_operator.store.manifests import read_manifest
from preheat_operator.store.objects import ObjectStore
from preheat_operator.store.publishing import WORKERS, PendingFile, Publisher
from preheat_runtime.manifest import MAX_FILE_BYTES, MAX_FILES_PER_TARGET, Manifest, is_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from preheat_operator.containers.result import TargetResult
    from preheat_runtime.manifest import Target

PATIENCE_SECONDS: Final = 120
"""How long an unreachable store is tried again before the pod fails: its successor would have to compile anew."""
MAX_PARTS: Final = 64
T = TypeVar("T")
RESULT: Final = "result.json"
RENDERED: Final = frozenset({"report.csv", "report.html"})


def main(*, patience: float = PATIENCE_SECONDS) -> int:
    """Publish and report; returns the exit code of docs/contracts.md, 4."""
    env = os.environ
    try:
        message, code = patiently(lambda: publish(env), patience=patience, retrying=_log_retry), exits.OK
    except RequestError as error:
        message, code = termination.failed("Internal", str(error)), exits.REQUEST
    except (ResultError, UntrustedFileError, FileNotFoundError) as error:
        message, code = (
            termination.failed("Internal", f"the compile step left no usable result: {error}"),
            exits.INTERNAL,
        )
    except StoreError as error:
        message, code = termination.failed(error.reason, str(error)), _exit_code(error)
    except Exception as error:
        traceback.print_exc()
        message, code = termination.failed("Internal", f"{type(error).__name__}: {error}"), exits.INTERNAL
    termination.write(message, env)
    _log("done", code=code, answer=json.loads(message))
    return code


def patiently(attempt: Callable[[], T], *, patience: float, retrying: Callable[[StoreError, float], None]) -> T:
    """Return what `attempt` returns, tried again for `patience` seconds while the store cannot be reached."""
    until = time.monotonic() + patience
    pause = 1.0
    while True:
        try:
            return attempt()
        except StoreError as error:
            if error.retry is not Retry.LATER or time.monotonic() + pause > until:
                raise
            retrying(error, pause)
            time.sleep(pause)
            pause = min(pause * 2, 30)


def publish(env: Mapping[str, str]) -> bytes:
    """Publish what this pod was made for, once; returns the termination message.

    Raises RequestError, ResultError, UntrustedFileError, FileNotFoundError (no result) or StoreError.
    """
    started = time.monotonic()
    request = JobRequest.parse(env.get(names.ENV_REQUEST, ""))
    namespace = env.get(names.ENV_NAMESPACE, "")
    if namespace and namespace != request.namespace:
        raise RequestError(f"PREHEAT_REQUEST.namespace: {request.namespace!r} is not this pod's, {namespace!r}")
    job_uid, recover_job, parts = _job_uid(env, names.ENV_JOB_UID), _job_uid(env, names.ENV_RECOVER_JOB), _parts(env)
    if not job_uid:
        raise RequestError("PREHEAT_JOB_UID: is not set; it is the label batch.kubernetes.io/controller-uid of the pod")
    config = StoreConfig.from_env(env)
    store = ObjectStore(make_client(config, connections=WORKERS + 1, patient=True), bucket=config.bucket)
    keys = Keys(config.tenant)
    out = Path(env.get(names.ENV_DIR) or "/opt/preheat") / "out"
    with Publisher(store, keys) as publisher:
        own = None
        if request.targets:
            own = compiled(out, request, publisher)
            if own is None and recover_job:
                own = recover(store, keys, job_uid=recover_job, request=request)
            if own is None:
                raise FileNotFoundError(f"{RESULT}: is not there, and no former Job's result was found")
        manifest = merge(request=request, own=own, parts=[read_manifest(store, keys, digest)[1] for digest in parts])
        digest = publisher.publish(manifest, job_uid=job_uid)
    carried = _carried(manifest, request, store, keys)
    _log("published", digest=digest, bytesSent=publisher.bytes_sent, seconds=f"{time.monotonic() - started:.3f}")
    wanted = {(*pair, request.hardware) for pair in request.targets}
    answered = [target for target in manifest.targets if target.key in wanted]
    return termination.published(digest, manifest.image_python_path, answered, carried=carried)


def _carried(manifest: Manifest, request: JobRequest, store: ObjectStore, keys: Keys) -> int:
    """How many targets are those of the request's base. It is told, and decides nothing: a store that cannot say is no fault."""
    if request.base is None:
        return 0
    try:
        return former.carried(manifest, read_manifest(store, keys, request.base)[1], request)
    except StoreError as error:
        _log("not counted", base=request.base, reason=error.reason, message=str(error))
        return 0


def log_unrendered(target: str, why: str) -> None:
    """A report that could not be made into a page, as a line of the container's log."""
    _log("no report", target=target, error=why)


def compiled(
    out: Path, request: JobRequest, publisher: Publisher, *, unrendered: Callable[[str, str], None] = log_unrendered
) -> Manifest | None:
    """Send the files of out/result.json and return the manifest they make; None when there is no result.

    `unrendered` is told of targets whose report could not be made into a page, and why; they go without.

    Raises ResultError, UntrustedFileError or StoreError.
    """
    try:
        root = UntrustedFolder(out)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UntrustedFileError(f"out: is no plain folder ({error.strerror})") from None
    with root:
        try:
            data = read_whole(root, RESULT, limit=MAX_RESULT_BYTES)
        except FileNotFoundError:
            return None
        result = parse_result(data, request)
        targets = _send(root, result, publisher, unrendered)
    return Manifest(
        namespace=request.namespace,
        name=request.name,
        uid=request.uid,
        revision=request.revision,
        image=request.image,
        image_python_path=result.image_python_path,
        targets=tuple(sorted(targets, key=lambda target: target.key)),
    )


def _send(
    root: UntrustedFolder, result: Result, publisher: Publisher, unrendered: Callable[[str, str], None]
) -> list[Target]:
    """Send every file, all pieces side by side, and return the targets complete with them."""
    pending: list[tuple[Target, list[PendingFile]]] = []
    for each in result.targets:
        files = []
        rendered = _rendered(root, each, unrendered)
        for path, source_path in each.sources.items():
            # What people open in a browser comes from here or not at all.
            if path in RENDERED:
                continue
            with root.open(source_path, limit=MAX_FILE_BYTES) as source:
                files.append(publisher.send_file(path, source.read))
        files += [publisher.send_file(path, io.BytesIO(data).read) for path, data in rendered.items()]
        pending.append((each.target, sorted(files, key=lambda file: file.path)))
    return [replace(target, files=tuple(file.wait() for file in files)) for target, files in pending]


def _rendered(root: UntrustedFolder, result: TargetResult, unrendered: Callable[[str, str], None]) -> dict[str, bytes]:
    """The report for people, by file name; none when it cannot be made, which must never cost the target."""
    source_path = result.sources.get("report.json")
    in_the_way = any(path.partition("/")[0] in RENDERED and "/" in path for path in result.sources)
    if source_path is None or in_the_way or len(result.sources) + len(RENDERED) > MAX_FILES_PER_TARGET:
        return {}
    try:
        # Here and not above: plots are not worth a container that does not start.
        from preheat_operator import report

        return report.render(read_whole(root, source_path, limit=report.MAX_REPORT_BYTES))
    except Exception as error:
        unrendered("/".join(result.target.key), f"{type(error).__name__}: {error}"[:500])
        return {}


def _job_uid(env: Mapping[str, str], name: str) -> str:
    uid = env.get(name, "").strip()
    if uid and not is_job_uid(uid):
        raise RequestError(f"{name}: {uid[:80]!r} is no uid")
    return uid


def _parts(env: Mapping[str, str]) -> list[str]:
    parts = [part.strip() for part in env.get(names.ENV_PARTS, "").split(",") if part.strip()]
    if wrong := [part for part in parts if not is_digest(part)]:
        raise RequestError(f"PREHEAT_PARTS: {wrong[0][:80]!r} is no digest")
    if len(parts) > MAX_PARTS:
        raise RequestError(f"PREHEAT_PARTS: {len(parts)} are more than {MAX_PARTS}")
    return list(dict.fromkeys(parts))


def _exit_code(error: StoreError) -> int:
    if error.retry is Retry.LATER:
        return exits.RETRY
    return exits.REFUSED if error.reason in ("StoreDenied", "StoreCredentialsMissing") else exits.INTERNAL


def _log_retry(error: StoreError, pause: float) -> None:
    _log("retrying", reason=error.reason, message=str(error), seconds=pause)


def _log(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"component": "preheat-publish", "event": event, **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
