"""`preheat compile`: what a compile Job does, on this machine.

The same steps in the same order with the same code: the controller's plan makes the request, the toolkit lays out
sources, the compile driver runs as a process of the user's Python, and what it leaves is published as if it were
hostile, manifest last. Only then the name points to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.cli import driver, exits
from preheat_operator.cli.document import LOCAL_UID, DocumentError, read_document
from preheat_operator.cli.errors import CommandError, exit_code
from preheat_operator.cli.output import delivered, name, say, size, speedup, table, write, write_json
from preheat_operator.cli.private import PRIVATE, is_private
from preheat_operator.cli.stores import StoreLocation, location_of
from preheat_operator.containers.fit import SERVED
from preheat_operator.containers.request import MAX_REQUEST_BYTES, JobRequest, RequestError
from preheat_operator.containers.result import ResultError
from preheat_operator.containers.untrusted import UntrustedFileError
from preheat_operator.plan import revision as revisions
from preheat_operator.plan.jobs import JobKey, compile_request
from preheat_operator.plan.termination import TargetName
from preheat_operator.publish import PATIENCE_SECONDS, compiled, patiently
from preheat_operator.store.directory import FULL
from preheat_operator.store.errors import ManifestCorruptError, StoreError, UnknownFormatError
from preheat_operator.store.pointers import Entry, read_pointer, update_pointer, with_newest
from preheat_operator.store.publishing import Publisher
from preheat_operator.toolkit import TENANT_MARKER, lay_out

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.hardware import Hardware
    from preheat_operator.store.interface import Objects
    from preheat_operator.store.keys import Keys
    from preheat_runtime.manifest import Manifest

_MAX_YAML_BYTES: Final = 1024 * 1024


def main(options: argparse.Namespace) -> int:
    """Compile and publish; returns the exit code. Raises CommandError or StoreError."""
    model = _document(options)
    request = _request(model, _hardware(model, options.hardware), image=options.image, timeout=options.timeout)
    location = location_of(options, namespace=model.metadata.namespace)
    if location is None:
        raise CommandError("--store: is required")
    store, keys = location.open(writing=True)
    # Nothing is compiled in vain: a store that would refuse the result is found out first.
    marker = hashlib.sha256(TENANT_MARKER).hexdigest()
    store.put(keys.tenant_marker, TENANT_MARKER, sha256=marker, only_if_absent=True)
    _require_usable_pointer(store, keys, request.name, location)
    with _work_folder(options.work) as folder:
        try:
            lay_out(folder, request, out_mode=PRIVATE)
        except OSError as error:
            raise _not_laid_out(folder, error, named=options.work is not None) from None
        driver.run(folder, python=options.python)
        digest, manifest = publish_result(folder / "out", request, store, keys)
    if not _served(manifest):
        say(f"nothing of it can be served, so {manifest.name} points to what it pointed to before")
    _show(digest, manifest, location, as_json=options.output == "json")
    return exits.DIFFERENT if any(target.verdict == "Failed" for target in manifest.targets) else exits.OK


def _require_usable_pointer(store: Objects, keys: Keys, model: str, location: StoreLocation) -> None:
    """Refuse a pointer that the new manifest could not be added to; other entries may be told from it by a person only."""
    try:
        read_pointer(store, keys, model)
    except ManifestCorruptError as error:
        said = f"{error.reason}: {error}. Remove {keys.name(model)} from {location} and compile again: manifests stay"
        raise CommandError(said, code=exit_code(error)) from None
    except UnknownFormatError as error:
        said = f"{error.reason}: {error}. A newer Preheat wrote it to {location}: use that one, or another store"
        raise CommandError(said, code=exit_code(error)) from None


def _document(options: argparse.Namespace) -> CompiledModel:
    source = "standard input" if options.file == "-" else options.file
    if options.file == "-" and sys.stdin is None:
        raise CommandError("standard input: is closed")
    try:
        with sys.stdin.buffer if options.file == "-" else Path(options.file).open("rb") as file:
            data = file.read(_MAX_YAML_BYTES + 1)
        if len(data) > _MAX_YAML_BYTES:
            raise CommandError(f"{source}: is larger than {_MAX_YAML_BYTES} bytes")
        return read_document(data.decode(), namespace=options.namespace)
    except OSError as error:
        raise CommandError(f"{source}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{source}: is not UTF-8 text") from None
    except DocumentError as error:
        raise CommandError("\n".join(f"{source}: {problem}" for problem in error.problems)) from None


def _hardware(model: CompiledModel, wanted: str | None) -> Hardware:
    profiles = {profile.name: profile for profile in model.spec.hardware}
    known = ", ".join(profiles)
    if wanted is None:
        if len(profiles) > 1:
            raise CommandError(f"--hardware: name the profile that this machine is: {known}")
        return model.spec.hardware[0]
    if wanted not in profiles:
        raise CommandError(f"--hardware: {wanted!r} is no profile of {model.metadata.name}: {known}")
    return profiles[wanted]


def _request(model: CompiledModel, hardware: Hardware, *, image: str, timeout: int | None) -> JobRequest:
    if timeout is not None:
        settings = model.spec.compile.model_copy(update={"timeout_seconds": timeout})
        model = model.model_copy(update={"spec": model.spec.model_copy(update={"compile": settings})})
    want = revisions.wanted(model=model.metadata.name, spec=model.spec, image=image)
    key = JobKey(uid=LOCAL_UID, want=want, hardware=hardware.name, attempt=0)
    targets = [TargetName(module=m.name, bucket=b.name) for m in model.spec.torch.modules for b in m.buckets]
    raw = compile_request(model=model, key=key, hardware=hardware, targets=targets)
    try:
        return JobRequest.parse(json.dumps(raw))
    except RequestError as error:
        raise CommandError(
            f"--image or the CompiledModel cannot be asked for (at most {MAX_REQUEST_BYTES} bytes): {error}"
        ) from None


@contextlib.contextmanager
def _work_folder(kept: Path | None) -> Iterator[Path]:
    """The folder of a compile; a temporary one stays when the result could not be published, for another attempt."""
    if kept is not None:
        yield _kept_folder(kept)
        return
    try:
        _require_nameable(Path(tempfile.gettempdir()).absolute(), "TMPDIR")
        folder = Path(tempfile.mkdtemp(prefix="preheat-compile-"))
    except OSError as error:
        raise _no_temporary_folder(error) from None
    try:
        yield folder
    except StoreError:
        say(f"what was compiled is in {folder}: repeat the command with --work {folder} to publish it")
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _require_nameable(folder: Path, what: str) -> None:
    """The finished artifact is tried as a pod would load it, with a PYTHONPATH that leads into the folder."""
    if os.pathsep in str(folder):
        raise CommandError(
            f"{what}: PYTHONPATH cannot name {folder}, for the {os.pathsep!r} in it: name another folder"
        )


def _not_laid_out(folder: Path, error: OSError, *, named: bool) -> CommandError:
    if not named:
        return _no_temporary_folder(error)
    code = exits.REFUSED if error.errno in FULL else exits.USAGE
    return CommandError(f"--work: {folder} cannot be laid out: {error.strerror or error}", code=code)


def _no_temporary_folder(error: OSError) -> CommandError:
    said = f"no temporary folder can be made: {error.strerror or error}: TMPDIR or --work names one with room"
    return CommandError(said, code=exits.REFUSED)


def _kept_folder(kept: Path) -> Path:
    """The folder that `--work` names. Its result is published and loaded later, so it must be nobody else's."""
    try:
        kept.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        folder = kept.absolute()
        _require_nameable(folder, "--work")
        shared = next((each for each in (folder, folder / "out") if each.exists() and not is_private(each)), None)
    except OSError as error:
        raise CommandError(f"--work: {kept}: {error.strerror or error}") from None
    if shared is not None:
        raise CommandError(f"--work: others can write to {shared}, so nothing in it is published: name another folder")
    return folder


