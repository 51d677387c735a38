"""One model in several threads and processes, and a runtime that is imported anew: right, and never stuck."""

import contextlib
import importlib
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import preheat_runtime
from preheat_runtime import locks, native, serve
from preheat_runtime.crowd import CROWD
from preheat_runtime.processors import processors
from seen import near

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 64).view(4, 16)


def together(works):
    """Run all at the same moment; what each of them raised."""
    gate, errors = threading.Barrier(len(works)), []

    def run(work):
        gate.wait()
        try:
            with torch.no_grad():
                work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_the_first_call_comes_from_many_threads_at_once(hot, nets):
    for seed in range(10):
        net = nets.trap(seed=seed)
        served, answers = hot(net), []
        assert not together([lambda served=served, answers=answers: answers.append(served(X)) for _ in range(6)])
        with torch.no_grad():
            assert all(near(each, net(X)) for each in answers)
    assert not hot.fallbacks


def test_constants_live_as_long_as_the_calls_that_read_them(hot, net, nets):
    """Weights are replaced, and their memory is used again, while other threads are in the middle of a call."""
    served = hot(net)
    weights = [nets.trap(seed=seed).state_dict() for seed in range(3)]
    with torch.no_grad():
        expected = []
        for state in weights:
            net.load_state_dict(state)
            expected.append(net(X))
        net.load_state_dict({name: tensor.clone() for name, tensor in weights[0].items()}, assign=True)
        served(X)
    stop, wrong = threading.Event(), []

    def call():
        while not stop.is_set():
            answer = served(X)["y"]
            if not torch.isfinite(answer).all():
                wrong.append(answer)

    def replace():
        for number in range(30):
            state = {name: tensor.clone() for name, tensor in weights[number % 3].items()}
            net.load_state_dict(state, assign=True)
            torch.full((64, 64), float("nan"))
            time.sleep(0)
        stop.set()

    assert not together([call, call, call, replace])
    assert not wrong
    with torch.no_grad():
        assert near(served(X), net(X))
        assert near(served(X), expected[29 % 3])


def test_a_package_that_is_bound_anew_leaves_the_running_call_its_constants(hot, net, monkeypatch):
    """The call that began before is held inside, the module gets other weights, and then it goes on."""
    from preheat_runtime.native import Library

    served = hot(net)
    with torch.no_grad():
        before, own = served(X), Library.run
        inside, go = threading.Event(), threading.Event()

        def run(self, inputs):
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                go.wait(60)
            return own(self, inputs)

        monkeypatch.setattr(Library, "run", run)
        answers = []

        def slow():
            with torch.no_grad():
                answers.append(served(X))

        thread = threading.Thread(target=slow)
        thread.start()
        assert inside.wait(60)
        for parameter in net.parameters():
            parameter.data = torch.rand_like(parameter)
        torch.full((4096,), float("nan"))
        assert near(served(X), net(X))
        go.set()
        thread.join()
    assert near(answers[0], before)
    assert not hot.fallbacks


class Spy:
    """Sees on how many threads compiled code runs, and has it take as long as a real model's."""

    def __init__(self):
        self.seen = []

    def run(self, lanes, call, *arguments):
        def seen(*given):
            self.seen.append(torch.get_num_threads())
            time.sleep(0.001)
            return call(*given)

        return CROWD.run(lanes, seen, *arguments)


