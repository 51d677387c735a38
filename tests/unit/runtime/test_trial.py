"""Running a module once more: the same answer, and nobody can tell afterwards."""

import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from preheat_runtime.trial import NotRepeatable, Stopped, run, twin
from preheat_runtime.verify import Modes


def once_more(net, *args, stop=lambda: False):
    tensors = [*net.parameters(), *net.buffers()]
    return run(twin(net, tensors), args, {}, stop)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0
        self.seen = []
        self.parts = {"linear": self.linear}

    def forward(self, x):
        self.calls += 1
        self.seen.append(x.shape)
        y = torch.empty_like(x)
        y.copy_(self.parts["linear"](x)).relu_()
        return y.view(-1)


@torch.no_grad()
def test_the_twin_has_the_same_weights_and_its_own_attributes():
    net = Counts()
    x = torch.randn(2, 4)
    answer = once_more(net, x)
    assert (net.calls, net.seen) == (0, [])
    other = twin(net, net.parameters())
    assert other.linear.weight is net.linear.weight
    assert other.parts["linear"] is other.linear
    assert torch.equal(answer, net(x))


class Itself(Counts):
    def __deepcopy__(self, memo):
        return self


def test_what_copies_as_itself_is_not_run_again():
    for net in (Itself(), nn.Sequential(Counts(), Itself())):
        with pytest.raises(NotRepeatable, match="__deepcopy__"):
            once_more(net, torch.randn(2, 4))
        assert all(part.calls == 0 for part in net.modules() if isinstance(part, Counts))


class Writes(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros(4))
        self.embedding = nn.Parameter(torch.full((4, 4), 10.0), requires_grad=False)
        self.how = how

    def forward(self, x):
        return self.how(self, x)


WRITES = {
    "buffer": lambda net, x: x + net.steps.add_(1),
    "view of a buffer": lambda net, x: x + net.steps[:2].mul_(0).sum(),
    "out": lambda net, x: torch.add(net.steps, 1, out=net.steps) + x,
    "input": lambda net, x: x.relu_(),
    "parameter": lambda net, x: x @ net.linear.weight.data.zero_(),
    "norm of an embedding": lambda net, x: F.embedding(torch.tensor([1, 2]), net.embedding, max_norm=1.0) + x,
    "statistics": lambda net, x: F.batch_norm(x, net.steps, net.steps.clone(), training=True),
    "statistics of instances": lambda net, x: F.instance_norm(x[None, :, None], net.steps[:2], net.steps[2:] + 1),
}
DRAWS = {
    "rand": lambda net, x: x + torch.rand(4),
    "dropout": lambda net, x: F.dropout(x, training=True),
    "in place": lambda net, x: torch.empty(2, 4).normal_() + x,
    "attention": lambda net, x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5),
}
HARMLESS = {
    "norm without statistics": lambda net, x: F.instance_norm(x[None]) + F.batch_norm(x, None, None, training=True),
    "dropout": lambda net, x: F.dropout(x, training=False),
    "attention": lambda net, x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    "batch norm": lambda net, x: F.batch_norm(x, net.steps, net.steps + 1, training=False),
    "its own tensors": lambda net, x: torch.zeros(2, 4).add_(x).t().mul_(2).t(),
}


@pytest.mark.parametrize("how", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_what_would_write_stops_before_it_does(how, mode):
    with mode():
        net, x = Writes(how), torch.randn(2, 4)
        before = [tensor.clone() for tensor in (x, *net.parameters(), *net.buffers())]
        with pytest.raises(NotRepeatable, match="it writes to"):
            once_more(net, x)
        assert all(map(torch.equal, before, (x, *net.parameters(), *net.buffers())))


@pytest.mark.parametrize("how", DRAWS.values(), ids=DRAWS)
@torch.no_grad()
def test_what_would_draw_random_numbers_stops_before_it_does(how):
    net, x = Writes(how), torch.randn(2, 4)
    before = torch.get_rng_state()
    with pytest.raises(NotRepeatable, match="it draws random numbers"):
        once_more(net, x)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("how", HARMLESS.values(), ids=HARMLESS)
@torch.no_grad()
def test_what_leaves_no_trace_runs_to_its_end(how):
    net, x = Writes(how), torch.randn(2, 4)
    assert torch.equal(once_more(net, x), net(x))


@torch.no_grad()
def test_the_modules_code_cannot_go_on_after_a_refusal():
    def stubborn(net, x):
        try:
            return x + torch.rand(4)
        except BaseException:
            return x * 2

    with pytest.raises(NotRepeatable, match="random"):
        once_more(Writes(stubborn), torch.randn(2, 4))
    assert torch._C._len_torch_dispatch_stack() == 0


@torch.no_grad()
def test_it_ends_when_it_is_asked_to():
    calls = []

    def stop():
        calls.append(1)
        return len(calls) > 1

    with pytest.raises(Stopped):
        once_more(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), torch.randn(2, 4), stop=stop)


@torch.no_grad()
def test_errors_and_what_cannot_be_copied_are_told_without_their_words():
    def wrong(net, x):
        raise ValueError(f"secret {x}")

    with pytest.raises(NotRepeatable, match=r"^eager raised ValueError$"):
        once_more(Writes(wrong), torch.randn(2, 4))
    net = Counts()
    net.lock = threading.Lock()
    with pytest.raises(NotRepeatable, match="cannot be copied"):
        twin(net, net.parameters())


def test_the_modes_of_one_thread_are_entered_in_another():
    seen = []
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        modes = Modes.now()

    def look():
        with modes.entered():
            seen.append(Modes.now())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [modes]
    assert (modes.inference, modes.autocast, modes.autocast_dtype) == (True, True, torch.bfloat16)
