"""Builds the package of each model, or takes it from the cache, and lays them out as a pod's folder."""

import hashlib
import importlib.util
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import models
import torch

import preheat_compiler
from preheat_compiler.package import DimRange, ExampleCall, build_package
from preheat_compiler.package_call import plan_call
from preheat_runtime import identity, parallel
from preheat_runtime import package as contract
from preheat_runtime.fingerprint import needed_isa
from preheat_runtime.package import LIBRARY_FILE, TARGET_FILE, RegionSpec, Target

HERE = Path(__file__).parent


def tools():
    """The helpers of the tests next door."""
    spec = importlib.util.spec_from_file_location("runtime_tools", HERE.parent / "conftest.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cache() -> Path:
    """Outside the checkout, and another one for another Python, torch or CPU, or other code that builds."""
    digest = hashlib.sha256(f"{sys.version} {torch.__version__} {needed_isa('Native')}".encode())
    sources = sorted(Path(preheat_compiler.__file__).parent.glob("package*.py"))
    for path in (*sources, Path(contract.__file__), Path(parallel.__file__), HERE / "models.py"):
        digest.update(path.read_bytes())
    digest.update(inspect.getsource(build).encode())
    root = Path(os.environ.get("PREHEAT_CACHE") or Path.home() / ".cache" / "preheat")
    return root / "fuzz" / digest.hexdigest()[:16]


def build(name: str, out: Path) -> None:
    """Write the package of one model."""
    net = models.make(name)
    _, arguments, varying = models.MODELS[name]
    example = ExampleCall(args=arguments(4))
    ranges: dict = {}
    for argument, dim, size, low, high in varying:
        ranges.setdefault(argument, {})[dim] = DimRange(name=size, minimum=low, maximum=high)
    if name not in models.IN_REGIONS:
        build_package(net, example, dynamic_shapes=ranges or None, out=out, cpu_isa="X86_64_V3")
        return
    described, call = identity.describe(net), plan_call(net, example, None).spec
    regions = []
    for number, paths in enumerate(models.IN_REGIONS[name]):
        part = out / "part"
        build_package(net.get_submodule(paths[0]), example, dynamic_shapes=None, out=part, cpu_isa="X86_64_V3")
        made, library = Target.read(part / TARGET_FILE), f"region-{number}.so"
        (part / LIBRARY_FILE).rename(out / library)
        regions.append(RegionSpec(paths=paths, call=made.call, package=replace(made.package, library=library)))
        shutil.rmtree(part)
    Target(identity=described.identity, call=call, regions=tuple(regions)).write(out / TARGET_FILE)


def packages(out: Path, names: Iterable[str] = tuple(models.MODELS)) -> dict[str, Path]:
    """The folder of each model's package, below `out`; what is not in the cache is built.

    What a module is, is described anew: that is under test, and takes no compiler.
    """
    folder = cache()
    names = list(names)
    for name in names:
        if not (folder / name).is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
            build(name, partial)
            try:
                partial.rename(folder / name)
            except OSError:  # another run was faster
                shutil.rmtree(partial)
        place = out / name
        place.mkdir(parents=True)
        for library in (folder / name).glob("*.so"):
            (place / library.name).symlink_to(library)
        target = Target.read(folder / name / TARGET_FILE)
        replace(target, identity=identity.describe(models.make(name)).identity).write(place / TARGET_FILE)
    return {name: out / name for name in names}
