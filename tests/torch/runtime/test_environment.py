"""Which artifacts a process takes at all: everything that does not fit, or cannot be read, is left and named."""

import json
import shutil

import pytest
import torch

from preheat_compiler.package import ExampleCall, build_package
from preheat_runtime import warm
from preheat_runtime.fingerprint import usable_flags
from preheat_runtime.revision import load
from seen import close

pytestmark = pytest.mark.torch

MISSES = {
    "torch": ({"torch": "2.99.0"}, "artifact has 2.99.0"),
    "torch's build": ({"torch_build": "0123456789ab"}, "artifact has " + torch.__version__ + "@0123456789ab"),
    "python": ({"python": "3.99"}, "artifact has 3.99"),
    "machine": ({"machine": "riscv64"}, "artifact has riscv64"),
    "CPU": ({"cpu_isa": "Native:avx2,amx_of_the_future"}, "CPU lacks amx_of_the_future"),
    "unknown class": ({"cpu_isa": "X86_64_V9"}, "CPU class X86_64_V9"),
    "GPU": ({"device": "cuda", "gpu_name": "NVIDIA H900"}, "H900"),
    "settings": ({"settings": {"deterministic": "true"}}, "deterministic is false in the pod, artifact has true"),
}


@pytest.mark.parametrize(("changes", "words"), MISSES.values(), ids=MISSES.keys())
@torch.no_grad()
def test_another_environment_goes_to_torch(pod, compiled, trap_package, nets, changes, words):
    if "device" in changes and torch.cuda.is_available():
        changes = {**changes, "gpu_name": "NVIDIA H900"}
    pod.write((trap_package[0], pod.entry(trap_package[0], **changes)))
    served = compiled(nets.trap())
    assert not compiled.served(lambda: served(torch.randn(4, 16)))
    (line,) = compiled.lines
    assert line["outcome"] == "cold"
    assert words in line["reason"]


@pytest.mark.parametrize(
    ("fetch", "words"),
    [
        (None, "fetch left no word"),
        ({"outcome": "Failed", "reason": "StoreUnreachable", "message": "no route"}, "StoreUnreachable: no route"),
        ({"outcome": "NoRevision", "reason": "", "message": ""}, "no revision was ready"),
        (["nonsense"], "fetch left no word"),
    ],
)
@torch.no_grad()
def test_without_a_revision_the_pod_says_what_fetch_said(pod, compiled, nets, fetch, words):
    pod.root.mkdir(parents=True)
    if fetch is not None:
        (pod.root / "fetch.json").write_text(json.dumps(fetch))
    compiled(nets.trap())(torch.randn(4, 16))
    assert compiled.fallbacks == 1
    (line,) = compiled.lines
    assert words in line["reason"]
    assert line["manifest"] is None


