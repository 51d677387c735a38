"""What a module is, in terms that hold in another process: tree, code, attributes and tensors.

Why it exists: a package is compiled for one module and gives plausible nonsense for a slightly different one. Two
modules with equal identity run the same code on parameters of the same names, shapes, dtypes and strides, so one's
package answers for the other once its own weights are bound.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import torch

from . import questions
from .code import CodeDigest, Found
from .imports import key, module_of
from .libraries import OF_THE_PROCESS
from .modes import plain_keys
from .package import Identity, ModuleIdentity, TensorIdentity
from .patches import CALL, OURS, patched_torch
from .records import dataclass
from .strides import seems_channels_last
from .watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

#: What every nn.Module has and what does not change what it computes; hooks are looked at on their own. The real
#: torch.compile leaves marks on a module, and a call that went there must not make the next one miss its package.
_BOILERPLATE = frozenset(torch.nn.Module().__dict__) - {"training"} | {CALL, "_is_torch_compile"}
_NOT_ITS_OWN = _BOILERPLATE | OF_THE_PROCESS
_dispatch_keys = torch._C._dispatch_keys
#: What to do where only the number differs: of several GPUs each process may be shown its own.
_OWN_GPU = "; let each process see its own GPU alone, as cuda:0 (CUDA_VISIBLE_DEVICES)"
HOOK_DICTS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_CONTAINERS = ("_parameters", "_buffers", "_modules")
#: What may be exchanged in a module's `__dict__` without a difference to what it computes.
_UNWATCHED = _BOILERPLATE - {*HOOK_DICTS, *_CONTAINERS, CALL}


@dataclass(frozen=True, kw_only=True)
class Described:
    """An identity, what to watch so that it stays true, and the tensors it named, by path."""

    identity: Identity
    watch: Watch
    tensors: dict[str, torch.Tensor]
    not_known_of_imports: tuple[str, ...] = ()
    hooked: str | None = field(default=None)
    compiled: str | None = field(default=None)
    distributed: tuple[str, str] | None = field(default=None)


def describe(module: torch.nn.Module, *, without: Collection[tuple[str, str]] = ()) -> Described:
    """Describe `module` as it is now: takes about 10 to 30 ms for a few hundred submodules, reads no weight.

    `hooked` is the path of a submodule with forward or backward hooks, which are not part of the identity; `compiled`
    of one that somebody but us compiled, with whatever it now answers. `distributed` is what code asks of which no package
    can have the answer, of other processes or of threads, with its `file:line`. `not_known_of_imports` is what is unknown of the
    modules that functions import when they run. Neither are the attributes of `without`, pairs of
    path and name.
    """
    watch = Watch()
    paths: dict[int, str] = {}
    tree = list(module.named_modules(remove_duplicate=False))
    for path, part in tree:
        paths.setdefault(id(part), path)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    tensors = {**parameters, **dict(module.named_buffers(remove_duplicate=False))}
    places: dict[int, str] = {}
    for path, tensor in tensors.items():
        places.setdefault(id(tensor), path)
    found = Found()
    new_digest = functools.partial(CodeDigest, watch=watch, modules=paths, tensors=places, found=found)
    classes: dict[type, str] = {}
    unknown: list[str] = []
    modules: dict[str, ModuleIdentity] = {}
    hooked = compiled = None
    for path, part in tree:
        kind = type(part)
        if isinstance(part, torch.jit.ScriptModule):
            unknown.append(f"{path or 'the module'} is scripted, and its code")
            modules[path] = ModuleIdentity(class_name=kind.__qualname__, code="unknown", attributes="unknown")
            continue
        if kind not in classes:
            classes[kind], more = _digest(new_digest(), functools.partial(CodeDigest.class_, value=kind))
            unknown += more
        attributes, more = _digest(
            new_digest(), functools.partial(_add_attributes, part=part, path=paths[id(part)], without=without)
        )
        unknown += [f"{path or 'the module'} has {what}" for what in more]
        answers = part.__dict__.get(CALL)
        if answers is not None and not hasattr(answers, OURS):
            compiled = path or "the module"
        watch.add_object(part)
        watch.add_attributes(part.__dict__, without=_UNWATCHED)
        for name in _CONTAINERS:
            watch.add_dict(part.__dict__[name])
        for name in HOOK_DICTS:
            held: dict[Any, Any] = part.__dict__[name]
            watch.add_dict(held)  # empty now; one that is added later must be seen
            if held:
                hooked = path or "the module"
        modules[path] = ModuleIdentity(class_name=kind.__qualname__, code=classes[kind], attributes=attributes)
    patches, more = _digest(new_digest(), _add_patches)
    imports, of_imports = _imports(found.imported, new_digest, watch)
    compared = sorted(name for name in found.asked if not _of_no_package(name))
    for name in filter(questions.is_setting, compared):
        watch.add_content(functools.partial(questions.answer, name))
    watch.arm()
    return Described(
        identity=Identity(
            modules=modules,
            tensors=_tensor_identities(tensors, parameters.keys()),
            patches=patches,
            imports=imports,
            order=_order(tensors) if found.in_order else None,
            unknown=tuple(unknown + more + of_imports),
            asked={name: questions.answer(name) for name in compared} or None,
        ),
        watch=watch,
        tensors=tensors,
        not_known_of_imports=tuple(of_imports),
        hooked=hooked,
        compiled=compiled,
        distributed=min(
            (pair for pair in found.asked.items() if _of_no_package(pair[0])), key=_best_said, default=None
        ),
    )


def _of_no_package(question: str) -> bool:
    return questions.is_distributed(question) or question in questions.THREADS


def _best_said(question: tuple[str, str]) -> tuple[bool, str]:
    """Those with a line first."""
    return not question[1], question[1]


def _order(tensors: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(tensors).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _digest(digest: CodeDigest, fill: Callable[[CodeDigest], None]) -> tuple[str, list[str]]:
    """The digest of what `fill` adds, and what of it cannot be compared: all of it when there is too much."""
    try:
        fill(digest)
        return digest.hexdigest(), digest.unknown
    except RecursionError as error:
        return "unknown", [f"code or values that cannot be read to their end ({error})"]


def _imports(
    wanted: set[tuple[str, frozenset[str]]], new_digest: Callable[[], CodeDigest], watch: Watch
) -> tuple[dict[str, str], list[str]]:
    """The digests of the modules among `wanted` that are imported by now; reading them puts more there, and so on."""
    found: dict[str, str] = {}
    unknown: list[str] = []
    done: set[tuple[str, frozenset[str]]] = set()
    while rest := wanted - done:
        done |= rest
        for name, names in sorted(rest, key=lambda pair: (pair[0], sorted(pair[1]))):
            watch.add_name(sys.modules, name)
            module = sys.modules.get(name)
            if module is not None:
                fill = functools.partial(CodeDigest.module_parts, module=module, names=names)
                found[key(name, names)], more = _digest(new_digest(), fill)
                unknown += [f"{name}, which a function imports, has {what}" for what in more]
    return found, unknown


def _add_attributes(digest: CodeDigest, part: torch.nn.Module, path: str, without: Collection[tuple[str, str]]) -> None:
    held = part.__dict__
    # A loop over children takes them in the order in which they were put there. Tensors are compared on their own, but None.
    none = [sorted(name for name, item in held[kind].items() if item is None) for kind in ("_parameters", "_buffers")]
    digest.put("same as", path, tuple(held["_modules"]), none)
    for name in sorted(held.keys() - _NOT_ITS_OWN):
        if (path, name) not in without:
            digest.put(name)
            digest.value(held[name])


def _add_patches(digest: CodeDigest) -> None:
    for name, function in patched_torch(digest.watch):
        digest.put(name)
        digest.value(function)


def _tensor_identities(tensors: Mapping[str, torch.Tensor], parameters: Collection[str]) -> dict[str, TensorIdentity]:
    first: dict[int, str] = {}
    words: dict[Any, str] = {}  # many tensors, of few dtypes and devices
    found = {}
    for path, tensor in tensors.items():
        tied = first.setdefault(id(tensor), path)
        strided = tensor.layout is torch.strided
        dtype, device = tensor.dtype, tensor.device
        if dtype not in words:
            words[dtype] = str(dtype).removeprefix("torch.")
        if device not in words:
            words[device] = str(device)
        found[path] = TensorIdentity(
            kind="parameter" if path in parameters else "buffer",
            shape=tuple(tensor.shape),
            stride=tensor.stride() if strided else (),
            # A subclass (quantised, distributed, lazy) computes something else than its dtype tells.
            dtype=words[dtype] if (odd := unusual(tensor)) is None else f"{words[dtype]} {odd}",
            device=words[device],
            tied_to=None if tied == path else tied,
        )
    return found


def unusual(tensor: torch.Tensor) -> str | None:
    """What a weight is where its memory does not hold its values as its dtype says, in words; None for a plain tensor."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or tensor.layout is not torch.strided:
        return type(tensor).__qualname__
    if not tensor.is_cpu:
        return None  # no package is made for it
    kind = _dispatch_keys(tensor)
    if kind in plain_keys("cpu"):
        return None
    # What bound code reads is the memory; that it stands for other values only torch's operators know.
    if tensor.is_neg():
        return "lazily negated"
    return "lazily conjugated" if tensor.is_conj() else f"of {kind}"


