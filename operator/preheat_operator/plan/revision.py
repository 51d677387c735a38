"""Which revision a CompiledModel needs now, and which older ones it keeps.

A revision is named by what decides its contents: the parts of the spec that reach the compiler, the image, what of the
pod template matters, and the weights. So the same ingredients lead to the same revision for ever, which is what makes a
rollback hot without any Job. Two things cannot be known from the objects alone and make a new one of the same
ingredients: a tag that was moved, pods that run on something else than what it was made for, and a person who asks for it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api.enums import Cause, RevisionState
from preheat_operator.api.status import Revision
from preheat_operator.plan.changed import is_software
from preheat_operator.plan.running import digest_of_image

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from preheat_operator.api.spec import CompiledModelSpec

#: Of what is asked of a compile Job; a new one makes every revision a new one.
FORMAT_VERSION: Final = 1
_MAX_PREFIX = 40
_KEPT = (RevisionState.READY, RevisionState.TAKEN_BACK)


@dataclass(frozen=True, kw_only=True)
class Ingredients:
    """What a revision is made from; `template_hash` and `weights` are empty where there is no such thing."""

    spec_hash: str
    image: str
    template_hash: str = ""
    weights: str = ""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The revision that is needed now.

    `image_digest` is the digest to compile in, None while it is not known; `rebuild` the token of the person who asked
    for it, else empty; `environment` what pods say that they run on, empty while it is as when the first of its ingredients
    was compiled; `base` the manifest of a ready revision of the same code, None when there is none.
    """

    name: str
    spec_hash: str
    image: str
    template_hash: str = ""
    weights: str = ""
    image_digest: str | None = None
    rebuild: str = ""
    environment: str = ""
    base: str | None = None


def spec_hash(spec: CompiledModelSpec) -> str:
    """Hash of what decides compilation: `torch`, `hardware` (with its cpuIsa) and `keepIf`.

    What is as it is by default is left out, written or not: a release that adds a field must not make every revision
    a new one. A release that changes what a default means, or by what its runtime knows a module again, has to change
    `FORMAT_VERSION`: its pods would take none of the artifacts that were made before it.
    """
    body = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    parts = {name: body.get(name, {}) for name in ("torch", "hardware", "keepIf")}
    return digest({"formatVersion": FORMAT_VERSION, **parts})


def wanted(*, model: str, spec: CompiledModelSpec, image: str) -> Wanted:
    """The revision for this spec and image, named `<model, at most 40 characters>-<hash of 8>`."""
    return _new(model, Ingredients(spec_hash=spec_hash(spec), image=image))


def choose(
    *, model: str, made_from: Ingredients, running: Sequence[str], previous: Sequence[Revision], rebuild: str, handled: str,
    environments: Mapping[str, str] = MappingProxyType({}),
) -> Wanted:  # fmt: skip
    """The revision that is needed, given the recorded ones.

    `running` are the digests of the image that pods run, that of the newest pod first; `rebuild` is the token that
    asks for a new revision, `handled` the last one that was heard; `environments` says of manifests on what their pods run,
    where that is not what they were made for.
    """
    fixed = digest_of_image(made_from.image)
    alike = [r for r in previous if _alike(r, made_from)]
    newest = fixed or next(iter(running), None)
    if rebuild and rebuild != handled:
        # Asked for because what there is is not trusted: nothing is carried over.
        return _new(model, made_from, image_digest=newest, rebuild=rebuild)
    if not alike:
        want = _new(model, made_from, image_digest=newest)
    elif _moved(alike, newest, running):
        other = next((r for r in alike if r.image_digest == newest), None)
        want = _new(model, made_from, image_digest=newest, moved=True) if other is None else _again(other, made_from)
    elif there := _environment(alike, environments):
        other = next((r for r in alike if r.environment == there and r.state != RevisionState.TAKEN_BACK), None)
        want = (
            _after(alike[0], made_from, model=model, environment=there) if other is None else _again(other, made_from)
        )
    else:
        want = _again(alike[0], made_from)
        # What was compiled before digests were recorded is taken for what its pods run.
        if want.image_digest is None and alike[0].state == RevisionState.READY:
            want = replace(want, image_digest=newest)
    return _with_base(want, previous)


def history(*, current: Revision, previous: Sequence[Revision], limit: int, keep: str = "") -> tuple[Revision, ...]:
    """The revisions to keep: the current one first, then ready ones, newest first, `limit` in all.

    A superseded revision that never became ready is left out: nobody can be given it, and coming back to it should
    try again. One that was taken back is kept as well: coming back to it must not give it to pods again. While the current
    one is not ready it does not count: what pods get now must not go for it. The one named `keep` stays in any case.
    """
    kept = [r for r in previous if r.name != current.name and r.state in _KEPT]
    room = limit - 1 if current.state in _KEPT else limit
    return (current, *kept[:room], *(r for r in kept[room:] if r.name == keep))


def begin(*, want: Wanted, previous: Sequence[Revision], now: datetime) -> Revision:
    """The entry of the wanted revision: the one there is, or a new one with the cause that made it necessary."""
    for revision in previous:
        if revision.name == want.name:
            known = {
                "image_digest": revision.image_digest or want.image_digest,
                "template_hash": revision.template_hash or want.template_hash or None,
            }
            return revision.model_copy(update=known)
    return Revision(
        name=want.name, image=want.image, created=now, cause=_cause(want, previous).value, spec_hash=want.spec_hash,
        image_digest=want.image_digest, template_hash=want.template_hash or None, weights=want.weights or None,
        rebuild=want.rebuild or None, environment=want.environment or None, format_version=FORMAT_VERSION,
    )  # fmt: skip


