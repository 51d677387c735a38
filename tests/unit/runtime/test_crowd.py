"""Calls that are answered at the same time share the processors; one that comes alone has them all."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preheat_runtime import threads
from preheat_runtime.crowd import CROWD, Crowd, share
from preheat_runtime.processors import processors
from preheat_runtime.threads import Threads

COUNTS = st.integers(1, 256)
LANES = 64


@given(own=COUNTS, processors=COUNTS, together=st.floats(1, 64))
def test_a_share_is_at_least_one_and_never_more_than_the_call_would_have(
    own: int, processors: int, together: float
) -> None:
    mine = share(own, processors, together)
    assert 1 <= mine <= own
    if own * (together + 1) <= processors:
        assert mine == own
    assert mine == 1 or mine * int(together) <= processors


@pytest.mark.parametrize(
    ("own", "processors", "together", "mine"),
    [(2, 2, 4.0, 1), (16, 16, 4.0, 4), (16, 16, 3.9, 4), (16, 16, 3.7, 5), (4, 16, 4.0, 4), (8, 16, 4.0, 4), (1, 1, 9.0, 1), (16, 2, 1.0, 2)],
)  # fmt: skip
def test_the_share(own: int, processors: int, together: float, mine: int) -> None:
    assert share(own, processors, together) == mine


class Recorder:
    """Threads of a machine with 8 processors, and all that was set."""

    def __init__(self, *, mkl: bool = True, bound: bool = False) -> None:
        self.own, self.local, self.set = 8, 0, list[str]()
        self.interrupt_in = -1
        set_mkl = self.set_mkl if mkl else None
        self.threads = Threads(bound=bound, get=lambda: self.own, set_openmp=self.set_openmp, set_mkl=set_mkl)

    def crowd(self) -> Crowd:
        return Crowd(lambda: self.threads, lambda: 8)

    def set_openmp(self, count: int) -> None:
        self.own = count
        self.note(f"openmp {count}")

    def set_mkl(self, count: int) -> int:
        before, self.local = self.local, count
        self.note(f"mkl {count}")
        return before

    def note(self, what: str) -> None:
        self.set.append(what)
        self.interrupt_in -= 1
        if self.interrupt_in == -1:
            raise KeyboardInterrupt


@contextlib.contextmanager
def beside(shared: Crowd, count: int) -> Iterator[None]:
    """So many calls of other threads are being answered inside."""
    go, begun = threading.Event(), threading.Semaphore(0)

    def call() -> None:
        begun.release()
        assert go.wait(60)

    others = [threading.Thread(target=shared.run, args=(LANES, call)) for _ in range(count)]
    for other in others:
        other.start()
        begun.acquire()
    try:
        yield
    finally:
        go.set()
        for other in others:
            other.join()


def asked(shared: Crowd, recorder: Recorder, times: int) -> list[int]:
    """How many threads each of some calls in a row had."""
    return [shared.run(LANES, lambda: recorder.own) for _ in range(times)]


def test_calls_that_come_one_by_one_have_all() -> None:
    recorder = Recorder()
    shared = recorder.crowd()
    assert asked(shared, recorder, 100) == [8] * 100
    assert not recorder.set


def test_calls_that_keep_coming_together_have_their_share() -> None:
    recorder = Recorder()
    shared = recorder.crowd()
    with beside(shared, 3):
        counts = asked(shared, recorder, 100)
    # It takes some calls to tell a crowd from two that met.
    assert (counts[0], counts[-1]) == (8, 2)
    assert counts == sorted(counts, reverse=True)
    assert (recorder.own, recorder.local) == (8, 0)
    assert recorder.set[-4:] == ["openmp 2", "mkl 2", "mkl 0", "openmp 8"]
    # The crowd has gone, and the first call after it is not held to what it was.
    assert asked(shared, recorder, 1) == [8]


@pytest.mark.parametrize(("others", "mine"), [(1, 4), (3, 2), (7, 1), (15, 1)])
def test_each_size_of_crowd_has_its_share(others: int, mine: int) -> None:
    recorder = Recorder()
    shared = recorder.crowd()
    with beside(shared, others):
        assert asked(shared, recorder, 100)[-1] == mine


def test_two_that_meet_now_and_then_have_all() -> None:
    recorder = Recorder()
    shared = recorder.crowd()
    for _ in range(50):
        with beside(shared, 1):
            assert asked(shared, recorder, 1) == [8]
        assert asked(shared, recorder, 1) == [8]
    assert not recorder.set


@pytest.mark.parametrize("mkl", [True, False])
def test_what_was_set_is_set_back_when_a_call_fails(mkl: bool) -> None:
    recorder = Recorder(mkl=mkl)
    recorder.local = 8 if mkl else 0

    def fail() -> None:
        raise ZeroDivisionError(recorder.own)

    shared = recorder.crowd()
    with beside(shared, 3):
        asked(shared, recorder, 100)
        with pytest.raises(ZeroDivisionError, match="2"):
            shared.run(LANES, fail)
    assert (recorder.own, recorder.local) == (8, 8 if mkl else 0)
    assert asked(shared, recorder, 1) == [8]


def test_what_was_set_is_set_back_when_a_signals_handler_raises_between() -> None:
    """Python runs handlers between any two calls: here right after each of those that set something."""
    recorder = Recorder()
    recorder.local = 8
    shared = recorder.crowd()
    with beside(shared, 3):
        asked(shared, recorder, 100)
        for number in range(4):
            recorder.interrupt_in = number
            with pytest.raises(KeyboardInterrupt):
                asked(shared, recorder, 1)
            assert recorder.own == 8
            # Where the handler came before it was known what MKL had: none, and MKL does as OpenMP.
            assert recorder.local in (0, 8)
    assert not shared._running
    assert asked(shared, recorder, 1) == [8]


def test_of_calls_that_wait_for_one_another_no_more_are_counted_than_run() -> None:
    recorder = Recorder()
    shared = recorder.crowd()
    with beside(shared, 7):
        assert [shared.run(2, lambda: recorder.own) for _ in range(100)][-1] == 4


def test_where_it_cannot_be_found_out_the_call_is_made_all_the_same() -> None:
    def fail() -> NoReturn:
        raise OSError(24, "Too many open files")

    for shared in (Crowd(fail, lambda: 8), Crowd(lambda: Recorder().threads, fail)):
        with beside(shared, 3):
            assert [shared.run(LANES, lambda: 1) for _ in range(100)] == [1] * 100


def test_under_deterministic_algorithms_the_count_is_always_the_same() -> None:
    recorder = Recorder()
    shared = recorder.crowd()
    torch.use_deterministic_algorithms(True)
    try:
        with beside(shared, 3):
            assert set(asked(shared, recorder, 100)) == {8}
    finally:
        torch.use_deterministic_algorithms(False)


def test_where_threads_cannot_be_set_nothing_is() -> None:
    shared = Crowd(lambda: None, lambda: 8)
    with beside(shared, 3):
        assert [shared.run(LANES, lambda: 1) for _ in range(100)] == [1] * 100


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_alone() -> None:
    with beside(CROWD, 3):
        assert len(CROWD._running) == 3
        child = os.fork()
        if child == 0:
            os._exit(len(CROWD._running))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not CROWD._running


def test_processors_are_those_of_the_process_whichever_thread_asks(tmp_path: Path) -> None:
    counts = []

    def bound() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        counts.append(processors(tmp_path))

    thread = threading.Thread(target=bound)
    thread.start()
    thread.join()
    assert counts == [len(os.sched_getaffinity(0))]


FOUND = "from preheat_runtime import threads; found = threads.find(); print(found and found.bound)"


def found(**environment: str) -> str:
    names = ("PYTHONPATH", "LD_LIBRARY_PATH", "PATH")
    env = {name: os.environ[name] for name in names if name in os.environ}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", FOUND], env=env | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_threads_that_are_bound_to_processors_are_left_alone() -> None:
    """Each caller's few threads would be on the same processors: the first ones."""
    assert found() == "False"
    assert found(OMP_PROC_BIND="true") == "True"
    assert found(OMP_PLACES="cores") == "True"
    recorder = Recorder(bound=True)
    shared = recorder.crowd()
    with beside(shared, 3):
        assert asked(shared, recorder, 100) == [8] * 100


