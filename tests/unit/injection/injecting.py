"""An index with models of all kinds, and what injection by the pure reference makes of a pod under it."""

from __future__ import annotations

from typing import Any

from injection_pods import DIGEST, IMAGE, MODELS, PODS, WAITING_IMAGES
from preheat_operator.api.index import ImageEntry, Index, render
from preheat_operator.injection.reference import inject
from preheat_operator.injection.settings import InjectionSettings

SETTINGS = InjectionSettings(image="r/preheat@sha256:0", cluster_id="c1", store_bucket="b")
INDEX = render(
    Index(
        models=MODELS,
        images=(
            ImageEntry(model="vision", image=IMAGE, manifest=DIGEST),
            ImageEntry(model="vision", image="with-path:1", manifest=DIGEST, python_path="/app"),
            ImageEntry(model="vision-2", image=IMAGE, manifest=DIGEST, python_path="/srv"),
            ImageEntry(model="paused", image=IMAGE, manifest=DIGEST),
            ImageEntry(model="lost", image=IMAGE, manifest=DIGEST),
            ImageEntry(model="strict", image=IMAGE, manifest=DIGEST),
            *WAITING_IMAGES,
        ),
    )
)


def injected(name: str, *, index: str | None = INDEX, settings: InjectionSettings = SETTINGS) -> dict[str, Any]:
    return inject(PODS[name]("prod"), index, settings)


def annotations(document: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = document["metadata"].get("annotations", {})
    return found


def env(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}