def prefix(model: str) -> str:
    """The part of a model's name that goes into the names of what is made for it."""
    return model[:_MAX_PREFIX].rstrip("-.")


def digest(value: Any) -> str:
    """SHA-256 of a JSON value in its one canonical form, as 64 hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _cause(want: Wanted, previous: Sequence[Revision]) -> Cause:
    """What is different from the revision that was wanted last; of several changes, the first of this list."""
    if want.rebuild:
        return Cause.REBUILD
    if not previous:
        return Cause.CREATED
    last = previous[0]
    different = {
        Cause.FORMAT_CHANGED: last.format_version != FORMAT_VERSION,
        Cause.SPEC_CHANGED: last.spec_hash != want.spec_hash,
        Cause.IMAGE_CHANGED: last.image != want.image,
        Cause.IMAGE_MOVED: None not in (last.image_digest, want.image_digest)
        and last.image_digest != want.image_digest,
        Cause.TEMPLATE_CHANGED: (last.template_hash or "") != want.template_hash,
        Cause.WEIGHTS_CHANGED: (last.weights or "") != want.weights,
        Cause.TORCH_CHANGED: (last.environment or "") != want.environment and is_software(want.environment),
        Cause.HARDWARE_CHANGED: (last.environment or "") != want.environment,
    }
    return next((cause for cause, holds in different.items() if holds), Cause.IMAGE_MOVED)


def _moved(alike: Sequence[Revision], newest: str | None, running: Sequence[str]) -> bool:
    """Whether pods run another image under the name of the last revision's.

    Nodes keep what they pulled, so for a while one name can stand for two images. A digest that was never seen counts
    at once; one that was seen before counts again only when nothing runs the current one any more: else every pod that
    an old node starts would turn it round.
    """
    current = alike[0].image_digest
    if newest is None or current is None or newest == current:
        return False
    return newest not in {r.image_digest for r in alike} or current not in running


def _environment(alike: Sequence[Revision], environments: Mapping[str, str]) -> str:
    """On what pods of the wanted revision run, where that is not what it was made for; else empty.

    One that an earlier revision was made for counts only when that one's own pods have nothing against it: pods that were
    given it long ago must not turn it round.
    """
    current = alike[0]
    there = environments.get(current.manifest or "", "") if current.state == RevisionState.READY else ""
    if there == (current.environment or ""):
        return ""
    return "" if any(r.environment == there and r.manifest in environments for r in alike) else there


def _alike(revision: Revision, made_from: Ingredients) -> bool:
    """Whether a recorded revision has these ingredients. What an earlier release did not record is not held against it."""
    return (
        revision.spec_hash == made_from.spec_hash
        and revision.image == made_from.image
        and revision.template_hash in (None, made_from.template_hash)
        and (revision.weights or "") == made_from.weights
    )


def _new(
    model: str, made_from: Ingredients, *, image_digest: str | None = None, rebuild: str = "", moved: bool = False
) -> Wanted:
    more = {
        "template": made_from.template_hash,
        "weights": made_from.weights,
        "digest": (image_digest or "") if moved else "",
        "rebuild": rebuild,
    }
    more = {key: value for key, value in more.items() if value}
    parts = [made_from.spec_hash, made_from.image, *([more] if more else [])]
    return Wanted(
        name=f"{prefix(model)}-{digest(parts)[:8]}", spec_hash=made_from.spec_hash, image=made_from.image,
        template_hash=made_from.template_hash, weights=made_from.weights, image_digest=image_digest, rebuild=rebuild,
    )  # fmt: skip


def _after(revision: Revision, made_from: Ingredients, *, model: str, environment: str) -> Wanted:
    """The same as a revision, made for what pods run on now."""
    same = _again(revision, made_from)
    name = f"{prefix(model)}-{digest([revision.name, environment])[:8]}"
    return replace(same, name=name, rebuild="", environment=environment)


def _again(revision: Revision, made_from: Ingredients) -> Wanted:
    return Wanted(
        name=revision.name, spec_hash=made_from.spec_hash, image=made_from.image,
        template_hash=made_from.template_hash, weights=made_from.weights, image_digest=revision.image_digest,
        rebuild=revision.rebuild or "", environment=revision.environment or "",
    )  # fmt: skip


def _with_base(want: Wanted, previous: Sequence[Revision]) -> Wanted:
    """`want` with the newest ready revision of the same image and template, and in the same image as that one.

    Its targets are for the same code, so each that the spec asks for as before need not be built: new weights build
    nothing, a new bucket itself alone. One that differs in its weights only goes first, as all its targets may serve.
    What somebody asked to be built again is never carried over.
    """
    if want.rebuild:
        return want
    for changes in ({"weights": want.weights}, {"weights": want.weights, "spec_hash": want.spec_hash}):
        for revision in previous:
            if (
                revision.name != want.name
                and revision.state == RevisionState.READY
                and revision.manifest is not None
                and (want.image_digest is None or revision.image_digest in (None, want.image_digest))
                and _alike(revision.model_copy(update=changes), _ingredients(want))
            ):
                return replace(want, base=revision.manifest, image_digest=want.image_digest or revision.image_digest)
    return want


def _ingredients(want: Wanted) -> Ingredients:
    return Ingredients(
        spec_hash=want.spec_hash, image=want.image, template_hash=want.template_hash, weights=want.weights
    )
