"""Random edits, many namespaces at once, one controller that is killed over and over: what must hold holds at every change,
and in the end all is quiet.

`edits` draws the sequences, `player` plays them, `watching` watches, `history` judges every change and `rest` the end. What is
real: the API server, the Job controller, garbage collection, the controller as a process.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from apiserver.fixtures import eventually
from cluster.controller.controlplane import World
from cluster.controller.edits import draw, to_be_compiled
from cluster.controller.history import History
from cluster.controller.player import Player
from cluster.controller.watching import Mirror

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from apiserver.server import ApiServer
    from cluster.controller.controlplane import Process

# Without a change for so long, and with nothing left to complain of, the controller is taken to be done. Whether it is, is
# what the quiet time after it says.
STILL_SECONDS = 3.0


@pytest.mark.timeout(900)
def test_whatever_is_edited_all_is_well_at_every_change_and_quiet_in_the_end(
    controlplane: ApiServer, process: Process
) -> None:
    run(controlplane, process, count=6, length=12, at_once=6, quiet=12, patience=600)


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_two_hundred_sequences_of_edits(controlplane: ApiServer, process: Process) -> None:
    run(controlplane, process, count=200, length=16, at_once=32, quiet=60, patience=1800)


def run(
    server: ApiServer, process: Process, *, count: int, length: int, at_once: int, quiet: float, patience: float
) -> None:  # fmt: skip
    """Play `count` sequences of `length` rules; then nothing may change for `quiet` seconds."""
    given = os.environ.get("PREHEAT_SEED") or secrets.token_hex(4)
    print(f"PREHEAT_SEED={given}")
    rng = random.Random(given)
    sequences = draw(count=count, length=length, number=rng.getrandbits(32))
    # What is drawn may end with next to nothing to do, and so may all that a slow controller was there to see.
    sequences[::2] = [to_be_compiled(steps) for steps in sequences[::2]]
    prefix = f"edits-{secrets.token_hex(3)}-"
    history = History()
    # Everything is looked at again, and again, while nothing happens: that must change nothing either.
    process.kill()
    process.resync_seconds = 20
    process.start()
    with Mirror(server, history, prefix=prefix).watching() as mirror, following_deployments(server, mirror):
        players = [
            Player(World(server, server.namespace(f"{prefix}{number}")), mirror, history) for number in range(count)
        ]
        with killing(process, rng), ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda pair: pair[0].play(pair[1]), zip(players, sequences, strict=True)))
        try:
            # Until it serves, nothing changes either.
            eventually(lambda: process.healthy, what="the controller serves", seconds=300)
            come_to_rest(players, mirror, patience=patience)
        finally:
            print(process.log[-20_000:])
        # As if the controller had been replaced by another: it finds everything as it should be.
        process.kill()
        before, events = mirror.versions(), event_versions(server, prefix)
        process.start()
        eventually(lambda: process.healthy, what="another controller serves", seconds=300)
        time.sleep(quiet)
        after = mirror.versions()
        changed = {uid for uid in before.keys() | after.keys() if before.get(uid) != after.get(uid)}
        assert not changed, [
            *filter(None, (describe(mirror, player, changed) for player in players)),
            changed - after.keys(),
        ]
        assert event_versions(server, prefix) == events, "no Event while nothing happens"
        assert [complaint for player in players for complaint in player.complaints()] == []
    history.finish()
    assert mirror.trouble == []
    assert history.wrong == []
    print(f"{count} namespaces: {mirror.changes} changes, {history.jobs_made} Jobs, {len(history.became_ready)} revisions "
          f"ready, {len(history.taken_back)} taken back")  # fmt: skip
    assert history.jobs_made >= count / 2
    assert len(history.became_ready) >= count / 2, "each second one ends with an image that compiles"


def come_to_rest(players: Sequence[Player], mirror: Mirror, *, patience: float) -> None:
    """Let all that is compiled do well, until nobody has a complaint and nothing changes."""
    deadline = time.monotonic() + patience
    while True:
        for player in players:
            player.end_pods()
        waiting = {player.world.namespace: said for player in players if (said := player.complaints())}
        if not waiting and time.monotonic() - mirror.last_change > STILL_SECONDS:
            return
        assert mirror.trouble == [], "what is no longer watched is never seen to come to rest"
        assert time.monotonic() < deadline, f"never at rest: {waiting}; changed last: {list(mirror.latest)}"
        mirror.wait(lambda: False, seconds=0.3)


@contextlib.contextmanager
def beside(run: Callable[[threading.Event], None]) -> Iterator[None]:
    """`run` in a thread while the block runs; it is to end when the event it is given is set."""
    over = threading.Event()
    thread = threading.Thread(target=run, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def killing(process: Process, rng: random.Random) -> Iterator[None]:
    """A controller that is killed at random moments while the block runs, and is there after it."""

    def run(over: threading.Event) -> None:
        while not over.is_set():
            # It needs three seconds to start, and many times that beside other tests. Most live to do much or little; one in
            # four is killed whether it came so far or not.
            if rng.random() < 3 / 4:
                eventually(lambda: over.is_set() or process.healthy, what="the controller serves", seconds=300)
            if over.wait(rng.uniform(0, 8)):
                return
            process.kill()
            over.wait(rng.uniform(0, 2))
            process.start()

    try:
        with beside(run):
            yield
    finally:
        # A process made by a thread ends with the thread (prctl's word for "parent" in PR_SET_PDEATHSIG).
        process.kill()
        process.start()


@contextlib.contextmanager
def following_deployments(server: ApiServer, mirror: Mirror) -> Iterator[None]:
    """Says of each Deployment that its newest template was seen, as the Deployment controller would."""

    def unseen() -> Iterator[tuple[str, int]]:
        for raw in mirror.everywhere("deployments"):
            metadata, status = raw["metadata"], raw.get("status") or {}
            if status.get("observedGeneration", 0) < metadata["generation"]:
                path = f"/apis/apps/v1/namespaces/{metadata['namespace']}/deployments/{metadata['name']}"
                yield path, metadata["generation"]

    def run(over: threading.Event) -> None:
        while not over.is_set():
            for path, generation in unseen():
                server.request("PATCH", f"{path}/status", {"status": {"observedGeneration": generation}})
            mirror.wait(lambda: any(True for _ in unseen()), seconds=1)

    with beside(run):
        yield


def event_versions(server: ApiServer, prefix: str) -> dict[str, str]:
    """resourceVersion of every Event about a CompiledModel of these namespaces, by uid."""
    answer = server.request("GET", "/api/v1/events?fieldSelector=involvedObject.kind=CompiledModel")
    assert answer.ok, answer.message
    return {e["metadata"]["uid"]: e["metadata"]["resourceVersion"] for e in answer.body["items"]
            if e["metadata"]["namespace"].startswith(prefix)}  # fmt: skip


def describe(mirror: Mirror, player: Player, changed: set[str]) -> str:
    """What of a namespace is among `changed`; empty for nothing."""
    seen = mirror.seen(player.world.namespace)
    objects = [raw for raw in (seen.model, seen.workload, *seen.jobs, *seen.pods, *seen.indices) if raw is not None]
    names = [f"{raw['metadata']['name']}: {raw.get('status') or raw.get('models')}" for raw in objects
             if raw["metadata"]["uid"] in changed]  # fmt: skip
    return f"{player.world.namespace}: {names}" if names else ""
