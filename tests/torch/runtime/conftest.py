"""A pod's /opt/preheat made of freshly built packages, without a store and without a cluster."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

import emulation
import kept
from preheat_compiler.package import DimRange, ExampleCall, build_package, describe_target
from preheat_runtime import examine, fingerprint, native, report, serve, verify
from preheat_runtime import package as contract
from preheat_runtime.environment import CACHE_DIRECTORY, cache_environment, cache_key_tag, isa_environment
from preheat_runtime.manifest import File, Manifest, Piece, Target

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "compiler_job"
#: Of what is compiled here.
INPUTS = ("compiler_job", "tests/torch/runtime/nets.py")


def load_nets(name="nets_of_the_pod"):
    spec = importlib.util.spec_from_file_location(name, HERE / "nets.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def nets():
    return load_nets()


@pytest.fixture
def net(nets):
    """A Trap as it is in the pod: with other weights than the Job had."""
    return nets.trap(seed=3)


def file_entry(path: Path, name: str) -> File:
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    piece = Piece(sha256=digest, size=len(data), stored_size=len(data), encoding="identity")
    return File(path=name, size=len(data), sha256=digest, pieces=(piece,) if data else ())


def entry(
    directory: Path, *, module="main", bucket="batch", verdict="Kept", reason="Faster", tier="package", **changes
):
    seen = fingerprint.observe(cpu_isa="X86_64_V3")
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return Target(
        module=module,
        bucket=bucket,
        hardware="cpu",
        verdict=verdict,
        reason=reason,
        message="1.02 times as fast as eager" if verdict == "Rejected" else "",
        tier=tier,
        request_key="0" * 64,
        fingerprint=replace(seen, **changes).to_json(),
        figures={},
        files=tuple(file_entry(path, path.relative_to(directory).as_posix()) for path in paths),
    )


@dataclass
class Pod:
    """A folder laid out as /opt/preheat; `python` runs a script in a fresh process as the container would."""

    root: Path

    def write(self, *targets: tuple[Path, Target]) -> Pod:
        for directory, target in targets:
            place = self.root / "revision" / target.folder
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(directory)
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "revision").mkdir(exist_ok=True)
        manifest = Manifest(
            namespace="default", name="vision", uid="u", revision="vision-1", image="i:1", image_python_path=None,
            targets=tuple(sorted((target for _, target in targets), key=lambda each: each.key)),
        )  # fmt: skip
        (self.root / "revision" / "manifest.json").write_bytes(manifest.to_bytes())
        return self

    entry = staticmethod(entry)

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def site(self) -> Path:
        """The folder with the runtime, made when absent."""
        site = self.root / "site"
        if not site.exists():
            site.mkdir(parents=True)
            (site / "preheat_runtime").symlink_to(SOURCES / "preheat_runtime")
            info = site / "preheat_runtime-0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: preheat-runtime\nVersion: 0\n")
            (info / "entry_points.txt").write_text("[torch.backends]\npreheat = preheat_runtime.hook:autoload\n")
        return site

    def environment(self, *, compiler=False, **environ: str) -> dict[str, str]:
        """That of the serving container; without `compiler` nothing on its PATH can compile."""
        self.work.mkdir(exist_ok=True)
        env = {
            **os.environ,
            "PYTHONPATH": f"{self.site}:{HERE}",
            "PREHEAT_DIR": str(self.root),
            "PREHEAT_WORK_DIR": str(self.work),
            "PREHEAT_MODEL": "vision",
            "CUDA_VISIBLE_DEVICES": "",
        }
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "PREHEAT_DISABLE"):
            env.pop(name, None)
        if not compiler:
            env["PATH"] = str(self.site)
        return {**env, **environ}

    def python(self, script: str, *, timeout=300, compiler=False, cpu: str | None = None, **environ: str):
        env = self.environment(compiler=compiler, **environ)
        command = [*emulation.command(cpu), sys.executable, "-c", script]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout, self.said(done.stderr)

    @staticmethod
    def said(text: str) -> list[dict[str, object]]:
        """The runtime's lines in a log, but for the one that says that it is there."""
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] != "preheat-loaded"]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Inductor's own caches, kept between the builds of one run."""
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = before or str(tmp_path_factory.mktemp("inductor"))
    yield
    if before is None:
        del os.environ["TORCHINDUCTOR_CACHE_DIR"]


@pytest.fixture(scope="session")
def trap_package(tmp_path_factory, cache):
    """Trap for batches of 2 to 32; gives (folder, PackageInfo)."""
    out = tmp_path_factory.mktemp("trap")
    net = load_nets("nets_of_the_job").trap()
    info = build_package(
        net,
        ExampleCall(args=(torch.randn(4, 16),)),
        dynamic_shapes={"x": {0: DimRange(name="batch", minimum=2, maximum=32)}},
        out=out,
        cpu_isa="X86_64_V3",
    )
    return out, info


@pytest.fixture(scope="session")
def static_package(tmp_path_factory, cache):
    """Trap for a batch of 4 and no other."""
    out = tmp_path_factory.mktemp("static")
    net = load_nets("nets_of_the_job").trap()
    build_package(net, ExampleCall(args=(torch.randn(4, 16),)), dynamic_shapes=None, out=out, cpu_isa="X86_64_V3")
    return out


