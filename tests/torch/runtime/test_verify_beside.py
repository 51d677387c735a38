"""Checks of answers beside what serves: in threads, at forks and at the end of a process they are in nobody's way."""

import threading

import pytest
import torch

from preheat_runtime import examine, serve, verify
from seen import close, records

pytestmark = pytest.mark.torch


@torch.no_grad()
def test_after_leaves_the_threads_that_serve_alone(serving, net, monkeypatch):
    import os

    compiled = serving()
    seen = []
    real = examine.difference

    def look(*args):
        mkl = "mkl_get_max_threads() : 1\n" in torch.__config__.parallel_info() or not torch.backends.mkl.is_available()
        seen.append((torch.get_num_threads(), mkl, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
        return real(*args)

    monkeypatch.setattr(examine, "difference", look)
    torch.set_num_threads(2)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    served = compiled(net)
    served(torch.randn(4, 16))
    compiled.wait()
    assert seen == [(1, True, min(19, own + 10))]
    assert (torch.get_num_threads(), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())) == (2, own)


def test_a_thread_that_was_served_the_package_alone_looks_at_torchs_threads_before_the_check_does(
    serving, net, monkeypatch
):
    """In a forked child the first two looks at once raise in one of the two, which would be an operator of the user's."""
    compiled = serving()
    looked, own = [], torch.__config__.parallel_info

    def look():
        looked.append(threading.current_thread().name)
        return own()

    served, x = compiled(net), torch.randn(4, 16)
    monkeypatch.setattr(torch.__config__, "parallel_info", look)
    user = threading.Thread(target=torch.no_grad()(lambda: served(x)), name="user")
    user.start()
    user.join()
    compiled.wait()
    assert looked[0] == "user"
    assert "preheat-check" in looked


def threads_call(served, x, count):
    answers, begin = [], threading.Barrier(count)

    def call():
        with torch.no_grad():
            begin.wait()
            answers.extend(served(x)["y"] for _ in range(20))

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_threads_that_call_meanwhile_are_served_and_there_is_one_check(serving, net, gate):
    compiled = serving()
    served, x = compiled(net), torch.randn(4, 16)
    answers = threads_call(served, x, count=8)
    assert len([thread for thread in threading.enumerate() if thread.name == "preheat-check"]) == 1
    gate.set()
    compiled.wait()
    with torch.no_grad():
        for answer in answers:
            close(answer, net(x)["y"])
    assert len(answers) == 160
    assert compiled.checks == ["preheat-check"]
    assert not compiled.fallbacks


def test_before_lets_no_thread_have_a_wrong_answer(serving, net, wrong):
    compiled = serving("verify=Before")
    served, x = compiled(net), torch.randn(4, 16)
    answers = threads_call(served, x, count=2 * verify.MAX_CHECKS)
    with torch.no_grad():
        for answer in answers:
            close(answer, net(x)["y"])
    assert len(answers) == 640
    assert len(records(compiled.lines, "preheat-mismatch")) == 1


@torch.no_grad()
def test_a_model_with_new_weights_all_the_time_is_not_checked_for_ever(serving, net, nets):
    compiled = serving("verify=Before")
    served, x = compiled(net), torch.randn(4, 16)
    state = nets.trap(seed=9).state_dict()
    for _ in range(verify.MAX_CHECKS + 5):
        net.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True)
        served(x)
        served(x)
    assert len(compiled.checks) == verify.MAX_CHECKS
    assert serve.session().verifier.wrong == {}


WRONG = """
import atexit, os, sys, threading, time
import torch, nets
atexit.register(lambda: print("alive", [t.name for t in threading.enumerate() if t.name == "preheat-check"]))
torch.set_num_threads(1)
from preheat_runtime import examine, native
bind = native.Library.bind
def others(self, tensors):
    bind(self, {name: each.detach() * 1.5 for name, each in tensors.items()})
    self.has, self._bound = self._bound, [tensors[name].detach() for name in self.constants]
native.Library.bind = others
real, begun, hold = examine.run, threading.Event(), True
def run(module, args, kwargs, stop):
    begun.set()
    while hold and not stop():
        time.sleep(0.01)
    return real(module, args, kwargs, stop)
examine.run = run
def wait():
    for thread in threading.enumerate():
        if thread.name == "preheat-check":
            thread.join()
net = nets.trap(seed=2)
model = torch.compile(net)
x = torch.randn(4, 16)
with torch.no_grad():
    model(x)
assert begun.wait(60)
"""


def test_the_end_of_the_process_stops_a_check(pod, place):
    place()
    out, lines = pod.python(WRONG)
    assert out == "alive []\n"
    assert [line["event"] for line in lines] == ["preheat"]


def test_a_fork_stops_a_check_and_both_go_on_checking(pod, place):
    place()
    out, lines = pod.python(
        WRONG
        + """
checks = lambda: [thread.name for thread in threading.enumerate() if thread.name == "preheat-check"]
os.register_at_fork(after_in_parent=lambda: print("forked with", checks()))
child = os.fork()
hold = False
with torch.no_grad():
    model(x)
wait()
with torch.no_grad():
    right = torch.equal(model(x)["y"], net(x)["y"])
if child == 0:
    os._exit(0 if right else 3)
_, status = os.waitpid(child, 0)
print(right, os.waitstatus_to_exitcode(status))
"""
    )
    assert out == "forked with []\nTrue 0\nalive []\n"
    mismatches = records(lines, "preheat-mismatch")
    assert len({line["pid"] for line in mismatches}) == len(mismatches) == 2


def test_a_check_imports_no_compiler(pod, place):
    place()
    out, lines = pod.python(
        """
import sys, threading, torch, nets
model = torch.compile(nets.trap())
with torch.no_grad():
    model(torch.randn(4, 16))
for thread in threading.enumerate():
    if thread.name == "preheat-check":
        thread.join()
from preheat_runtime import serve
print([check.due for fitting in model._preheat_server.chooser.fitting for check in [fitting.check]])
print(sorted(name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))))
"""
    )
    assert out == "[False]\n[]\n"
    assert [line["outcome"] for line in lines] == ["hot"]
