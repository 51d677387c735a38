"""Which parts of the pod that serves decide what a compile comes to, as one hash: when it changes, a new revision is due.

A Deployment is edited every day, and almost none of it matters to a compiler. What does is what the serving process can
see: its command, environment, working directory and what is mounted, and the init containers that put something there.
What comes from a Secret or ConfigMap counts by its name, never by its contents, which the controller must not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.plan.revision import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from preheat_operator.plan.workload import Serving

# What an API server fills in, or what changes who may read a file and not what it holds.
_IMMATERIAL: Final = frozenset({"defaultMode", "sizeLimit", "medium", "optional", "mode", "expirationSeconds"})
# Of containers: how much of it they get decides how fast a program is, not what is compiled for it.
_COMMON_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_COMMON_PREFIXES: Final = ("hugepages-", "requests.", "limits.")


def template_hash(serving: Serving) -> str:
    """Hash of 16 hex digits of what the result depends on. The image is not in it: it is told apart by its own name."""
    spec: Mapping[str, Any] = serving.template.get("spec") or {}
    served = _container(serving.container)
    mounted = {str(m.get("name")) for m in _mounts(serving.container)}
    providers = [
        {"name": c.get("name"), "image": c.get("image"), **_container(c)}
        for c in _dicts(spec.get("initContainers"))
        if c.get("restartPolicy") != "Always"
        and c.get("name") != names.CONTAINER_FETCH
        and mounted & {str(m.get("name")) for m in _mounts(c)}
    ]
    used = mounted | {str(m.get("name")) for c in _dicts(spec.get("initContainers")) for m in _mounts(c)
                      if c.get("name") in {p["name"] for p in providers}}  # fmt: skip
    volumes = {
        str(v.get("name")): _plain({key: value for key, value in v.items() if key != "name"})
        for v in _dicts(spec.get("volumes"))
        if v.get("name") in used and not _is_token(v)
    }
    return digest(
        {"served": served, "providers": providers, "volumes": volumes, "claims": sorted(serving.claims & used)}
    )[:16]


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    mounts = [
        {key: m[key] for key in ("name", "mountPath", "devicePath", "subPath", "subPathExpr") if m.get(key)}
        for m in _mounts(container)
    ]
    return {
        "command": [str(word) for word in container.get("command") or ()],
        "args": [str(word) for word in container.get("args") or ()],
        "workingDir": str(container.get("workingDir") or ""),
        "env": _environment(_dicts(container.get("env"))),
        "envFrom": [_plain(source) for source in _dicts(container.get("envFrom"))],
        "mounts": sorted(mounts, key=lambda m: str(m.get("mountPath") or m.get("devicePath"))),
        "devices": _devices(container),
    }


def _environment(entries: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Literal values, and references by name. Of a name set twice Kubernetes takes the last.

    Order counts only where a value refers to variables before it.
    """
    kept = {str(e.get("name")): _variable(e) for e in entries if not str(e.get("name", "")).startswith("PREHEAT_")}
    refers = any("$(" in str(e.get("value") or "") for e in entries)
    return list(kept.items()) if refers else sorted(kept.items(), key=lambda item: item[0])


def _variable(entry: Mapping[str, Any]) -> Any:
    if entry.get("valueFrom"):
        reference = _plain(entry["valueFrom"])
        # The version of a field's path, which the API server fills in.
        for source in reference.values() if isinstance(reference, dict) else ():
            if isinstance(source, dict):
                source.pop("apiVersion", None)
        return {"from": reference}
    return str(entry.get("value") or "")


def _devices(container: Mapping[str, Any]) -> dict[str, str]:
    """Extended resources, such as GPUs: the process sees them."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return {
        str(name): str(amount)
        for name, amount in limits.items()
        if name not in _COMMON_RESOURCES and not str(name).startswith(_COMMON_PREFIXES)
    }


def _plain(value: Any) -> Any:
    """A source of data without what does not decide what it holds; of lists of keys the order does not count."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key not in _IMMATERIAL and item is not None}
    if isinstance(value, list):
        items = [_plain(item) for item in value]
        return sorted(items, key=lambda item: digest(item))
    return value


def _is_token(volume: Mapping[str, Any]) -> bool:
    """The volume with the service account's token, which admission adds to each pod under a random name."""
    return str(volume.get("name", "")).startswith("kube-api-access-")


def _mounts(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    mounts = [*_dicts(container.get("volumeMounts")), *_dicts(container.get("volumeDevices"))]
    return [m for m in mounts if not str(m.get("name", "")).startswith("kube-api-access-")]


def _dicts(value: Iterable[Any] | None) -> list[Mapping[str, Any]]:
    return [item for item in value or () if isinstance(item, dict)]
