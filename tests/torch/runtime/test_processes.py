"""Fresh processes in a pod: what is imported, what is logged, and that no pod fails."""

import json

import pytest
import torch

import kept
from preheat_compiler.package import ExampleCall, build_package
from preheat_runtime.fingerprint import missing_flags, needed_isa, usable_flags
from seen import ONE_ANSWER

pytestmark = pytest.mark.torch


def test_hot_without_a_compiler_and_without_importing_one(pod, trap_package):
    pod.write((trap_package[0], pod.entry(trap_package[0])))
    out, lines = pod.python(ONE_ANSWER)
    assert out.strip() == "[]"
    (line,) = lines
    assert (line["event"], line["outcome"], line["reason"]) == ("preheat", "hot", "package")
    assert (line["model"], line["module"], line["bucket"], line["hardware"]) == ("vision", "main", "batch", "cpu")
    assert line["manifest"].startswith("sha256:")
    assert 0 < line["firstAnswerSeconds"] <= line["sinceCompileSeconds"]
    assert [json.loads(text) for text in (pod.work / "reports.jsonl").read_text().splitlines()] == lines


def test_another_torch_is_eager_without_a_compiler_and_says_both(pod, trap_package):
    pod.write((trap_package[0], pod.entry(trap_package[0], torch="2.99.0")))
    out, (line,) = pod.python(ONE_ANSWER)
    assert out.strip() == "[]"
    assert (line["outcome"], line["reasonClass"]) == ("eager", "TorchDiffers")
    assert f"torch {torch.__version__} in the pod, artifact has 2.99.0" in line["reason"]
    assert "no C++ compiler" in line["reason"]


def test_a_rejected_target_runs_eagerly_and_says_why(pod, trap_described):
    rejected = pod.entry(trap_described, verdict="Rejected", reason="SpeedupBelowMinimum", tier=None, bucket="slow")
    pod.write((trap_described, rejected))
    out, (line,) = pod.python(ONE_ANSWER)
    assert out.strip() == "[]"
    assert (line["outcome"], line["bucket"]) == ("eager", "slow")
    assert line["reason"] == "SpeedupBelowMinimum: 1.02 times as fast as eager"


DECORATED = """
import torch, nets
net = nets.trap(seed=5)
model = torch.compile(dynamic=False)(net)
x = torch.randn(4, 16)

@torch.compile
def never_called(x):
    return x

@torch.compile(backend="eager")
def twice(x):
    return model(x)["y"] * 2

with torch.no_grad():
    torch.testing.assert_close(model(x)["y"], net(x)["y"], rtol=1e-4, atol=1e-5)
    assert type(model)._preheat_wrapper
    torch.testing.assert_close(twice(x), net(x)["y"] * 2)
assert twice.__name__ == "twice" and not hasattr(type(twice), "_preheat_wrapper")
"""


def test_as_a_decorator_torch_asks_its_own_name_again_which_is_ours(pod, trap_package):
    pod.write((trap_package[0], pod.entry(trap_package[0])))
    _, lines = pod.python(DECORATED)
    assert [(line["outcome"], line["class"]) for line in lines] == [
        ("cold", "never_called"),
        ("cold", "twice"),
        ("hot", "Trap"),
    ]
    assert all("artifacts are of modules" in line["reason"] for line in lines[:2])


def test_disabled_or_elsewhere_torch_is_untouched(pod, trap_package):
    pod.write((trap_package[0], pod.entry(trap_package[0])))
    script = "import torch; print(torch.compile.__module__, hasattr(torch.compile, '_preheat'))"
    assert pod.python(script) == ("torch True\n", [])
    assert pod.python(script, PREHEAT_DISABLE="1") == ("torch False\n", [])


def test_the_log_can_be_turned_off_and_a_process_that_never_calls_says_so(pod, trap_package):
    pod.write((trap_package[0], pod.entry(trap_package[0])))
    assert pod.python(ONE_ANSWER, PREHEAT_LOG="off")[1] == []
    _, (line,) = pod.python("import torch, nets; torch.compile(nets.trap())")
    assert (line["when"], line["outcome"]) == ("exit", None)


def test_a_forked_child_answers_and_reports_for_itself(pod, trap_package):
    pod.write((trap_package[0], pod.entry(trap_package[0])))
    script = """
import os, torch, nets
torch.set_num_threads(1)
net = nets.trap(seed=2)
model = torch.compile(net)
x = torch.randn(4, 16)
with torch.no_grad():
    model(x)
    child = os.fork()
    if child == 0:
        net.scale.fill_(0.5)
        ok = torch.allclose(model(x)["y"], net(x)["y"], rtol=1e-4, atol=1e-5)
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.allclose(model(x)["y"], net(x)["y"], rtol=1e-4, atol=1e-5)
"""
    _, lines = pod.python(script, timeout=120)
    assert [line["outcome"] for line in lines] == ["hot", "hot"]
    assert len({line["pid"] for line in lines}) == 2