def test_calls_at_once_share_the_processors_and_are_right(hot, net, monkeypatch):
    """Four clients of a server: compiled code runs on fewer threads than it would alone, and no thread keeps that."""
    spy, served, wrong, after = Spy(), hot(net), [], []
    monkeypatch.setattr(native, "CROWD", spy)
    monkeypatch.setattr(native, "SHORT", -1.0)
    before, own = torch.get_num_threads(), max(2, processors())
    torch.set_num_threads(own)
    try:
        with torch.no_grad():
            expected = net(X)

        def client():
            wrong.extend(answer for answer in (served(X) for _ in range(200)) if not near(answer, expected))
            after.append(torch.get_num_threads())

        assert not together([client] * 4)
        assert not wrong
        assert max(spy.seen) == own
        assert min(spy.seen) <= max(1, processors() // 2)
        assert after == [own] * 4
        with torch.no_grad():
            assert near(served(X), expected)
        assert spy.seen[-1] == own
    finally:
        torch.set_num_threads(before)
    assert not hot.fallbacks


def test_calls_that_take_no_time_are_not_counted(hot, net, monkeypatch):
    """In a server of many threads they mostly wait for the interpreter's lock; beside them a large model would have one thread."""
    spy, served = Spy(), hot(net)
    monkeypatch.setattr(native, "CROWD", spy)
    monkeypatch.setattr(native, "SHORT", 60.0)
    with torch.no_grad():
        assert all(near(served(X), net(X)) for _ in range(5))
    assert not spy.seen
    assert not hot.fallbacks


def in_a_child(work):
    """The exit status of a forked child that does this; it is stopped when it hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            with torch.no_grad():
                code = 0 if work() else 2
        finally:
            os._exit(code)
    for _ in range(1800):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("parent", ["served before", "served nothing"])
def test_forked_workers_answer(hot, net, parent):
    torch.set_num_threads(1)
    served = hot(net)
    with torch.no_grad():
        if parent == "served before":
            served(X)
        assert [in_a_child(lambda: near(served(X), net(X)) and not hot.fallbacks) for _ in range(3)] == [0, 0, 0]
        assert near(served(X), net(X))


@contextlib.contextmanager
def held_by_another_thread(*held):
    """All these locks, each taken by a thread that does not let go inside."""
    taken, go = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as stack:
            for lock in held:
                stack.enter_context(lock)
            taken.set()
            go.wait(120)

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(60)
    try:
        yield
    finally:
        go.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_held_while_forking_does_not_hold_the_child(hot, net, monkeypatch):
    torch.set_num_threads(1)
    served = hot(net)
    server = served._preheat_server
    session = server._session
    held = (server._lock, server.chooser._lock, session.reporter._lock, session.verifier._lock)
    with held_by_another_thread(*held), torch.no_grad():
        assert in_a_child(lambda: near(served(X), net(X))) == 0
        # Without that it would find the lock taken, by nobody who is there to open it.
        monkeypatch.setattr(locks, "_all", ())
        assert in_a_child(lambda: not server._lock.acquire(timeout=0.5)) == 0


def test_there_is_one_kind_of_lock():
    """One that is not opened in a forked child would be found by nobody before it hangs a server."""
    folder = Path(locks.__file__).parent
    users = {
        path.name
        for path in folder.glob("*.py")
        if "threading.Lock" in path.read_text().replace("`threading.Lock`", "")
    }
    # Of those in lanes.py a thread waits for its own, and none of other threads' is in a child.
    assert users == {"lanes.py", "locks.py"}


def test_spawned_workers_answer(pod, trap_package):
    pod.write((trap_package[0], pod.entry(trap_package[0])))
    (pod.root / "workers.py").write_text(
        """
import torch, nets
def work(seed):
    net = nets.trap(seed=seed)
    with torch.no_grad():
        x = torch.randn(4, 16)
        return torch.allclose(torch.compile(net)(x)["y"], net(x)["y"], rtol=1e-4, atol=1e-5)
"""
    )
    script = f"""
import sys; sys.path.insert(0, {str(pod.root)!r})
import multiprocessing, workers
assert workers.work(1)
with multiprocessing.get_context("spawn").Pool(1) as pool:
    assert pool.map(workers.work, [2, 3]) == [True, True]
"""
    _, lines = pod.python(script)
    assert [line["outcome"] for line in lines] == ["hot"] * len(lines)
    assert len({line["pid"] for line in lines}) == 2


def test_a_runtime_that_is_imported_anew_goes_on(hot, net, nets):
    """Notebooks reload what they can; what was compiled before works on, and what is compiled after, too."""
    served = hot(net)
    with torch.no_grad():
        assert hot.served(lambda: served(X))
        before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "preheat_runtime"}
        try:
            for name in before:
                del sys.modules[name]
            anew = importlib.import_module("preheat_runtime.serve")
            assert anew is not serve
            real = lambda model, **_: model  # noqa: E731
            assert anew.serve(real, served, {}) is served
            other = nets.trap(seed=5)
            assert near(anew.serve(real, other, {})(X), other(X))
            assert near(anew.serve(real, net, {})(X), net(X))
            assert near(served(X), net(X))
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == "preheat_runtime"]:
                del sys.modules[name]
            sys.modules.update(before)
    assert importlib.reload(preheat_runtime) is preheat_runtime
    assert importlib.reload(importlib.import_module("preheat_runtime.hook")).autoload() is None
    assert not hot.fallbacks
    assert multiprocessing.active_children() == []


BUSY = """
import os, signal, sys, threading, time
from pathlib import Path
import torch
from preheat_compiler.package import ExampleCall, build_package, load_package

net = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).eval()
x = torch.randn(4096, 1024)
build_package(net, ExampleCall(args=(x,)), dynamic_shapes=None, out=Path(sys.argv[1]), cpu_isa="X86_64_V3")
with torch.no_grad():
    served, expected = load_package(Path(sys.argv[1]), net), net(x)
    right = lambda: torch.allclose(served(x), expected, rtol=1e-3, atol=1e-4)
    assert right()
    lanes = served._package._code._library._lanes
    stop = False
    def work():
        with torch.no_grad():
            while not stop:
                served(x)
    threads = [threading.Thread(target=work) for _ in range(lanes._count)]
    for thread in threads:
        thread.start()
    while len(lanes._inside) < lanes._count:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        os._exit(0 if lanes.lost and right() and right() else 1)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    stop = True
    for thread in threads:
        thread.join()
    assert right() and not lanes.lost
print(ended)
"""


def test_a_child_that_is_forked_while_every_runner_is_busy_answers(tmp_path):
    """Those runners are busy for ever in it."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    words = [sys.executable, "-W", "ignore", "-c", BUSY, str(tmp_path / "package")]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert (done.stdout.split()[-1:], done.returncode) == (["0"], 0), done.stderr[-3000:]
