"""A package's first answer is held against eager's: wrong ones are dropped, and nothing else is ever disturbed."""

import pytest
import torch

from preheat_runtime import examine, native, verify
from seen import close, records

pytestmark = pytest.mark.torch


@torch.no_grad()
def test_before_returns_eagers_answer_when_the_package_is_wrong(serving, net, wrong, nets):
    compiled = serving("verify=Before")
    served, x = compiled(net), torch.randn(4, 16)
    close(served(x), net(x))
    close(served(x), net(x))
    assert compiled.checks == ["MainThread"] * 3, "the weights had not changed, and it is not rounding"
    other = nets.trap(seed=8)
    close(compiled(other)(x), other(x))
    lines = compiled.lines
    assert [line["outcome"] for line in records(lines, "preheat")] == ["eager"]
    assert "differed from eager's by" in records(lines, "preheat")[0]["reason"]
    (record,) = records(lines, "preheat-mismatch")
    assert (record["module"], record["bucket"], record["verify"]) == ("main", "batch", "Before")
    assert float(record["error"]) > float(record["allowed"]) == 1e-3


@torch.no_grad()
def test_a_wrong_answer_that_others_see_is_compared_as_it_is(serving, net, monkeypatch):
    compiled = serving("verify=Before")
    real = native.Library.run

    def run(self, inputs):
        return [each if each is None else each * float("nan") for each in real(self, inputs)]

    monkeypatch.setattr(native.Library, "run", run)
    served, x = compiled(net), torch.randn(4, 16)
    close(served(x), net(x))
    (record,) = records(compiled.lines, "preheat-mismatch")
    assert record["error"] == "inf"
    assert "NaN or infinity" in record["reason"]


@pytest.mark.parametrize("mode", ["Before", "After"])
@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
def test_a_right_package_is_checked_once_and_again_when_it_is_bound_again(serving, net, nets, mode, grad):
    compiled = serving(f"verify={mode}")
    served, x = compiled(net), torch.randn(4, 16)
    with grad():
        for _ in range(3):
            assert compiled.served(lambda: served(x))
            compiled.wait()
        assert len(compiled.checks) == 1
        net.load_state_dict(nets.trap(seed=9).state_dict(), assign=True)
        for _ in range(3):
            assert compiled.served(lambda: close(served(x), net(x)))
            compiled.wait()
    assert compiled.checks == ["MainThread" if mode == "Before" else "preheat-check"] * 2
    assert [line["outcome"] for line in compiled.lines] == ["hot"]


@torch.no_grad()
def test_after_drops_a_wrong_package_for_all_its_bindings(serving, net, nets, wrong):
    compiled = serving()
    served, x = compiled(net), torch.randn(4, 16)
    first = served(x)["y"]
    assert not torch.allclose(first, net(x)["y"], rtol=1e-2)
    compiled.wait()
    assert set(compiled.checks) == {"preheat-check"}
    other = nets.trap(seed=8)
    for model, module in ((served, net), (compiled(other), other)):
        close(model(x), module(x))
    lines = compiled.lines
    assert [line["outcome"] for line in records(lines, "preheat")] == ["hot", "eager"]
    assert len(records(lines, "preheat-mismatch")) == 1
    assert not compiled.fallbacks, "what was found wrong is not compiled by the same compiler"


@torch.no_grad()
def test_on_reject_decides_for_a_wrong_package_too(serving, net, wrong):
    compiled = serving("verify=Before,onReject=Compile,onMiss=Fail")
    served, x = compiled(net), torch.randn(4, 16)
    close(served(x), net(x))
    assert not compiled.fallbacks
    close(served(x), net(x))
    assert compiled.fallbacks == 1
    assert "onReject is Compile" in records(compiled.lines, "preheat")[-1]["reason"]


@torch.no_grad()
def test_never_leaves_it_to_the_compile_job(serving, net, wrong):
    compiled = serving("verify=Never")
    served, x = compiled(net), torch.randn(4, 16)
    for _ in range(3):
        assert not torch.allclose(served(x)["y"], net(x)["y"], rtol=1e-2)
    compiled.wait()
    assert compiled.checks == []
    assert [line["outcome"] for line in compiled.lines] == ["hot"]


@pytest.mark.parametrize("mode", ["Before", "After"])
@torch.no_grad()
def test_the_error_it_was_proved_with_is_the_one_that_is_allowed(serving, net, mode):
    compiled = serving(f"verify={mode}", max_error="0")
    served, x = compiled(net), torch.randn(32, 16)
    served(x)
    compiled.wait()
    (record,) = records(compiled.lines, "preheat-mismatch")
    assert 0 < float(record["error"]) < 1e-5
    assert record["allowed"] == "0"