@pytest.fixture(scope="session")
def trap_described(tmp_path_factory):
    """Only target.json of Trap for a batch of 4."""
    out = tmp_path_factory.mktemp("described")
    net = load_nets("nets_of_the_job").trap()
    describe_target(net, ExampleCall(args=(torch.randn(4, 16),)), dynamic_shapes=None, out=out, cpu_isa="X86_64_V3")
    return out


WARM = """
import sys, os, torch
torch.backends.cpu.get_cpu_capability()
os.environ.update({isa!r})
torch.compiler.config.cache_key_tag = {tag!r}
import nets
with torch.no_grad():
    torch.compile(nets.trap())(torch.randn(4, 16))
"""


@pytest.fixture(scope="session")
def caches(tmp_path_factory):
    """A caches artifact for Trap, filled for X86_64_V3."""
    folder = tmp_path_factory.mktemp("caches") / "artifact"
    caches = folder / CACHE_DIRECTORY
    caches.mkdir(parents=True)
    net = load_nets("nets_of_the_job").trap()
    describe_target(net, ExampleCall(args=(torch.randn(4, 16),)), dynamic_shapes=None, out=folder, cpu_isa="X86_64_V3")
    env = {**os.environ, **cache_environment(), "PYTHONPATH": str(HERE)}
    script = WARM.format(isa=isa_environment("X86_64_V3"), tag=cache_key_tag("X86_64_V3"))

    def fill(place: Path) -> str:
        return subprocess.run(
            [sys.executable, "-c", script], env={**env, "TORCHINDUCTOR_CACHE_DIR": str(place)}, check=True, timeout=300,
            capture_output=True, text=True,
        ).stderr  # fmt: skip

    kept.made(caches, fill, script, inputs=INPUTS)
    return folder


@pytest.fixture
def pod(tmp_path):
    return Pod(root=tmp_path / "preheat")


def forget_the_process():
    """As in a new process, which reads its environment."""
    serve.session.cache_clear()
    report.of_this_process.cache_clear()


class Compiled:
    """What torch.compile returned, who answered each call, and the lines that were logged."""

    def __init__(self, capfd, monkeypatch, pod):
        forget_the_process()
        monkeypatch.setenv("PREHEAT_DIR", str(pod.root))
        monkeypatch.delenv("PREHEAT_WORK_DIR", raising=False)
        monkeypatch.setattr("atexit.register", lambda function: None)
        self.fallbacks = 0
        self._capfd = capfd

    def __call__(self, model, **arguments):
        def real(model, **arguments):
            def compiled(*args, **kwargs):
                self.fallbacks += 1
                return model(*args, **kwargs)

            return compiled

        return serve.serve(real, model, arguments)

    @property
    def lines(self):
        return [json.loads(line) for line in self._capfd.readouterr().err.splitlines() if line.startswith("{")]

    @staticmethod
    def wait():
        """Until no check of an answer runs."""
        for thread in threading.enumerate():
            if thread.name == "preheat-check":
                thread.join()

    def served(self, call):
        """Whether the package answered this call, as a number of fallbacks that did not happen."""
        before = self.fallbacks
        call()
        return self.fallbacks == before


@pytest.fixture
def compiled(capfd, monkeypatch, pod):
    made = Compiled(capfd, monkeypatch, pod)
    yield made
    made.wait()  # nothing is registered that would stop a check at the process's end
    forget_the_process()


@pytest.fixture
def hot(pod, compiled, trap_package):
    """torch.compile in a pod that holds Trap's package."""
    pod.write((trap_package[0], entry(trap_package[0])))
    return compiled


@pytest.fixture
def place(pod, trap_package, tmp_path):
    """Puts Trap's package into the pod, with another contract or other figures if need be."""

    def put(*, figures=None, **changes):
        directory = tmp_path / "artifact"
        directory.mkdir()
        for path in trap_package[0].iterdir():
            (directory / path.name).write_bytes(path.read_bytes())
        target = contract.Target.read(directory / contract.TARGET_FILE)
        replace(target, **changes).write(directory / contract.TARGET_FILE)
        pod.write((directory, replace(pod.entry(directory), figures=figures or {})))

    return put


@pytest.fixture
def serving(compiled, monkeypatch, place):
    """torch.compile in a pod with Trap's package and a policy; `checks` has the thread of every eager run."""

    def start(text="", **more):
        place(**more)
        monkeypatch.setenv("PREHEAT_SERVING", text)
        compiled.checks = []
        real = examine.run

        def noted(*args):
            compiled.checks.append(threading.current_thread().name)
            return real(*args)

        monkeypatch.setattr(examine, "run", noted)
        return compiled

    yield start
    compiled.wait()


@pytest.fixture
def wrong(monkeypatch):
    """Whatever is bound from now on gets other weights, behind its back: it says that it has those it was given."""
    real = native.Library.bind

    def bind(self, tensors):
        real(self, {name: tensor.detach() * 1.5 for name, tensor in tensors.items()})
        self.has, self._bound = self._bound, [tensors[name].detach() for name in self.constants]

    monkeypatch.setattr(native.Library, "bind", bind)


@pytest.fixture
def gate(monkeypatch, compiled):
    """Holds every check on the side at its beginning until it is opened."""
    opened = threading.Event()
    real = verify._be_modest

    def held():
        assert opened.wait(60)
        real()

    monkeypatch.setattr(verify, "_be_modest", held)
    yield opened
    opened.set()
    compiled.wait()
