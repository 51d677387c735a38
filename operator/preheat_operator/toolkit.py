"""`toolkit`, the first container of a compile pod: lays out what the user's image needs to compile, and its request.

The user's image knows nothing of Preheat; everything it runs comes from here, as sources. Nothing is compiled in vain: a store
that would refuse the result is found out first, and when a former Job finished the work and only its message was lost,
its answer is left in the place of the request's work.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from preheat_operator.api import names
from preheat_operator.containers import exits, sources, termination
from preheat_operator.containers.files import remove
from preheat_operator.containers.request import JobRequest, RequestError
from preheat_runtime.manifest import canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from preheat_operator.store.errors import StoreError

TENANT_MARKER: Final = b'{"formatVersion":1}'
FOR_ANY_USER: Final = 0o777
"""Mode of out/ in a pod: the user's image runs as whatever user it likes, and nobody else reaches the volume."""


def main() -> int:
    """Lay everything out; returns the exit code."""
    env = os.environ
    directory = Path(env.get(names.ENV_DIR) or "/opt/preheat")
    try:
        request = JobRequest.parse(env.get(names.ENV_REQUEST, ""))
        lay_out(directory, request)
        if refusal := _refusal(env):
            termination.write(termination.failed(refusal.reason, str(refusal)), env)
            _log("failed", reason=refusal.reason, message=str(refusal))
            return exits.REFUSED
        digest = _recovered(env, request)
        if digest is not None:
            _write(directory / "out" / "recovered.json", canonical_json({"digest": digest}))
        elif request.base is not None:
            _bring_base(env, request, directory)
    except RequestError as error:
        termination.write(termination.failed("Internal", str(error)), env)
        _log("failed", message=str(error))
        return exits.REQUEST
    except OSError as error:
        message = f"{directory} cannot be laid out: {error.strerror or error}"
        termination.write(termination.failed("Internal", message), env)
        _log("failed", message=message)
        return exits.INTERNAL
    _log("ready", recovered=digest, targets=len(request.targets))
    return exits.OK


def lay_out(directory: Path, request: JobRequest, *, out_mode: int = FOR_ANY_USER) -> None:
    """Write toolkit/, request.json and an empty out/. May run again in a pod whose containers are restarted."""
    toolkit = directory / "toolkit"
    remove(toolkit)
    sources.write_toolkit(toolkit)
    _write(directory / "request.json", canonical_json(request.raw))
    out = directory / "out"
    out.mkdir(exist_ok=True)
    out.chmod(out_mode)


def _refusal(env: Mapping[str, str]) -> StoreError | None:
    """Why `publish` will not be let in, None when it will, or when that cannot be known now.

    The only sure sign is to write: reading is also refused for what is not there, and may be allowed where writing is not.
    """
    from preheat_operator.store.client import make_client
    from preheat_operator.store.config import StoreConfig
    from preheat_operator.store.errors import Retry, StoreError
    from preheat_operator.store.keys import Keys
    from preheat_operator.store.objects import ObjectStore

    try:
        config = StoreConfig.from_env(env)
        store = ObjectStore(make_client(config, connections=1), bucket=config.bucket)
        digest = hashlib.sha256(TENANT_MARKER).hexdigest()
        store.put(Keys(config.tenant).tenant_marker, TENANT_MARKER, sha256=digest, only_if_absent=True)
    except StoreError as error:
        if error.retry is Retry.NEVER:
            return error
        # It may be back long before there is something to publish.
        _log("store not reached", reason=error.reason, message=str(error))
    return None


def _recovered(env: Mapping[str, str], request: JobRequest) -> str | None:
    """Return the digest a former Job published for this request, None when there is none that can be used.

    A store that cannot be asked now costs a compile, not the Job: `publish` will ask again.
    """
    uid = env.get(names.ENV_RECOVER_JOB, "").strip()
    if not uid:
        return None
    from preheat_operator.containers.recovery import recover
    from preheat_operator.store.client import make_client
    from preheat_operator.store.config import StoreConfig
    from preheat_operator.store.errors import StoreError
    from preheat_operator.store.keys import Keys, is_job_uid
    from preheat_operator.store.objects import ObjectStore
    from preheat_operator.store.publishing import Publisher
    from preheat_runtime.manifest import digest_of

    if not is_job_uid(uid):
        raise RequestError(f"PREHEAT_RECOVER_JOB: {uid[:80]!r} is no uid")
    try:
        config = StoreConfig.from_env(env)
        store = ObjectStore(make_client(config, connections=5, patient=True), bucket=config.bucket)
        keys = Keys(config.tenant)
        manifest = recover(store, keys, job_uid=uid, request=request)
        if manifest is None:
            return None
        with Publisher(store, keys) as publisher:
            publisher.require_pieces(manifest)
    except StoreError as error:
        _log("not recovered", job=uid, reason=error.reason, message=str(error))
        return None
    return digest_of(manifest.to_bytes())


def _bring_base(env: Mapping[str, str], request: JobRequest, directory: Path) -> None:
    """Lay out the revision whose artifacts may be carried over. Without it everything is compiled, which is right, too."""
    from preheat_operator.containers import former
    from preheat_operator.store.client import make_client
    from preheat_operator.store.config import StoreConfig
    from preheat_operator.store.errors import StoreError
    from preheat_operator.store.fetching import WORKERS
    from preheat_operator.store.keys import Keys
    from preheat_operator.store.objects import ObjectStore

    try:
        config = StoreConfig.from_env(env)
        store = ObjectStore(make_client(config, connections=WORKERS + 1), bucket=config.bucket)
        brought = former.bring(store, Keys(config.tenant), request=request, directory=directory)
    except StoreError as error:
        _log("no earlier revision", base=request.base, reason=error.reason, message=str(error))
    else:
        _log("earlier revision", base=request.base, targets=brought)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o644)


def _log(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"component": "preheat-toolkit", "event": event, **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
