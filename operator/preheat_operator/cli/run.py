"""`preheat run`: starts a script hot, from the newest revision of a model that fits this machine.

It is the pod's start without a pod: the fetch of the init container, the environment of the injection, then the command
itself in place of this process. It may make the script faster and must not keep it from starting, unless asked to.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from preheat_operator.api import names
from preheat_operator.cli import exits, revisions
from preheat_operator.cli.errors import CommandError
from preheat_operator.cli.output import say
from preheat_operator.cli.stores import StoreLocation, location_of
from preheat_operator.containers.fit import Machine, fits, select
from preheat_operator.injection.additions import served_env
from preheat_operator.injection.reference import filled, serving_environment
from preheat_operator.store.errors import StoreError
from preheat_operator.store.keys import is_model_name
from preheat_operator.store.manifests import read_manifest
from preheat_operator.store.pointers import read_pointer
from preheat_runtime.manifest import is_digest
from preheat_runtime.policy import Serving

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from preheat_runtime.manifest import Manifest, Target


_DEFAULT = Serving()


class _Missing(Exception):
    """Nothing usable; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The revision for this machine."""

    model: str
    digest: str


def main(options: argparse.Namespace) -> NoReturn:
    """Become the command. Raises CommandError when it cannot be started, or must not be."""
    if not options.words:
        raise CommandError("run: write the command after --: preheat run --store STORE NAME -- python serve.py")
    if not is_digest(options.name) and not is_model_name(options.name):
        raise CommandError(f"{options.name!r} is neither the name of a CompiledModel nor a digest (sha256:…)")
    environment = dict(os.environ)
    try:
        location = location_of(options)
        if location is None:
            raise CommandError("--store: is required")
        chosen = _choose(location, options.name, image=options.image)
        cache = options.cache or revisions.default_cache(environment)
        folder = revisions.prepare(cache, chosen.digest, location, seconds=options.timeout)
        policy = Serving(on_miss=options.on_miss, on_reject=options.on_reject, verify=options.verify)
        environment = serving(environment, chosen.model, folder, policy)
    except (_Missing, revisions.NotBroughtError) as error:
        _without(str(error), options)
    except StoreError as error:
        _without(f"{error.reason}: {error}", options)
    except OSError as error:
        _without(f"the cache cannot be written: {error}", options)
    except CommandError:
        raise
    except Exception as error:
        # Also a fault of ours must not keep the command from starting.
        _without(f"Internal: a fault of Preheat: {type(error).__name__}: {error}", options)
    _become(options.words, environment)


def _without(why: str, options: argparse.Namespace) -> None:
    if options.when_missing == "Fail":
        raise CommandError(f"{why}; not started, as --when-missing Fail asks", code=exits.MISSING)
    say(f"{options.words[0]} starts cold: {why}")


def serving(
    environ: Mapping[str, str], model: str, folder: revisions.Folder, policy: Serving = _DEFAULT
) -> dict[str, str]:
    """The environment that injection gives to the container that serves, with the folders of this machine."""
    # Left by a pod or another `run` around this one: here it was asked for anew.
    ours = (names.ENV_DIR, names.ENV_WORK_DIR, names.ENV_MODEL, names.ENV_SERVING)
    present = [{"name": key, "value": value} for key, value in environ.items() if key not in ours]
    given = {"model": model, "serving": policy.text()}
    additions = filled(served_env(directory=str(folder.root), work=str(folder.work)), given)
    entries = serving_environment(present, additions, site=str(folder.site))
    return {entry["name"]: entry["value"] for entry in entries}


def _choose(location: StoreLocation, name: str, *, image: str | None) -> Chosen:
    """The newest revision with something for this machine. Raises _Missing or StoreError."""
    store, keys = location.open()
    if is_digest(name):
        candidates: Sequence[str] = [name]
    else:
        entries = [entry for entry in read_pointer(store, keys, name) if image in (None, entry.image)]
        candidates = list(dict.fromkeys(entry.digest for entry in entries))
        if not candidates:
            of = f" for image {image}" if image else ""
            raise _Missing(f"nothing was compiled of {name}{of} in {location} (tenant {location.tenant})")
    machine = Machine.here()
    reasons = []
    for digest in candidates:
        _, manifest = read_manifest(store, keys, digest)
        if select(manifest.targets, machine):
            return Chosen(model=manifest.name, digest=digest)
        reasons += _why_not(manifest, machine)
    raise _Missing(f"no target of {name} is for this machine: {'; '.join(reasons)[:1000]}")


def _why_not(manifest: Manifest, machine: Machine) -> list[str]:
    def why(target: Target) -> str:
        if target.verdict not in ("Kept", "Rejected") or target.fingerprint is None:
            return f"{target.verdict} ({target.reason})"
        needs = f"{target.fingerprint.get('machine')} {target.fingerprint.get('cpuIsa')}"
        return f"needs {needs}, this is {machine.architecture}"

    return [f"{'/'.join(target.key)} {why(target)}" for target in manifest.targets if not fits(target, machine)]


def _become(words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    program = shutil.which(words[0])
    if program is None:
        raise _not_found(words[0])
    # Python ignores these, and what is ignored stays so in the program that follows.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, list(words), dict(environment))  # noqa: S606
    except OSError as error:
        raise CommandError(f"{words[0]}: {error.strerror}", code=exits.NOT_EXECUTABLE) from None


def _not_found(word: str) -> CommandError:
    """Why a word is no command: what is there and cannot be executed is told from what is not there, as a shell does."""
    try:
        mode = Path(word).stat().st_mode if "/" in word or Path(word).is_file() else None
    except PermissionError:
        return CommandError(f"{word}: may not be looked at", code=exits.NOT_EXECUTABLE)
    except OSError:
        mode = None
    if mode is None:
        return CommandError(f"{word}: there is no such command", code=exits.NOT_FOUND)
    why = "is a folder" if stat.S_ISDIR(mode) else "may not be executed"
    return CommandError(f"{word}: {why}", code=exits.NOT_EXECUTABLE)