def difference(pod: Identity, artifact: Identity) -> str | None:
    """The first thing in which the pod's module is not the compiled one, in words; None when they are the same."""
    if pod.modules.keys() != artifact.modules.keys():
        extra, absent = pod.modules.keys() - artifact.modules.keys(), artifact.modules.keys() - pod.modules.keys()
        return f"submodule {min(extra)!r} is new" if extra else f"submodule {min(absent)!r} is missing"
    for path, theirs in artifact.modules.items():
        mine = pod.modules[path]
        if mine.__dict__ == theirs.__dict__:  # past the records' own comparing, which is not written in C
            continue
        name = f"submodule {path!r}" if path else "the module"
        if mine.class_name != theirs.class_name:
            return f"{name} is a {mine.class_name}, artifact has {theirs.class_name}"
        if mine.code != theirs.code:
            return f"the code of {name} ({mine.class_name}), or something it uses, differs"
        if mine.attributes != theirs.attributes:
            return f"an attribute of {name} ({mine.class_name}) differs (mode train/eval is one, the order of its submodules another)"
    if pod.tensors.keys() != artifact.tensors.keys():
        odd = min(pod.tensors.keys() ^ artifact.tensors.keys())
        return f"parameter or buffer {odd!r} exists only in {'the pod' if odd in pod.tensors else 'the artifact'}"
    for path, expected in artifact.tensors.items():
        found = pod.tensors[path]
        if found.__dict__ == expected.__dict__:
            continue
        for aspect in ("kind", "shape", "dtype", "device", "tied_to"):
            if getattr(found, aspect) != getattr(expected, aspect):
                said = f"{path} has {aspect} {getattr(found, aspect)}, artifact has {getattr(expected, aspect)}"
                return said + (_OWN_GPU if aspect == "device" and _both_on_gpus(found, expected) else "")
        if not _same_stride(found, expected):
            return f"{path} has stride {found.stride}, artifact has {expected.stride}"
    if pod.patches != artifact.patches:
        return "functions of torch itself were replaced, not as in the compile Job"
    for question, then in (artifact.asked or {}).items():
        # What is asked by code that the pod has not come upon yet is as it is, too.
        if (now := (pod.asked or {}).get(question) or questions.answer(question)) != then:
            return f"{question} is {now} in the pod, artifact has {then}"
    # One that did not import what the other did may not have come upon the code that goes through them.
    if None not in (pod.order, artifact.order) and pod.order != artifact.order:
        return "parameters or buffers are in another order, which the code goes through"
    for name, digest in artifact.imports.items():
        if name not in pod.imports:
            return f"{module_of(name)}, which it imports when it runs, is not imported"
        if pod.imports[name] != digest:
            return f"something in {module_of(name)}, which it imports when it runs, differs"
    return None


def _both_on_gpus(found: TensorIdentity, expected: TensorIdentity) -> bool:
    return found.device.startswith("cuda") and expected.device.startswith("cuda")


def not_imported(pod: Identity, artifact: Identity) -> set[str]:
    """Modules that running the pod's module would import, if that is all in which it is not yet the compiled one."""
    absent = artifact.imports.keys() - pod.imports.keys()
    if not absent or difference(pod, replace(artifact, imports={})) is not None:
        return set()
    return set(map(module_of, absent))


def _same_stride(found: TensorIdentity, expected: TensorIdentity) -> bool:
    """The stride of a dimension of size one moves nothing, but torch may take its memory format from it."""
    return all(
        size == 1 or mine == theirs
        for size, mine, theirs in zip(found.shape, found.stride, expected.stride, strict=True)
    ) and seems_channels_last(found.shape, found.stride) == seems_channels_last(expected.shape, expected.stride)