@torch.no_grad()
def test_after_compares_the_inputs_and_the_answer_as_they_were(serving, net, gate):
    compiled = serving()
    served, x = compiled(net), torch.randn(4, 16)
    answer = served(x)
    x.zero_()
    answer["y"].zero_()
    gate.set()
    compiled.wait()
    assert compiled.checks == ["preheat-check"]
    assert compiled.served(lambda: served(x))
    assert records(compiled.lines, "preheat-mismatch") == []


CHANGES = {
    "copy_": lambda net, other: net.square.weight.copy_(other.square.weight),
    "behind torch's counts": lambda net, other: net.square.weight.data.copy_(other.square.weight),
    "assign": lambda net, other: net.load_state_dict(other.state_dict(), assign=True),
    "data": lambda net, other: setattr(net.square.weight, "data", other.square.weight.data),
    "train": lambda net, other: net.train(),
    "hook": lambda net, other: net.register_forward_hook(lambda *_: None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@torch.no_grad()
def test_weights_that_change_meanwhile_make_the_check_void(serving, net, nets, gate, change):
    compiled = serving()
    served, x = compiled(net), torch.randn(4, 16)
    served(x)
    change(net, nets.trap(seed=8))
    gate.set()
    compiled.wait()
    assert [line["event"] for line in compiled.lines] == ["preheat"]
    net.eval()
    net._forward_hooks.clear()
    done = len(compiled.checks)
    assert compiled.served(lambda: close(served(x), net(x)))
    compiled.wait()
    assert len(compiled.checks) == done + 1, "the next answer is checked in its place"
    assert compiled.served(lambda: served(x))
    compiled.wait()
    assert len(compiled.checks) == done + 1


@torch.no_grad()
def test_inference_tensors_have_no_counts_and_are_checked_all_the_same(serving, nets, gate):
    with torch.inference_mode():
        compiled, net = serving(), nets.trap(seed=3)
        served, x = compiled(net), torch.randn(4, 16)
        served(x)
        net.square.weight.mul_(3)
        gate.set()
        compiled.wait()
        assert [line["event"] for line in compiled.lines] == ["preheat"]
        assert compiled.served(lambda: close(served(x), net(x)))
        compiled.wait()
    assert records(compiled.lines, "preheat-mismatch") == []


@torch.no_grad()
def test_a_call_above_the_bound_is_not_checked_and_a_smaller_one_is(serving, net, wrong, monkeypatch):
    monkeypatch.setattr(verify, "MAX_KEPT_BYTES", 4 * (2 * 16 + 2 * 8 + 2 * 16))
    compiled = serving()
    served = compiled(net)
    for batch in (32, 3, 32):
        served(torch.randn(batch, 16))
        compiled.wait()
    assert compiled.checks == []
    (record,) = records(lines := compiled.lines, "preheat-unchecked")
    assert "bytes" in record["reason"]
    assert records(lines, "preheat-mismatch") == []
    served(torch.randn(2, 16))
    compiled.wait()
    assert len(records(compiled.lines, "preheat-mismatch")) == 1


@torch.no_grad()
def test_without_room_for_an_eager_run_there_is_none(serving, net, wrong):
    compiled = serving(figures={"eagerPeakBytes": "1000000000000000"})
    served, x = compiled(net), torch.randn(4, 16)
    for _ in range(2 * verify.MAX_CHECKS):
        served(x)
        compiled.wait()
    assert compiled.checks == []
    (record,) = records(compiled.lines, "preheat-unchecked")
    assert "MiB are free" in record["reason"]


@pytest.mark.parametrize("mode", ["Before", "After"])
@torch.no_grad()
def test_a_module_that_draws_or_writes_is_not_run_again(serving, net, monkeypatch, mode):
    class Draws(torch.nn.Module):
        def forward(self, x):
            return torch.rand_like(x)

    monkeypatch.setattr(examine, "twin", lambda module, tensors: Draws())
    compiled = serving(f"verify={mode}")
    served, x = compiled(net), torch.randn(4, 16)
    before = torch.get_rng_state()
    for _ in range(3):
        assert compiled.served(lambda: close(served(x), net(x)))
        compiled.wait()
    assert torch.equal(torch.get_rng_state(), before)
    assert len(compiled.checks) == 1
    (record,) = records(compiled.lines, "preheat-unchecked")
    assert "random numbers" in record["reason"]


@pytest.mark.parametrize("broken", ["twin", "run", "difference", "versions", "kept"])
@pytest.mark.parametrize("mode", ["Before", "After"])
@torch.no_grad()
def test_a_check_that_fails_harms_nobody(serving, net, monkeypatch, mode, broken):
    def fails(*args):
        raise RuntimeError("broken")

    compiled = serving(f"verify={mode}")
    monkeypatch.setattr(verify if hasattr(verify, broken) else examine, broken, fails)
    served, x = compiled(net), torch.randn(4, 16)
    for _ in range(3):
        assert compiled.served(lambda: close(served(x), net(x)))
        compiled.wait()
    said = records(compiled.lines, "preheat-error")
    assert len(said) == (0 if (mode, broken) == ("Before", "kept") else 1)