def test_a_changed_model_is_compiled_by_torch_itself(pod, trap_package):
    """The one test that lets the real torch.compile compile: the package is for other code."""
    pod.write((trap_package[0], pod.entry(trap_package[0])))
    script = """
import torch, nets
nets.GAIN = 3.0
net = nets.trap()
model = torch.compile(net, dynamic=False)
x = torch.randn(4, 16)
with torch.no_grad():
    assert torch.allclose(model(x)["y"], net(x)["y"], rtol=1e-4, atol=1e-5)
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""
    out, (line,) = pod.python(script, compiler=True)
    assert out.strip() == "1"
    assert line["outcome"] == "cold"
    assert "the code of the module (Trap), or something it uses, differs" in line["reason"]


def test_mobilenet_is_hot(pod, tmp_path_factory, cache):
    import torchvision

    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("mobilenet")
    net = torchvision.models.mobilenet_v3_large().eval()
    call = ExampleCall(args=(torch.randn(1, 3, 224, 224),))

    def build(place):
        return str(build_package(net, call, dynamic_shapes=None, out=place, cpu_isa="X86_64_V3"))

    kept.made(out, build, "mobilenet")
    pod.write((out, pod.entry(out, bucket="one")))
    script = """
import sys, time, torch, torchvision
torch.manual_seed(11)
net = torchvision.models.mobilenet_v3_large().eval()
for part in net.modules():
    if isinstance(part, torch.nn.BatchNorm2d):
        part.running_mean.normal_(0, 0.1); part.running_var.uniform_(0.5, 1.5)
model = torch.compile(net)
x = torch.randn(1, 3, 224, 224)
with torch.inference_mode():
    error = (model(x) - net(x)).abs().max().item() / net(x).abs().max().item()
assert error < 1e-4, error
print("torch._inductor.compile_fx" in sys.modules, "torch._dynamo.symbolic_convert" in sys.modules)
"""
    _, (line,) = pod.python(script)
    assert line["outcome"] == "hot"


def test_caches_are_warm_even_after_inductor_was_imported(pod, caches):
    pod.write((caches, pod.entry(caches, tier="caches")))
    _, (line,) = pod.python("import torch._inductor.config\n" + ONE_ANSWER, compiler=True)
    assert (line["outcome"], line["reason"]) == ("warm", "compiler caches"), line


def test_processes_that_a_warm_one_starts_are_warm_too(pod, caches):
    """They find set what it set for torch; that is not the pod's own, and holds their torch's kernels to no CPU class."""
    pod.write((caches, pod.entry(caches, tier="caches")))
    child = (
        ONE_ANSWER + "import os\nprint([name for name in os.environ if 'CPU_CAPABILITY' in name or 'MARCH' in name])"
    )
    script = ONE_ANSWER + f"\nimport subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}], check=True)"
    out, lines = pod.python(script, compiler=True)
    assert [(line["outcome"], line["reason"]) for line in lines] == [("warm", "compiler caches")] * 2, lines
    assert len({line["pid"] for line in lines}) == 2
    assert out.split()[-1] == "[]"


def test_a_limit_of_the_pod_s_own_to_torchs_kernels_hides_no_caches(pod, caches):
    pod.write((caches, pod.entry(caches, tier="caches")))
    _, (line,) = pod.python(ONE_ANSWER, compiler=True, ATEN_CPU_CAPABILITY="default")
    assert (line["outcome"], line["reason"]) == ("warm", "compiler caches"), line


def test_what_another_thread_compiles_meanwhile_was_not_missing_in_the_caches(pod, caches):
    """torch's figures are those of the process."""
    pod.write((caches, pod.entry(caches, tier="caches")))
    script = """
import threading, torch, nets
from torch import nn
x, other = torch.randn(4, 16), torch.compile(nn.Sequential(nn.Linear(16, 16), nn.Tanh()).eval())
net = nets.trap()
served = torch.compile(net)
inside, done = threading.Event(), threading.Event()

def another():
    inside.wait(100)
    with torch.no_grad():
        other(x)
    done.set()

thread = threading.Thread(target=another)
thread.start()
fallback = served._preheat_server._fallback_of
def entered(choice):  # after it has begun to count
    inside.set()
    done.wait(200)
    return fallback(choice)
served._preheat_server._fallback_of = entered
with torch.no_grad():
    assert torch.allclose(served(x)["y"], net(x)["y"], rtol=1e-4, atol=1e-5)
thread.join()
counted = torch._dynamo.utils.counters["inductor"]
print(counted["fxgraph_cache_hit"], counted["fxgraph_cache_miss"])
"""
    out, lines = pod.python(script, compiler=True)
    assert out.split() == ["1", "1"]
    assert {line["class"]: (line["outcome"], line["reason"]) for line in lines}["Trap"] == ("warm", "compiler caches")


def test_caches_filled_for_one_cpu_class_are_a_clean_miss_for_another(pod, caches):
    """torch's own key does not tell classes apart: it would take this for a hit, and compute nonsense from it."""
    classes = ("X86_64_V4", needed_isa("Native"))
    other = next(each for each in classes if not missing_flags(each, usable_flags()))
    pod.write((caches, pod.entry(caches, tier="caches", cpu_isa=other)))
    _, (line,) = pod.python(ONE_ANSWER, compiler=True)  # which compares the answer with eager's
    assert (line["outcome"], line["reason"]) == ("cold", "the compiler caches did not hold it"), line
