r"""The text of a CompiledModelIndex: rendered by the controller, read by admission's CEL, parsed by tests and tools.

One text field, because admission pays for what it reads by shape more than by length: nested maps of a thousand
models cost it more than twice as much. The grammar, with single spaces and lines ending in a newline:

    \n
    <model> <whenMissing> <waitSeconds> <container or ->[ <serving>]
    <model> <whenMissing> <waitSeconds> <container or -> <serving or -> <PYTHONPATH, - or ?> <Deployment or ->
    <model>|<image>=<manifest digest or none> <PYTHONPATH of the image or ->

The longer line is that of a model some of whose pods wait: its PYTHONPATH is what the next image's is taken for (`-`:
unset, `?`: not known), its Deployment the one whose pods wait under Auto. An image with `none` will get nothing.

Whatever cannot be said on such a line is refused here with an `IndexTextError` that says why: an entry that
admission would misread is worse than a missing one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from preheat_operator.api import names
from preheat_operator.api.enums import Admission

#: So that with a Deployment's default progress deadline (600 s) the wait ends before it.
WAIT_TIMEOUT_SECONDS: Final = 480

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Printable ASCII without the blank: what cannot break a line or a field.
_FIELD = re.compile(r"[!-~]+")
_ABSENT = "-"
_UNKNOWN = "?"


class IndexTextError(ValueError):
    """An entry cannot be said on a line of the index, or a text is not an index."""


@dataclass(frozen=True, kw_only=True, order=True)
class ModelEntry:
    """What admission does with pods of one model.

    `wait_seconds` is 0 where the model makes no pod wait and its time is the default one; a pod that asks to wait then
    waits that long. `container` is the one that serves; None: the pod's first. `serving` is the text of `spec.serving`
    (`preheat_runtime.policy`), None where all of it is as it is by default. `waiting` is there where pods may wait.
    """

    model: str
    when_missing: Admission = Admission.COLD
    wait_seconds: int = 0
    container: str | None = None
    serving: str | None = None
    waiting: Waiting | None = None


@dataclass(frozen=True, kw_only=True, order=True)
class Waiting:
    """What admission needs for pods that wait, or that fail, until something is ready.

    Their environment is fixed before the image's own PYTHONPATH can be known, so it is taken to be that of the newest
    ready image: `python_path`, with `known` (None: that image has none). `deployment` is whose pods wait under Auto.
    """

    known: bool = False
    python_path: str | None = None
    deployment: str | None = None


@dataclass(frozen=True, kw_only=True, order=True)
class ImageEntry:
    """One image of a model: the manifest its pods get, and the PYTHONPATH set inside it (None: unset).

    `manifest` is `none` for an image that is through with compiling and has nothing: its pods do not wait.
    """

    model: str
    image: str
    manifest: str
    python_path: str | None = None


@dataclass(frozen=True, kw_only=True)
class Index:
    """The contents of one namespace's index."""

    models: tuple[ModelEntry, ...] = ()
    images: tuple[ImageEntry, ...] = ()


def unsayable_python_path(python_path: str | None) -> str | None:
    """Why an image's PYTHONPATH cannot be said on an index line, in words; None when it can (also when unset)."""
    if python_path is None:
        return None
    if python_path == "":
        return "it is set to the empty string"
    if python_path == _ABSENT:
        return "it is '-', which means unset"
    if python_path == _UNKNOWN:
        return "it is '?', which means unknown"
    if _FIELD.fullmatch(python_path) is None:
        return "it holds a blank, a control character or something beyond ASCII"
    return None


def render(index: Index) -> str:
    """The text of an index; deterministic.

    Raises:
        IndexTextError: an entry cannot be said on a line, a model or an image of a model is there twice, or an image
            belongs to a model that is not listed.
    """
    models = sorted(_model_line(entry) for entry in index.models)
    images = sorted(_image_line(entry) for entry in index.images)
    known = [entry.model for entry in index.models]
    if len(set(known)) != len(known):
        raise IndexTextError("a model is listed twice")
    pairs = [(entry.model, entry.image) for entry in index.images]
    if len(set(pairs)) != len(pairs):
        raise IndexTextError("an image of a model is listed twice")
    if stray := {model for model, _ in pairs} - set(known):
        raise IndexTextError(f"images of models that are not listed: {', '.join(sorted(stray))}")
    return "\n" + "".join(line + "\n" for line in (*models, *images))


