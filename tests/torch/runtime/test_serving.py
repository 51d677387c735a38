"""`onMiss` and `onReject`: who answers a call that nothing compiled answers, or whose target was not good enough."""

from dataclasses import replace

import pytest
import torch

from preheat_runtime import fingerprint
from preheat_runtime.policy import NotServed

pytestmark = pytest.mark.torch


@pytest.fixture
def serving(compiled, monkeypatch):
    def start(text):
        monkeypatch.setenv("PREHEAT_SERVING", text)
        return compiled

    return start


@pytest.fixture
def with_package(pod, trap_package):
    pod.write((trap_package[0], pod.entry(trap_package[0])))


MISSES = {
    "another call": lambda served: served(torch.randn(1, 16)),
    "another module": lambda served: [setattr(served, "factor", 2.5), served(torch.randn(4, 16))][1],
    "grad": lambda served: torch.enable_grad()(served)(torch.randn(4, 16)),
    "its library fails": lambda served: served(torch.randn(4, 16)),
}


@pytest.fixture
def miss(request, monkeypatch):
    if request.param == "its library fails":
        from preheat_runtime import native

        def fails(self, inputs):
            raise native.NativeError("broken")

        monkeypatch.setattr(native.Library, "run", fails)
    return MISSES[request.param]


@pytest.mark.parametrize("miss", MISSES, indirect=True)
@torch.no_grad()
def test_a_miss_is_compiled_by_default(serving, with_package, net, miss, request):
    compiled = serving("")
    miss(compiled(net))
    # Of a library that fails eager answers: it alone can tell whether the call is to blame.
    fails = "its library fails" in request.node.name
    assert compiled.fallbacks == (0 if fails else 1)
    outcomes = [line["outcome"] for line in compiled.lines if line["event"] == "preheat"]
    assert outcomes == ["eager" if fails else "cold"]


@pytest.mark.parametrize("miss", MISSES, indirect=True)
@torch.no_grad()
def test_a_miss_runs_eagerly_and_says_so(serving, with_package, net, miss):
    compiled = serving("onMiss=Eager")
    answer = miss(compiled(net))
    assert compiled.fallbacks == 0
    assert "y" in answer
    (line,) = [line for line in compiled.lines if line["event"] == "preheat"]
    assert line["outcome"] == "eager"
    assert line["reason"].endswith("; onMiss is Eager")
    assert len(line["reason"]) > len("; onMiss is Eager") + 10


@pytest.mark.parametrize("miss", MISSES, indirect=True)
@torch.no_grad()
def test_a_miss_fails_at_the_call_and_says_why(serving, with_package, net, miss, monkeypatch):
    monkeypatch.setenv("PREHEAT_MODEL", "vision")
    compiled = serving("onMiss=Fail")
    served = compiled(net)
    for _ in range(2):
        with pytest.raises(NotServed, match=r"CompiledModel vision.*spec\.serving\.onMiss"):
            miss(served)
    assert compiled.fallbacks == 0
    said = [(line["outcome"], line["when"]) for line in compiled.lines if line["event"] == "preheat"]
    assert said[0] == ("refused", "first-answer")
    assert {outcome for outcome, _ in said} == {"refused"}


@torch.no_grad()
def test_what_is_answered_is_answered_whatever_is_done_with_the_rest(serving, with_package, net):
    compiled = serving("onMiss=Fail")
    served, x = compiled(net), torch.randn(4, 16)
    assert compiled.served(lambda: served(x))
    with pytest.raises(NotServed, match="has shape"):
        served(torch.randn(1, 16))
    assert compiled.served(lambda: served(x))


@torch.no_grad()
def test_nothing_in_the_pod_is_a_miss_too(serving, pod, net):
    compiled = serving("onMiss=Fail")
    with pytest.raises(NotServed, match="fetch left no word"):
        compiled(net)(torch.randn(4, 16))


@torch.no_grad()
def test_a_mode_that_nothing_was_made_with_is_a_miss_and_another_backend_is_torchs(serving, with_package, net):
    compiled = serving("onMiss=Fail")
    with pytest.raises(NotServed, match="mode='max-autotune'"):
        compiled(net, mode="max-autotune")(torch.randn(4, 16))
    compiled(net, backend="eager")(torch.randn(4, 16))
    assert compiled.fallbacks == 1


@pytest.fixture
def rejected(pod, trap_described):
    entry = pod.entry(trap_described, verdict="Rejected", reason="SpeedupBelowMinimum", tier=None, bucket="slow")
    pod.write((trap_described, entry))


@pytest.mark.parametrize(
    ("text", "fallbacks", "outcome"),
    [
        ("", 0, "eager"),
        ("onMiss=Fail", 0, "eager"),
        ("onReject=Compile", 1, "cold"),
        ("onReject=Compile,onMiss=Eager", 1, "cold"),
        ("onReject=Compile,onMiss=Fail", 1, "cold"),
    ],
)
@torch.no_grad()
def test_a_rejected_target(serving, rejected, net, text, fallbacks, outcome):
    compiled = serving(text)
    compiled(net)(torch.randn(4, 16))
    assert compiled.fallbacks == fallbacks
    (line,) = compiled.lines
    assert (line["outcome"], line["bucket"]) == (outcome, "slow")
    assert ("onReject is Compile" in line["reason"]) == bool(fallbacks)


@torch.no_grad()
def test_caches_come_before_what_is_done_with_a_miss(serving, pod, trap_described, net, monkeypatch, tmp_path):
    from preheat_runtime import warm

    monkeypatch.setattr(warm, "prepare", lambda *_: None)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "caches"))
    pod.write((trap_described, pod.entry(trap_described, tier="caches")))
    compiled = serving("onMiss=Fail")
    compiled(net)(torch.randn(4, 16))
    assert compiled.fallbacks == 1
    assert [line["outcome"] for line in compiled.lines] == ["warm"]


@torch.no_grad()
def test_an_odd_word_is_said_and_the_default_holds(serving, with_package, net):
    compiled = serving("onMiss=Cold")
    compiled(net)(torch.randn(1, 16))
    assert compiled.fallbacks == 1
    said = [line["reason"] for line in compiled.lines if line["event"] == "preheat-error"]
    assert len(said) == 1
    assert "'onMiss=Cold' is not one of onMiss=Compile|Eager|Fail" in said[0]


def test_without_a_compiler_a_rejected_target_is_eager_all_the_same(pod, rejected):
    _, (line,) = pod.python(
        "import torch, nets\nmodel = torch.compile(nets.trap())\nwith torch.no_grad(): model(torch.randn(4, 16))",
        PREHEAT_SERVING="onReject=Compile",
    )
    assert (line["outcome"], line["reasonClass"]) == ("eager", "NoCompiler"), "onReject asks for one"
    assert "no C++ compiler" in line["reason"]


@torch.no_grad()
@pytest.mark.parametrize("own", ["a", "z"])
def test_of_what_fits_that_is_served_which_was_made_for_this_cpu(own, pod, compiled, static_package, nets):
    """Whatever the profiles are called."""
    of_all = replace(pod.entry(static_package), hardware="m")
    of_this = replace(pod.entry(static_package, cpu_isa=fingerprint.needed_isa("Native")), hardware=own)
    pod.write((static_package, of_all), (static_package, of_this))
    net, x = nets.trap(seed=3), torch.randn(4, 16)
    torch.testing.assert_close(compiled(net)(x), net(x), rtol=1e-4, atol=1e-5)
    (said,) = [line for line in compiled.lines if line["event"] == "preheat"]
    assert (said["outcome"], said["hardware"]) == ("hot", own)