def test_another_openmp_than_torchs_is_left_alone(tmp_path: Path) -> None:
    """Loaded before torch, as is often done with Intel's: torch asks that one, and its own, which we would set, nobody."""
    (tmp_path / "other.c").write_text("int omp_get_max_threads(void) { return 7; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "other.so", tmp_path / "other.c"], check=True)
    assert found(LD_PRELOAD=str(tmp_path / "other.so")) == "None"


@pytest.fixture
def eight() -> Iterator[Callable[[], tuple[int, int]]]:
    """torch with eight threads, set as users set them; what OpenMP and MKL would now use."""

    def counts() -> tuple[int, int]:
        said = re.search(r"mkl_get_max_threads\(\) : (\d+)", torch.__config__.parallel_info())
        return torch.get_num_threads(), int(said[1]) if said else torch.get_num_threads()

    before = torch.get_num_threads()
    torch.set_num_threads(8)
    yield counts
    torch.set_num_threads(before)


def test_torchs_own_threads_are_set_for_the_call_and_back(eight: Callable[[], tuple[int, int]]) -> None:
    setting = threads.find()
    assert setting is not None
    assert (setting.set_mkl is not None) == torch.backends.mkl.is_available()
    shared = Crowd(threads.find, lambda: 8)
    other: list[tuple[int, int]] = []

    def new_thread() -> None:
        # Nothing of torch was asked in it before, so it does not have torch's count yet.
        other.append(shared.run(LANES, eight))
        other.append(eight())

    with beside(shared, 3):
        counts = [shared.run(LANES, eight) for _ in range(100)]
        assert eight() == (8, 8)
        new = threading.Thread(target=new_thread)
        new.start()
        new.join()
    assert counts[0] == (8, 8)
    assert counts[-1] == (2, 2)
    assert other == [(2, 2), (8, 8)]


CHILDREN = """
import collections, os, random, sys, threading, time
import torch
from preheat_runtime import threads

def failed(of):
    threading.__excepthook__(of)
    os._exit(1)

threading.excepthook = failed
torch.set_num_threads(8)
x = torch.ones(400, 400)
ended = collections.Counter()

def operator():
    begin.wait()
    try:
        x.add(1)
    except RuntimeError as error:
        assert "Invalid thread pool!" in str(error)

def look():
    begin.wait()
    time.sleep(random.uniform(0, 0.0006))
    try:
        assert threads.find() is None or threads.find().get() == 8
    except RuntimeError as error:
        assert "Invalid thread pool!" in str(error)

for _ in range(int(sys.argv[1])):
    child = os.fork()
    if not child:
        begin = threading.Barrier(4)
        started = [threading.Thread(target=call) for call in (operator, look) * 2]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        os._exit(0)
    ended[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
print(dict(ended))
"""


def test_looking_at_torchs_threads_does_not_end_a_forked_child() -> None:
    """torch.get_num_threads itself does, in some 4 of 100: while another thread's first operator sets up the child's pool."""
    done = subprocess.run([sys.executable, "-c", CHILDREN, "150"], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "{0: 150}", done.stderr[-2000:]


def test_this_processs_own_asks_torch_and_the_container() -> None:
    assert CROWD._find() == threads.find()
    assert CROWD._count() == processors()
