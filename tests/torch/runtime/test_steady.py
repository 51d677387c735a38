"""A pod says once how its later answers compare with the Job's, and what it says changes no answer."""

from dataclasses import replace

import pytest
import torch

from preheat_runtime.steady import SKIPPED, TIMED

pytestmark = pytest.mark.torch


@torch.no_grad()
def test_it_is_said_once(pod, compiled, static_package, nets):
    entry = replace(pod.entry(static_package), figures={"compiledP50Ms": "0.001"})
    pod.write((static_package, entry))
    net = nets.trap(seed=3)
    served, x = compiled(net), torch.randn(4, 16)
    right = net(x)
    served(x)
    compiled.wait()  # calls that come while an answer is checked are not timed
    for _ in range(SKIPPED + TIMED + 100):
        torch.testing.assert_close(served(x), right, rtol=1e-4, atol=1e-5)
    (said,) = [line for line in compiled.lines if line["event"] == "preheat-steady"]
    assert (said["module"], said["bucket"], said["hardware"]) == ("main", "batch", "cpu")
    assert said["timesTheJobs"] == pytest.approx(said["medianMs"] / 0.001, rel=0.01)


@torch.no_grad()
def test_without_a_figure_nothing_is_said(pod, compiled, static_package, nets):
    pod.write((static_package, pod.entry(static_package)))
    served, x = compiled(nets.trap(seed=3)), torch.randn(4, 16)
    served(x)
    compiled.wait()
    for _ in range(SKIPPED + TIMED + 10):
        assert compiled.served(lambda: served(x))
    assert [line["event"] for line in compiled.lines] == ["preheat"]
