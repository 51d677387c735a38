"""Experiments on packages: are they weightless, can they be bound, streamed, moved, and what they cannot hold."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import building
import nets
from c_abi import Container
from context import Context, Experiment

if TYPE_CHECKING:
    from pathlib import Path


def facts_of_the_machine(context: Context) -> None:
    """Everything a fingerprint could be made of."""
    import platform
    import shutil
    import sys
    from pathlib import Path

    import torch

    context.note(
        torch=torch.__version__, cuda=torch.version.cuda, python=sys.version.split()[0], platform=platform.platform(),
        cpus=os.cpu_count(), cpuCapability=torch.backends.cpu.get_cpu_capability(),
        tools={name: shutil.which(name) for name in ("g++", "gcc", "nvcc", "ptxas", "cuobjdump", "nvidia-smi")},
    )  # fmt: skip

    def triton_version() -> str:
        import triton

        return str(triton.__version__)

    context.attempt("triton", triton_version)
    context.attempt("driverFile", lambda: Path("/proc/driver/nvidia/version").read_text().splitlines()[0])
    context.attempt(
        "nvidiaSmi",
        lambda: subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total,mig.mode.current", "--format=csv"],
            capture_output=True, text=True, timeout=30, check=True,
        ).stdout.splitlines(),
    )  # fmt: skip
    if torch.cuda.is_available():
        context.note(
            devices=[
                {"name": each.name, "capability": f"{each.major}.{each.minor}", "memoryMB": each.total_memory // 2**20}
                for each in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
            ],
            architectures=torch.cuda.get_arch_list(),
        )

    def observed() -> dict[str, Any]:
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "compiler_job"))
        from preheat_runtime import fingerprint

        return fingerprint.observe(cpu_isa="X86_64_V3", device=context.device.partition(":")[0]).to_json()

    context.attempt("preheatFingerprint", observed)


def _build(name: str) -> Any:
    def run(context: Context) -> None:
        folder = context.shared / f"build-{name}"
        net, x = nets.make(name, context.device), nets.inputs(name, context.device)
        archive = building.build(net, x, folder)
        context.note(**building.contents(archive), archiveBytes=archive.stat().st_size)
        context.note(build=json.loads((folder / "build.json").read_text()))
        unpacked = building.unpack(archive, folder / "unpacked")
        # Others need the package, whether or not this torch's C interface can be used.
        context.attempt("cInterface", lambda: _weightless(net, x, *unpacked, device=context.device))

    return run


def _weightless(net: Any, x: Any, library: Path, kernels: Path, *, device: str) -> dict[str, Any]:
    """Which weights the code does not ask for, and how right it is with these and with others."""
    container = Container(library, device=device, kernels=kernels)
    wanted = {name for name, tensor in building.weights_of(net).items() if tensor.is_floating_point()}
    asked = set(container.constants.values())
    container.bind(building.weights_of(net))
    first = nets.error(container.run([x])[0], net(x))
    building.randomise(net, 7)
    return {
        "constants": len(asked),
        "weightsNotAmongThem": sorted(wanted - asked),
        "error": first,
        "errorAfterOtherWeights": nets.error(container.run([x])[0], net(x)),
    }


def documented_options(context: Context) -> None:
    """Build as torch's documentation says, and see which weights are gone into the code."""
    net, x = nets.make("cnn", context.device), nets.inputs("cnn", context.device)
    archive = building.build(net, x, context.work / "package", options=building.DOCUMENTED)
    unpacked = building.unpack(archive, context.work / "unpacked")
    context.note(**_weightless(net, x, *unpacked, device=context.device))


def variants(context: Context) -> None:
    """Device code inside the library; for several architectures at once."""
    net, x = nets.make("cnn", context.device), nets.inputs("cnn", context.device)
    for name in ("embed_kernel_binary", "emit_multi_arch_kernel"):
        options = {**building.WEIGHTLESS, f"aot_inductor.{name}": True}

        def one(name: str = name, options: dict[str, Any] = options) -> dict[str, Any]:
            archive = building.build(net, x, context.work / name, options=options)
            library, _ = building.unpack(archive, context.work / name / "unpacked")
            nowhere = context.work / "nowhere"
            container = Container(library, device=context.device, kernels=nowhere)
            container.bind(building.weights_of(net))
            alone = nets.error(container.run([x])[0], net(x))
            return {**building.contents(archive), "errorWithTheLibraryAlone": alone}

        context.attempt(name, one)


def loader(context: Context) -> None:
    """torch's own loader: does a user-managed constant stay where it is?"""
    import torch

    archive = context.shared / "build-block" / "model.pt2"
    net, x = nets.make("block", context.device), nets.inputs("block", context.device)
    cuda = context.device.startswith("cuda")

    def used() -> tuple[int, int]:
        return (torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]) if cuda else (0, 0)

    found = torch._C._aoti.AOTIModelPackageLoader(str(archive), "model", False, 1, -1)
    context.note(metadata=found.get_metadata())
    before = used()
    found.load_constants(building.weights_of(net), False, True, True)
    after = used()
    context.note(
        weightsMB=sum(each.nbytes for each in building.weights_of(net).values()) / 2**20,
        allocatedByBindingMB=(after[0] - before[0]) / 2**20, takenOnDeviceMB=(before[1] - after[1]) / 2**20,
    )  # fmt: skip
    with torch.no_grad():
        context.note(error=nets.error(found.run([x])[0], net(x)))
        for parameter in net.parameters():
            parameter.mul_(1.5)
        context.note(errorAfterChangeInPlace=nets.error(found.run([x])[0], net(x)))