def parse(text: str) -> Index:
    """The contents of an index text.

    Raises:
        IndexTextError: the text does not follow the grammar; the message names the line.
    """
    if not text.startswith("\n") or not text.endswith("\n"):
        raise IndexTextError("an index begins and ends with a newline")
    models: list[ModelEntry] = []
    images: list[ImageEntry] = []
    for number, line in enumerate(text.split("\n")[1:-1], start=2):
        entry = _parse_line(line, number=number)
        if isinstance(entry, ModelEntry):
            models.append(entry)
        else:
            images.append(entry)
    return Index(models=tuple(models), images=tuple(images))


def _model_line(entry: ModelEntry) -> str:
    _field("model", entry.model, forbidden="|")
    container = _ABSENT if entry.container is None else _field("container", entry.container)
    if entry.wait_seconds < 0:
        raise IndexTextError(f"waitSeconds of {entry.model} is negative: {entry.wait_seconds}")
    serving = "" if entry.serving is None else f" {_field('serving', entry.serving)}"
    if entry.serving == _ABSENT:
        raise IndexTextError(f"serving of {entry.model} cannot be {_ABSENT!r}")
    waiting = ""
    if entry.waiting is not None:
        serving = serving or f" {_ABSENT}"
        waiting = f" {_assumed(entry)} {_ABSENT if entry.waiting.deployment is None else _field('deployment', entry.waiting.deployment)}"
    return f"{entry.model} {entry.when_missing.value} {entry.wait_seconds} {container}{serving}{waiting}"


def _assumed(entry: ModelEntry) -> str:
    waiting = entry.waiting
    if waiting is None or not waiting.known:
        return _UNKNOWN
    if why := unsayable_python_path(waiting.python_path):
        raise IndexTextError(f"PYTHONPATH assumed for {entry.model}: {why}")
    return waiting.python_path or _ABSENT


def _image_line(entry: ImageEntry) -> str:
    _field("model", entry.model, forbidden="|")
    _field("image", entry.image, forbidden="=|")
    if entry.manifest != names.MANIFEST_NONE and _DIGEST.fullmatch(entry.manifest) is None:
        raise IndexTextError(f"manifest of {entry.image} is not a digest: {entry.manifest!r}")
    if why := unsayable_python_path(entry.python_path):
        raise IndexTextError(f"PYTHONPATH of {entry.image}: {why}")
    return f"{entry.model}|{entry.image}={entry.manifest} {entry.python_path or _ABSENT}"


def _field(what: str, value: str, *, forbidden: str = "") -> str:
    if _FIELD.fullmatch(value) is None or any(mark in value for mark in forbidden):
        raise IndexTextError(f"{what} cannot be said on a line of the index: {value!r}")
    return value


def _parse_line(line: str, *, number: int) -> ModelEntry | ImageEntry:
    try:
        return _parse_image(line) if "|" in line.split(" ", 1)[0] else _parse_model(line)
    except ValueError as error:
        raise IndexTextError(f"line {number} of the index: {error}") from error


def _parse_model(line: str) -> ModelEntry:
    model, when_missing, wait_seconds, container, *more = line.split(" ")
    if len(more) not in (0, 1, 3):
        raise IndexTextError(f"as many fields as no line has: {line!r}")
    entry = ModelEntry(
        model=model,
        when_missing=Admission(when_missing),
        wait_seconds=int(wait_seconds),
        container=None if container == _ABSENT else container,
        serving=more[0] if more and more[0] != _ABSENT else None,
        waiting=_parse_waiting(*more[1:]) if len(more) > 1 else None,
    )
    if _model_line(entry) != line:
        raise IndexTextError(f"not in its one form: {line!r}")
    return entry


def _parse_waiting(path: str, deployment: str) -> Waiting:
    return Waiting(
        known=path != _UNKNOWN,
        python_path=None if path in (_UNKNOWN, _ABSENT) else path,
        deployment=None if deployment == _ABSENT else deployment,
    )


def _parse_image(line: str) -> ImageEntry:
    head, python_path = line.split(" ")
    model, rest = head.split("|", 1)
    image, manifest = rest.split("=", 1)
    entry = ImageEntry(
        model=model, image=image, manifest=manifest, python_path=None if python_path == _ABSENT else python_path
    )
    if _image_line(entry) != line:
        raise IndexTextError(f"not in its one form: {line!r}")
    return entry