@pytest.mark.parametrize("file", ["manifest.json", "target.json", "model.so"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"formatVersion": 2}', b"\x00garbage" * 100])
@torch.no_grad()
def test_files_that_are_nonsense_never_stop_a_model(pod, compiled, trap_package, tmp_path, nets, file, content):
    folder = tmp_path / "copy"
    shutil.copytree(trap_package[0], folder)
    pod.write((folder, pod.entry(folder)))
    place = pod.root / "revision" / file if file == "manifest.json" else folder / file
    place.unlink() if content is None else place.write_bytes(content)
    net = nets.trap()
    served = compiled(net)
    x = torch.randn(4, 16)
    for _ in range(2):
        torch.testing.assert_close(served(x), net(x))
    # A library is opened when it is first run, and where it fails eager is asked.
    expected = (0, {"eager"}) if file == "model.so" else (2, {"cold"})
    outcomes = {line["outcome"] for line in compiled.lines if line["event"] == "preheat"}
    assert (compiled.fallbacks, outcomes) == expected


@torch.no_grad()
def test_verdicts_without_a_package_are_named(pod, compiled, trap_described, nets):
    failed = pod.entry(trap_described, verdict="Failed", reason="OutOfMemory", tier=None, bucket="big")
    pod.write((trap_described, failed))
    served = compiled(nets.trap())
    assert not compiled.served(lambda: served(torch.randn(4, 16)))
    assert "main/big/cpu: Failed, OutOfMemory" in compiled.lines[0]["reason"]


@torch.no_grad()
def test_a_package_is_asked_before_a_verdict_against_one(pod, compiled, trap_package, trap_described, nets):
    rejected = pod.entry(trap_described, verdict="Rejected", reason="SpeedupBelowMinimum", tier=None, bucket="a-slow")
    pod.write((trap_package[0], pod.entry(trap_package[0], bucket="z-range")), (trap_described, rejected))
    net = nets.trap()
    served = compiled(net)
    served(torch.randn(4, 16))
    served(torch.randn(5, 16))
    assert [(line["outcome"], line["bucket"]) for line in compiled.lines] == [("hot", "z-range")]


@torch.no_grad()
def test_each_bucket_answers_its_own_calls(pod, compiled, trap_package, trap_described, nets):
    rejected = pod.entry(trap_described, verdict="Rejected", reason="SpeedupBelowMinimum", tier=None, bucket="four")
    pod.write((trap_described, rejected))
    net = nets.trap()
    served = compiled(net)
    assert compiled.served(lambda: served(torch.randn(4, 16)))
    assert not compiled.served(lambda: served(torch.randn(5, 16)))
    first, second = compiled.lines
    assert (first["when"], first["outcome"], first["bucket"]) == ("first-answer", "eager", "four")
    assert (second["when"], second["outcome"]) == ("changed", "cold")
    assert "four: argument x: has shape (5, 16)" in second["reason"]


@torch.no_grad()
def test_several_modules_of_a_process_are_answered_each_by_its_own(pod, compiled, trap_package, cache, tmp_path, nets):
    """As an encoder and a decoder of one model are."""
    x, folder = torch.randn(4, 16), tmp_path / "tied"
    folder.mkdir()
    build_package(nets.tied(), ExampleCall(args=(x,)), dynamic_shapes=None, out=folder, cpu_isa="X86_64_V3")
    encoder = (trap_package[0], pod.entry(trap_package[0], module="encoder"))
    pod.write(encoder, (folder, pod.entry(folder, module="decoder", bucket="one")))
    modules = {"encoder": nets.trap(seed=4), "another encoder": nets.trap(seed=5), "decoder": nets.tied()}
    served = {name: compiled(module) for name, module in modules.items()}
    for _ in range(2):  # in turns
        for name, module in modules.items():
            close(served[name](x), module(x))
    assert not compiled.fallbacks
    said = [(line["module"], line["bucket"], line["outcome"], line["class"]) for line in compiled.lines]
    assert said == [("encoder", "batch", "hot", "Trap"), ("decoder", "one", "hot", "Tied")], "each bucket once"


def test_caches_are_not_used_where_the_pod_has_its_own_directory(pod, trap_described, tmp_path):
    pod.write((trap_described, pod.entry(trap_described, tier="caches")))
    revision = load({"PREHEAT_DIR": str(pod.root)})
    assert [candidate.kind for candidate in revision.candidates] == ["caches"]
    own = {"PREHEAT_WORK_DIR": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": "/mine"}
    assert "TORCHINDUCTOR_CACHE_DIR" in warm.prepare(revision.candidates, own)
    assert "PREHEAT_WORK_DIR" in warm.prepare(revision.candidates, {})
    assert "cannot be copied" in warm.prepare(revision.candidates, {"PREHEAT_WORK_DIR": str(tmp_path)})


def test_caches_filled_natively_on_another_cpu_are_refused(pod, trap_described, tmp_path):
    """Even by a better CPU, which would compile for its own vectors what was written for shorter ones."""
    lesser = ",".join(sorted({"avx2", "fma"} & usable_flags()))
    pod.write((trap_described, pod.entry(trap_described, tier="caches", cpu_isa=f"Native:{lesser}")))
    revision = load({"PREHEAT_DIR": str(pod.root)})
    assert [candidate.kind for candidate in revision.candidates] == ["caches"]  # all that the code needs is here
    assert "Native on another CPU" in warm.prepare(revision.candidates, {"PREHEAT_WORK_DIR": str(tmp_path)})
    assert not list(tmp_path.glob("inductor*"))
