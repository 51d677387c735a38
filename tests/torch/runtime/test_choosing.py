"""Several artifacts of one module in one revision: which of them answers, whatever their buckets are called."""

import pytest
import torch

from preheat_runtime import native, warm
from seen import close

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 64).view(4, 16)


@pytest.fixture
def revision(pod, trap_package, static_package, trap_described, monkeypatch):
    """Lays out those that are asked for; by its name what shall come last would come first."""
    monkeypatch.setattr(warm, "prepare", lambda *_: None)
    there = {
        "caches": (trap_described, pod.entry(trap_described, tier="caches", bucket="a-caches")),
        "range": (trap_package[0], pod.entry(trap_package[0], bucket="b-range")),
        "fixed": (static_package, pod.entry(static_package, bucket="c-fixed")),
    }
    return lambda *names: pod.write(*map(there.get, names))


@pytest.fixture
def broken(monkeypatch, static_package):
    """The code for fixed sizes fails whenever it is run."""
    run, opened = native.Library.run, native.SharedObject.__init__

    def noted(self, path):
        opened(self, path)
        self.path = path

    def fails(self, inputs):
        if self._code.path.resolve().parent == static_package:
            raise native.NativeError("broken")
        return run(self, inputs)

    monkeypatch.setattr(native.SharedObject, "__init__", noted)
    monkeypatch.setattr(native.Library, "run", fails)


def said(compiled):
    return [(line["outcome"], line["bucket"]) for line in compiled.lines if line["event"] == "preheat"]


@torch.no_grad()
def test_fixed_sizes_come_before_a_range_and_the_range_answers_the_rest(compiled, revision, net):
    revision("range", "fixed")
    served = compiled(net)
    for batch in (4, 5, 4, 32, 2):
        x = torch.randn(batch, 16)
        close(served(x), net(x))
    assert not compiled.fallbacks
    assert said(compiled) == [("hot", "c-fixed"), ("hot", "b-range")]


@torch.no_grad()
def test_both_packages_get_the_weights_that_the_module_gets(compiled, revision, net, nets):
    revision("range", "fixed")
    served, calls = compiled(net), (X, X.repeat(2, 1))
    before = [served(x)["y"] for x in calls]
    net.load_state_dict(nets.trap(seed=9).state_dict(), assign=True)
    for x, old in zip(calls, before, strict=True):
        close(served(x), net(x))
        assert (served(x)["y"] - old).abs().max() > 1e-3
    assert not compiled.fallbacks


@pytest.mark.parametrize(("package", "bucket"), [("range", "b-range"), ("fixed", "c-fixed")])
@torch.no_grad()
def test_a_package_comes_before_caches(compiled, revision, net, package, bucket):
    """Also a range before caches for just these sizes."""
    revision("caches", package)
    served = compiled(net)
    assert compiled.served(lambda: close(served(X), net(X)))
    assert said(compiled) == [("hot", bucket)]


@torch.no_grad()
def test_what_fails_again_and_again_is_followed_by_the_next_that_fits(compiled, revision, net, broken):
    revision("caches", "range", "fixed")
    served = compiled(net)
    for _ in range(5):
        close(served(X), net(X))
    assert compiled.fallbacks == 0
    assert said(compiled) == [("eager", "c-fixed"), ("hot", "b-range")]


@torch.no_grad()
def test_caches_answer_where_the_process_forbids_packages(compiled, revision, net):
    revision("caches", "range", "fixed")
    served = compiled(net)
    with torch.enable_grad():
        served(X)["y"].sum().backward()
    assert net.square.weight.grad is not None
    assert compiled.served(lambda: close(served(X), net(X)))
    assert said(compiled) == [("warm", "a-caches"), ("hot", "c-fixed")]
