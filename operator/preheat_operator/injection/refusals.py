"""Why a labelled pod is left as it is: one entry a reason, in the order they are tried.

Each reason is told in CEL for the policy and in Python for the reference, side by side, so that a change to one is a
change to both; the tests hold them together on a real API server. The words end up in the pod's annotation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from preheat_operator.api import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from preheat_operator.injection.reading import Reading

_VOLUMES: Final = (names.VOLUME_PREHEAT, names.VOLUME_WORK, names.VOLUME_STORE, names.VOLUME_REPORTS)
_MOUNTS: Final = (names.MOUNT_PREHEAT, names.MOUNT_WORK, names.MOUNT_REPORTS)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A reason not to inject.

    Attributes:
        why: words for people; `{model}`, `{container}` and `{image}` are filled in.
        cel: the condition, over the policy's variables.
        holds: the same condition, over what the reference read.
    """

    why: str
    cel: str
    holds: Callable[[Reading], bool]


def _cel_list(items: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{item}'" for item in items) + "]"


def _mounts_over(pod: Reading) -> bool:
    paths = [mount.get("mountPath", "") for mount in pod.served.get("volumeMounts") or []]
    return any(path == ours or path.startswith(f"{ours}/") for path in paths for ours in _MOUNTS)


REFUSALS: Final = (
    Refusal(
        why="there is no CompiledModel {model} in this namespace",
        cel="!variables.known",
        holds=lambda pod: not pod.known,
    ),
    Refusal(
        why="injection is paused for CompiledModel {model}; its conditions say why",
        cel="variables.head[0] == 'Paused'",
        holds=lambda pod: pod.when_missing == "Paused",
    ),
    Refusal(
        why="the pod has no container {container}",
        cel="variables.position < 0",
        holds=lambda pod: pod.position < 0,
    ),
    Refusal(
        why="nothing is ready for image {image}",
        cel="!variables.ready && !variables.waits && !variables.fails",
        holds=lambda pod: not (pod.ready or pod.waits or pod.fails),
    ),
    Refusal(
        why="it is a Windows pod",
        cel="object.spec.?os.?name.orValue('') == 'windows'",
        holds=lambda pod: (pod.spec.get("os") or {}).get("name") == "windows",
    ),
    Refusal(
        why="PYTHONPATH of container {container} comes from valueFrom, so it cannot be kept",
        cel="variables.env.exists(e, e.name == 'PYTHONPATH' && has(e.valueFrom))",
        holds=lambda pod: any(entry["name"] == names.ENV_PYTHONPATH and "valueFrom" in entry for entry in pod.env),
    ),
    Refusal(
        why=f"it has a container named {names.CONTAINER_FETCH} of its own",
        cel="!variables.already && (object.spec.containers + object.spec.?initContainers.orValue([]))"
        f".exists(c, c.name == '{names.CONTAINER_FETCH}')",
        holds=lambda pod: (
            not pod.already
            and any(container["name"] == names.CONTAINER_FETCH for container in (*pod.containers, *pod.init_containers))
        ),
    ),
    Refusal(
        why=f"it has a volume of its own named {', '.join(_VOLUMES[:-1])} or {_VOLUMES[-1]}",
        cel=f"!variables.already && object.spec.?volumes.orValue([]).exists(v, v.name in {_cel_list(_VOLUMES)})",
        holds=lambda pod: (
            not pod.already and any(volume["name"] in _VOLUMES for volume in pod.spec.get("volumes") or [])
        ),
    ),
    Refusal(
        why=f"container {{container}} mounts something of its own at {' or '.join(_MOUNTS)}",
        cel="!variables.already && variables.served.?volumeMounts.orValue([]).exists(m, "
        f"{_cel_list(_MOUNTS)}.exists(p, m.mountPath == p || m.mountPath.startsWith(p + '/')))",
        holds=lambda pod: not pod.already and _mounts_over(pod),
    ),
)
