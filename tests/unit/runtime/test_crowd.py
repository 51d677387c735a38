"""Calls that are answered at the same time share the processors; one that comes alone has them all."""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preheat_runtime import threads
from preheat_runtime.crowd import Crowd, share
from preheat_runtime.threads import Threads

COUNTS = st.integers(1, 256)


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

    def __init__(self, *, mkl: bool = True) -> None:
        self.own, self.local, self.set = 8, 0, list[str]()
        set_mkl = self.set_mkl if mkl else None
        self.threads = Threads(get=lambda: self.own, set_openmp=self.set_openmp, set_mkl=set_mkl)

    def crowd(self) -> Crowd:
        return Crowd(lambda: self.threads, lambda: 8)

    def set_openmp(self, count: int) -> None:
        self.own = count
        self.set.append(f"openmp {count}")

    def set_mkl(self, count: int) -> int:
        before, self.local = self.local, count
        self.set.append(f"mkl {count}")
        return before


@contextlib.contextmanager
def beside(shared: Crowd, count: int) -> Iterator[None]:
    """So many calls of other threads are being answered inside."""
    go, begun = threading.Event(), threading.Semaphore(0)

    def call() -> None:
        begun.release()
        assert go.wait(60)

    others = [threading.Thread(target=shared.answer, args=(call,)) for _ in range(count)]
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
    return [shared.answer(lambda: recorder.own) for _ in range(times)]


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
    assert recorder.set[-4:] == ["openmp 2", "mkl 2", "openmp 8", "mkl 0"]
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


def test_a_module_inside_another_is_no_other_call() -> None:
    recorder = Recorder()
    shared = recorder.crowd()
    inner = [shared.answer(lambda: asked(shared, recorder, 100)) for _ in range(3)]
    assert inner == [[8] * 100] * 3
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
            shared.answer(fail)
    assert (recorder.own, recorder.local) == (8, 8 if mkl else 0)
    assert asked(shared, recorder, 1) == [8]


def test_what_the_modules_own_code_sets_stays() -> None:
    recorder = Recorder()
    shared = recorder.crowd()
    with beside(shared, 3):
        asked(shared, recorder, 100)
        shared.answer(lambda: recorder.set_openmp(5))
    assert recorder.own == 5


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
        assert [shared.answer(lambda: 1) for _ in range(100)] == [1] * 100


def test_a_forked_child_is_alone() -> None:
    recorder = Recorder()
    shared = recorder.crowd()
    with beside(shared, 3):
        asked(shared, recorder, 100)
        shared.forked()
        assert asked(shared, recorder, 1) == [8]


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
    found = threads.find()
    assert found is not None
    assert (found.set_mkl is not None) == torch.backends.mkl.is_available()
    shared = Crowd(threads.find, lambda: 8)
    with beside(shared, 3):
        counts = [shared.answer(eight) for _ in range(100)]
        assert eight() == (8, 8)
        # Torch's count of other threads, and of those that begin now, is as the user set it.
        other: list[tuple[int, int]] = []
        new = threading.Thread(target=lambda: other.append(eight()))
        shared.answer(lambda: (new.start(), new.join()))
    assert counts[0] == (8, 8)
    assert counts[-1] == (2, 2)
    assert other == [(8, 8)]
