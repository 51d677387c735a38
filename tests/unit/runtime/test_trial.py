"""Running a module once more: the same answer, and nobody can tell afterwards."""

import functools
import io
import logging
import threading
from collections import OrderedDict, deque
from types import SimpleNamespace

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


FREE = [0, 1]


class Slot:
    """A handle as of a C library: a number, which is given back when its holder ends."""

    def __init__(self):
        self.number = FREE.pop()

    def __del__(self):
        FREE.append(self.number)

    def read(self):
        return self.number


class Plainly(Slot):
    """As those have it that keep a logger or the like out of their pickles."""

    def __getstate__(self):
        return dict(self.__dict__)


class Slotted:
    __slots__ = ("slot",)


class ModuleWithASlot(Counts):
    def __init__(self):
        super().__init__()
        self.number = FREE.pop()

    def __del__(self):
        FREE.append(self.number)


class ListWithASlot(list):
    __del__ = ModuleWithASlot.__del__


def in_slots():
    made = Slotted()
    made.slot = Slot()
    return made


def in_a_list():
    made = ListWithASlot()
    made.number = FREE.pop()
    return made


HOLDERS = {
    "itself": Slot,
    "with a state of its own": Plainly,
    "in a list": lambda: [1, (2, [Slot()])],
    "in a dict": lambda: {"slot": {1: Slot()}},
    "as a key": lambda: {Slot(): 1},
    "in a set": lambda: {1, Slot()},
    "in an OrderedDict": lambda: OrderedDict(slot=Slot()),
    "in a deque": lambda: deque([Slot()]),
    "in an object": lambda: SimpleNamespace(inner=SimpleNamespace(slot=Slot())),
    "in slots": in_slots,
    "by its method": lambda: Slot().read,
    "by a partial": lambda: functools.partial(print, Slot()),
    "a list itself": in_a_list,
    "a submodule": ModuleWithASlot,
    "in a submodule": lambda: nn.Sequential(Holding(Slot())),
}


class Holding(Counts):
    def __init__(self, held):
        super().__init__()
        self.held = held


@pytest.mark.parametrize("make", HOLDERS.values(), ids=HOLDERS)
def test_what_gives_something_back_at_its_end_is_not_copied(make):
    """The copy would give back what the module still uses; of a file descriptor or C's memory that is a double free."""
    assert sorted(FREE) == [0, 1]
    net = Holding(make())
    with pytest.raises(NotRepeatable, match=r"the copy would run \w+\.__del__ once more"):
        once_more(net, torch.randn(2, 4))
    assert len(FREE) == 1
    del net
    assert sorted(FREE) == [0, 1]


class Shared(Slot):
    def __deepcopy__(self, memo):
        return self


class Anew(Slot):
    def __reduce__(self):
        return Anew, ()


class Handler(logging.Handler):
    def __del__(self):
        raise AssertionError("never ends")


@pytest.mark.parametrize("kind", [Shared, Anew])
def test_what_is_copied_in_its_own_way_is_copied(kind):
    net = Holding([kind()])
    other = twin(net, net.parameters())
    assert (other.held[0] is net.held[0]) == (kind is Shared)
    assert len(FREE) == (1 if kind is Shared else 0)
    del other
    assert len(FREE) == 1
    del net
    assert sorted(FREE) == [0, 1]


def test_what_a_copy_does_not_hold_may_have_an_end_of_its_own():
    """A logger is copied as its name, a function with what it closes over as itself, what `compile()` put there not at all."""
    slot, handler = Slot(), Handler()
    logger = logging.getLogger("preheat.tests.of.copies")
    logger.addHandler(handler)
    try:
        for innocent in (logger, lambda: slot, io.BytesIO(b"bytes"), iter([1, 2]), Slot):
            net = Holding([innocent])
            net._compiled_call_impl = slot.read
            assert twin(net, net.parameters()).linear.weight is net.linear.weight
        assert list(net.held) == [Slot]
    finally:
        logger.removeHandler(handler)
        Handler.__del__ = lambda self: None
    assert len(FREE) == 1


def test_items_that_are_given_once_are_not_used_up():
    net = Holding(iter([1, 2, 3]))
    assert list(twin(net, net.parameters()).held) == [1, 2, 3]
    assert list(net.held) == [1, 2, 3]


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


class Together(nn.Module):
    """Talks to other processes, by code that nobody reads before it runs."""

    def forward(self, x):
        y = x + 1
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(y)
        return y


def test_other_processes_are_not_talked_to():
    """They would take it for another of theirs, and every one after it as well."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    x = torch.zeros(2)
    assert once_more(Together(), x).tolist() == [1, 1]
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        with pytest.raises(NotRepeatable, match=r"it talks to other processes \(c10d\.allreduce_"):
            once_more(Together(), x)
        with pytest.raises(NotRepeatable, match="it talks to other processes"):
            once_more(Functional(), x)
    finally:
        torch.distributed.destroy_process_group()


class Functional(nn.Module):
    def forward(self, x):
        return torch.ops._c10d_functional.all_reduce(x, "sum", "0")