def publish_result(out: Path, request: JobRequest, store: Objects, keys: Keys) -> tuple[str, Manifest]:
    """Publish what the compile driver left in `out`, and let the name point to it; returns digest and manifest.

    Raises CommandError for a result that cannot be used, and StoreError; the digest of what is published was said then.
    """
    try:
        digest, manifest = patiently(
            lambda: _publish_once(out, request, store, keys), patience=PATIENCE_SECONDS, retrying=_say_retry
        )
    except (ResultError, UntrustedFileError) as error:
        raise CommandError(f"the compile step left no usable result: {error}", code=exits.INTERNAL) from None
    if _served(manifest):
        entry = Entry(image=manifest.image, hardware=request.hardware, revision=manifest.revision, digest=digest)
        try:
            patiently(
                lambda: update_pointer(store, keys, manifest.name, lambda entries: with_newest(entries, [entry])),
                patience=PATIENCE_SECONDS, retrying=_say_retry,
            )  # fmt: skip
        except StoreError:
            say(f"{manifest.revision} is {digest}, but {manifest.name} does not point to it")
            raise
    return digest, manifest


def _publish_once(out: Path, request: JobRequest, store: Objects, keys: Keys) -> tuple[str, Manifest]:
    with Publisher(store, keys) as publisher:
        manifest = compiled(out, request, publisher, unrendered=_say_unrendered)
        if manifest is None:
            raise CommandError("the compile step left no result.json", code=exits.INTERNAL)
        return publisher.publish(manifest, job_uid=None), manifest


def _served(manifest: Manifest) -> bool:
    return any(target.verdict in SERVED for target in manifest.targets)


def _say_unrendered(target: str, why: str) -> None:
    say(f"{target}: there is no report.html: {why}")


def _say_retry(error: StoreError, pause: float) -> None:
    say(f"{error.reason}: {error}; trying again in {pause:.0f} s")


def _show(digest: str, manifest: Manifest, location: StoreLocation, *, as_json: bool) -> None:
    _write_result(digest, manifest, location, as_json=as_json)
    if not delivered():
        # The digest cost a compile, and may be all there is to load it by.
        say(_where(digest, manifest, location))


def _where(digest: str, manifest: Manifest, location: StoreLocation) -> str:
    return f"{manifest.revision} is {digest} in {location}"


def _write_result(digest: str, manifest: Manifest, location: StoreLocation, *, as_json: bool) -> None:
    if as_json:
        write_json(_as_json(digest, manifest, location))
        return
    rows = [
        [name(t), t.verdict, t.reason, speedup(t) or "-", size(t.figures.get("sizeBytes", "")) or "-",
         " ".join(t.message.split())]
        for t in manifest.targets
    ]  # fmt: skip
    for line in table(rows):
        write(line)
    write(_where(digest, manifest, location))


def _as_json(digest: str, manifest: Manifest, location: StoreLocation) -> dict[str, Any]:
    return {
        "formatVersion": 1,
        "store": str(location),
        "tenant": location.tenant,
        "namespace": manifest.namespace,
        "name": manifest.name,
        "revision": manifest.revision,
        "image": manifest.image,
        "digest": digest,
        "targets": [
            {
                "module": target.module,
                "bucket": target.bucket,
                "hardware": target.hardware,
                "verdict": target.verdict,
                "reason": target.reason,
                "message": target.message,
                "tier": target.tier,
                "requestKey": target.request_key,
                "figures": dict(target.figures),
            }
            for target in manifest.targets
        ],
    }
