"""No more calls at once than there is room for; who waits comes in its turn, whatever becomes of the call before it."""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable

import pytest

from preheat_runtime.lanes import Lanes


class Guests:
    """Calls that stay inside until they are let out, each in a thread of its own."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.came: list[int] = []
        self.ended: list[int] = []
        self._out: dict[int, threading.Event] = {}
        self._fails: set[int] = set()
        self._threads: dict[int, threading.Thread] = {}

    def send(self, number: int, *, fails: bool = False) -> None:
        """Returns when it runs or waits."""
        self._out[number] = threading.Event()
        if fails:
            self._fails.add(number)
        self._threads[number] = thread = threading.Thread(target=self._visit, args=(number,))
        before = len(self.lanes._inside)
        thread.start()
        while len(self.lanes._inside) == before:
            time.sleep(0.001)

    def let_out(self, number: int) -> None:
        """Returns when its thread has ended."""
        self._out[number].set()
        self._threads[number].join(60)
        assert not self._threads[number].is_alive()

    def seen(self, *came: int) -> None:
        """Wait until exactly these have come in, in that order."""
        deadline = time.monotonic() + 60
        while len(self.came) < len(came) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)  # one more would come now
        assert self.came == list(came)

    def _visit(self, number: int) -> None:
        try:
            self.lanes.run(self._stay, number)
        except ZeroDivisionError:
            assert number in self._fails
        self.ended.append(number)

    def _stay(self, number: int) -> None:
        self.came.append(number)
        assert self._out[number].wait(60)
        if number in self._fails:
            raise ZeroDivisionError


@pytest.mark.parametrize("fails", [False, True])
def test_who_has_no_room_waits_and_comes_in_its_turn(fails: bool) -> None:
    guests = Guests(Lanes(2))
    for number in range(5):
        guests.send(number, fails=fails)
    guests.seen(0, 1)
    guests.let_out(1)
    guests.seen(0, 1, 2)
    guests.let_out(2)
    guests.seen(0, 1, 2, 3)
    guests.let_out(0)
    guests.seen(0, 1, 2, 3, 4)
    guests.let_out(4)
    guests.let_out(3)
    assert not guests.lanes._inside


def test_a_call_gives_its_answer_and_its_error() -> None:
    lanes = Lanes(1)
    assert lanes.run(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        lanes.run(lambda: 1 / 0)
    assert not lanes._inside


@pytest.mark.parametrize("count", [1, 2, 3])
def test_many_threads_and_errors_never_more_than_there_is_room_for_and_all_end(count: int) -> None:
    lanes, inside, most, done = Lanes(count), set[int](), [0], []

    def call(dice: random.Random) -> None:
        inside.add(threading.get_ident())
        most[0] = max(most[0], len(inside))
        if dice.random() < 0.3:
            time.sleep(0)
        inside.discard(threading.get_ident())
        if dice.random() < 0.5:
            raise ZeroDivisionError

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(400):
            with contextlib.suppress(ZeroDivisionError):
                lanes.run(call, dice)
        done.append(seed)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(done) == list(range(8))
    assert most[0] <= count
    assert not lanes._inside


def raising(*_: object) -> None:
    raise KeyboardInterrupt


def interrupted(handler: Callable[..., object], action: Callable[[], object]) -> None:
    """Run `action` in this thread; a signal comes to it a little later."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        action()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_whoever_is_called_away_while_it_waits_holds_up_nobody() -> None:
    guests = Guests(Lanes(1))
    guests.send(0)
    with pytest.raises(KeyboardInterrupt):
        interrupted(raising, lambda: guests.lanes.run(lambda: None))
    guests.send(1)
    guests.let_out(0)
    guests.seen(0, 1)
    guests.let_out(1)
    assert not guests.lanes._inside


def test_where_a_handler_raises_before_the_next_is_woken_it_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    guests = Guests(Lanes(1))
    guests.send(0)
    guests.send(1)
    monkeypatch.setattr(guests.lanes, "_wake", lambda: None)
    guests.let_out(0)
    guests.seen(0, 1)
    guests.let_out(1)


def test_a_signals_handler_may_call_too() -> None:
    lanes, answers = Lanes(1), []
    interrupted(lambda *_: answers.append(lanes.run(lambda: "handler")), lambda: lanes.run(lambda: time.sleep(0.3)))
    assert answers == ["handler"]
    assert not lanes._inside


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("others", [0, 1, 2, 3])
def test_a_forked_child_has_room_and_knows_whether_calls_of_others_were_inside(others: int) -> None:
    guests = Guests(Lanes(2))
    for number in range(others):
        guests.send(number)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        free = guests.lanes.run(lambda: True)
        os._exit(0 if free and guests.lanes.lost == (others > 0) and not guests.lanes._inside else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not guests.lanes.lost
    for number in range(others):
        guests.let_out(number)