def package_of(context: Context, net: str) -> tuple[Path, Path]:
    """Library and device code that `build-<net>` left."""
    (library,) = (context.shared / f"build-{net}" / "unpacked").rglob("*.so")
    return library, library.parent


def bound_package(context: Context, name: str, *, device: str | None = None, runners: int = 1) -> tuple[Any, Any, Any]:
    device = device or context.device
    net, x = nets.make(name, device), nets.inputs(name, device)
    library, kernels = package_of(context, name)
    container = Container(library, device=device, kernels=kernels, runners=runners)
    container.bind(building.weights_of(net))
    return container, net, x


def streams(context: Context) -> None:
    """Which stream does the code run on: the given one, the current one, or the default?"""
    import torch

    container, net, x = bound_package(context, "block")
    side, current, probe, free = (torch.cuda.Stream() for _ in range(4))
    default = torch.cuda.default_stream()
    for stream in (side, current, default):  # what is allocated at a first run would wait for the whole device
        container.run([x], stream=stream.cuda_stream)
    torch.cuda.synchronize()

    def run(stream: Any, blocked: Any, seed: int) -> dict[str, Any]:
        """Give the run `stream` while `blocked` is busy: an answer that is there meanwhile was not made on `blocked`."""
        x = nets.inputs("block", context.device, seed=seed)
        wanted = net(x).cpu()
        early = torch.empty_like(wanted).pin_memory()
        torch.cuda.synchronize()
        with torch.cuda.stream(blocked):
            torch.cuda._sleep(2_000_000_000)
        begin = time.perf_counter()
        with torch.cuda.stream(current):
            seen = container.run([x], stream=None if stream is None else stream.cuda_stream)[0]
        returned = time.perf_counter() - begin
        time.sleep(0.2)
        with torch.cuda.stream(probe):
            early.copy_(seen, non_blocking=True)
        probe.synchronize()
        busy = not blocked.query()
        torch.cuda.synchronize()
        return {
            "returnedAfterMs": returned * 1e3,
            "answeredWhileBlocked": nets.error(early, wanted) < 1e-3 if busy else "the block was over",
            "error": nets.error(seen.cpu(), wanted),
        }

    context.attempt("given side, side blocked", lambda: run(side, side, 2))
    context.attempt("given side, another blocked", lambda: run(side, free, 3))
    context.attempt("given side, default blocked", lambda: run(side, default, 4))
    context.attempt("given side, current blocked", lambda: run(side, current, 5))
    context.attempt("given none, current blocked", lambda: run(None, current, 6))
    context.attempt("given none, default blocked", lambda: run(None, default, 7))


def another_device(context: Context) -> None:
    """A package built on device 0, on device 1; where there is one device, on the same under another visible order."""
    import torch

    context.note(devices=torch.cuda.device_count(), visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
    device = f"cuda:{torch.cuda.device_count() - 1}"
    for given in (device, "cuda"):

        def one(given: str = given) -> dict[str, Any]:
            net, x = nets.make("block", device), nets.inputs("block", device)
            library, kernels = package_of(context, "block")
            container = Container(library, device=given, kernels=kernels)
            container.bind(building.weights_of(net))
            seen = container.run([x])[0]
            return {"device": str(seen.device), "error": nets.error(seen, net(x))}

        context.attempt(f"createdWith {given}, tensors on {device}", one)


def visible_by_uuid() -> dict[str, str]:
    """Names the first GPU by its UUID, so that its index is found in another way than when the package was built."""
    try:
        said = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    uuids = [line.partition("UUID: ")[2].rstrip(") ") for line in said.splitlines() if line.startswith("GPU ")]
    return {"CUDA_VISIBLE_DEVICES": ",".join(reversed(uuids))} if uuids else {}


def wrong_inputs(context: Context) -> None:
    """Inputs of another device, shape or stride, with the library's own check of its inputs on."""
    os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
    container, net, x = bound_package(context, "block")
    bad = {"batch": x[:1], "strides": x.transpose(0, 1).contiguous().transpose(0, 1), "dtype": x.double()}
    if context.device != "cpu":
        bad["device"] = x.cpu()
    for name, each in bad.items():
        context.attempt(
            name, lambda each=each: f"answered, error {nets.error(container.run([each])[0][:1], net(x)[:1])}"
        )


EXPERIMENTS = (
    Experiment(name="machine", question="What can a fingerprint be made of?", run=facts_of_the_machine, seconds=60),
    Experiment(name="build-cnn", question="Is a package weightless, and what is in it? (a small CNN)", run=_build("cnn"), seconds=150),
    Experiment(name="build-block", question="The same of a transformer block", run=_build("block"), seconds=150),
    Experiment(name="documented-options", question="Which weights are baked in when built as documented?", run=documented_options, seconds=120),
    Experiment(name="variants", question="Can device code be inside the library, or for several architectures?", run=variants, seconds=150),
    Experiment(name="loader", question="Does torch's loader bind without a copy?", run=loader, seconds=60, needs=("build-block",)),
    Experiment(name="wrong-inputs", question="Does the library notice wrong inputs?", run=wrong_inputs, seconds=60, needs=("build-block",)),
    Experiment(name="streams", question="Which stream does the C interface run on?", run=streams, seconds=60, cuda_only=True, alone=True, needs=("build-block",)),
    Experiment(name="another-device", question="Does a package run on another device index?", run=another_device, seconds=60, cuda_only=True, needs=("build-block",)),
    Experiment(name="device-by-uuid", question="The same, with devices named by UUID", run=another_device, seconds=60, cuda_only=True, needs=("build-block",), environment=visible_by_uuid),
)  # fmt: skip
