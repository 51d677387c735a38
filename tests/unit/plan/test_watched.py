"""When a revision is taken back, and that nothing else takes one back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preheat_operator.api.enums import RevisionState
from preheat_operator.api.status import Revision, RevisionServed
from preheat_operator.plan.attention import Told
from preheat_operator.plan.watched import CRASH_WINDOW, has_news, is_enough, taken_back_words, watch, witnesses
from unit.plan.pods import FETCHED, HOT, MANIFEST, WRONG, ended, pod, raw_pod
from unit.plan.simulation import START, digest

if TYPE_CHECKING:
    from preheat_operator.plan.objects import PodView

CRASHED = {"last": ended(139)}


def revision(name: str = "vision-1", manifest: str | None = MANIFEST, **more: Any) -> Revision:
    return Revision(
        name=name, image="registry/vision:1", manifest=manifest, created=START, cause="Created", spec_hash="0",
        state=more.pop("state", RevisionState.READY), **more,
    )  # fmt: skip


def after(*pods: PodView, of: Revision | None = None, later: float = 0) -> Revision:
    now = START + timedelta(seconds=later)
    return watch(revisions=[of or revision()], seen=witnesses(pods, now=now), now=now).revisions[0]


def many(count: int, prefix: str = "p", **more: Any) -> list[PodView]:
    return [pod(f"{prefix}{number}", **more) for number in range(count)]


@pytest.mark.parametrize(
    ("wrong", "crashed", "well", "taken"),
    [
        (0, 0, 0, False), (0, 0, 9, False),
        (1, 0, 0, False), (0, 1, 0, False), (1, 0, 1, False),
        (2, 0, 0, True), (0, 2, 0, True), (1, 1, 0, True),
        (2, 0, 8, True), (2, 0, 9, False), (0, 2, 8, True), (0, 2, 9, False),
        (1, 1, 8, True), (1, 1, 9, False),
        (19, 0, 77, False), (20, 0, 80, True), (10, 10, 80, True), (0, 199, 801, False),
    ],
)  # fmt: skip
def test_at_least_two_pods_and_a_fifth(wrong: int, crashed: int, well: int, taken: bool) -> None:
    pods = [*many(wrong, "w", served=WRONG), *many(crashed, "c", **CRASHED), *many(well, "h", served=HOT)]
    found = after(*pods)
    assert (found.state == RevisionState.TAKEN_BACK) is taken
    if taken:
        assert found.taken_back is not None
        assert (found.taken_back.pods, found.taken_back.wrong, found.taken_back.crashed) == (len(pods), wrong, crashed)
        assert found.taken_back.targets == (("main/one/cpu",) if wrong else ())
    if pods:
        assert found.served == RevisionServed(
            pods=len(pods), most=len(pods), hot=wrong + well, wrong=wrong, crashed=crashed
        )


@given(st.integers(0, 50), st.integers(0, 200))
def test_the_bound_is_what_it_is_said_to_be(blamed: int, others: int) -> None:
    pods = blamed + others
    assert is_enough(blamed=blamed, pods=pods) is (blamed >= 2 and 5 * blamed >= pods)
    assert not is_enough(blamed=blamed, pods=pods) or is_enough(blamed=blamed + 1, pods=pods + 1), "more is never less"
    assert Fraction(1, 5) * pods > blamed or blamed < 2 or is_enough(blamed=blamed, pods=pods)


BLAMELESS: dict[str, dict[str, Any]] = {
    "killed for memory": {"last": ended(137, "OOMKilled")},
    "killed for memory while it crashed": {"last": ended(139, "OOMKilled")},
    "killed": {"last": ended(137)},
    "stopped": {"last": ended(143)},
    "an exit code of its own": {"last": ended(1)},
    "out of file descriptors": {"last": ended(128)},
    "ended well": {"last": ended(0, "Completed")},
    "crashed long ago": {"last": ended(139, before_seconds=CRASH_WINDOW.total_seconds())},
    "fetch failed": CRASHED | {"fetch": FETCHED.replace("Fetched", "Failed")},
    "fetch was given nothing": CRASHED | {"fetch": FETCHED.replace("Fetched", "NoRevision")},
    "fetch says nothing": CRASHED | {"fetch": ""},
    "fetch says nonsense": CRASHED | {"fetch": "[" * 4000},
    "fetch was killed": CRASHED | {"fetch_code": 137},
    "not injected": CRASHED | {"injected": "no: paused"},
    "given nothing": CRASHED | {"manifest": "none"},
    "gated": CRASHED | {"manifest": "pending"},
    "given another revision": CRASHED | {"manifest": digest("b"), "served": WRONG},
    "only the sidecar crashed": {},
    "missed": {"served": replace(HOT, answers={"cold/TorchDiffers": 4})},
    "slow": {"served": replace(HOT, first={"main/one/cpu": 1e5}, steady={"main/one/cpu": 1e5})},
    "garbage on the pod": {"served": '{"v":1,"wrong":["<script>"]}'},
    "another version on the pod": {"served": '{"v":9,"wrong":["main/one/cpu"]}'},
}


@pytest.mark.parametrize("name", BLAMELESS)
def test_nothing_else_takes_a_revision_back(name: str) -> None:
    found = after(*many(10, **BLAMELESS[name]))
    assert found.state == RevisionState.READY
    assert found.taken_back is None
    assert found.served is None or (found.served.wrong, found.served.crashed) == (0, 0)


@pytest.mark.parametrize("code", [132, 134, 135, 139])
@pytest.mark.parametrize("where", ["state", "last"])
def test_each_signal_that_a_fault_of_the_code_ends_with(code: int, where: str) -> None:
    crashed = many(2, **{where: ended(code)})
    assert after(*crashed).state == RevisionState.TAKEN_BACK
    finished = many(2, phase="Failed", **{where: ended(code)})
    assert after(*finished).state == RevisionState.TAKEN_BACK, "also of a pod that is not restarted"
    going = many(2, deletionTimestamp=START.isoformat(), **{where: ended(code)})
    assert after(*going).state == RevisionState.TAKEN_BACK, "also while it is being replaced"


def test_pods_that_have_not_begun_do_not_make_a_fifth_smaller() -> None:
    waiting = many(90, "w", state={"waiting": {"reason": "PodInitializing"}})
    done = many(90, "d", phase="Succeeded", state=ended(0))
    found = after(*many(2, "c", **CRASHED), *waiting, *done)
    assert found.state == RevisionState.TAKEN_BACK
    assert found.served is not None
    assert found.served.pods == 2


def test_it_stays_with_its_numbers_when_the_pods_are_gone_or_well() -> None:
    taken = after(*many(2, "w", served=WRONG), *many(3, "h", served=HOT))
    for pods in ([], many(50, "h", served=HOT), many(9, "w", served=WRONG)):
        later = after(*pods, of=taken, later=99999)
        assert later.state == RevisionState.TAKEN_BACK
        assert later.taken_back == taken.taken_back
        assert later.served is not None
        assert (later.served.pods, later.served.most) == (len(pods), max(5, len(pods)))
    assert taken_back_words(taken) == (
        "revision vision-1 of image registry/vision:1 was taken back at 2026-01-01T00:00:00+00:00, since 2 of 5 pods "
        "reported wrong answers (main/one/cpu)"
    )


def test_only_what_is_ready_is_taken_back_and_each_on_its_own_pods() -> None:
    other = digest("b")
    revisions = [revision("vision-3", None, state=RevisionState.COMPILING), revision("vision-2", other), revision()]
    pods = [*many(2, "w", served=WRONG), *many(8, "h", served=HOT, manifest=other)]
    done = watch(revisions=revisions, seen=witnesses(pods, now=START), now=START)
    assert [r.state.value for r in done.revisions] == ["Compiling", "Ready", "TakenBack"]
    assert [(a.warning, a.reason) for a in done.announcements] == [(True, "RevisionTakenBack")]
    again = watch(revisions=done.revisions, seen=witnesses(pods, now=START), now=START)
    assert (again.revisions, again.announcements) == (done.revisions, ()), "it is decided once"


PODS = st.lists(
    st.fixed_dictionaries(
        {
            "served": st.sampled_from([None, HOT, WRONG, "x", replace(HOT, answers={"cold/Other": 1})]),
            "last": st.sampled_from(
                [{}, ended(139), ended(137, "OOMKilled"), ended(1), ended(134, before_seconds=9e5)]
            ),
            "phase": st.sampled_from(["Running", "Pending", "Failed"]),
            "fetch": st.sampled_from([FETCHED, "", FETCHED.replace("Fetched", "Failed")]),
            "manifest": st.sampled_from([MANIFEST, digest("b"), "none"]),
        }
    ),
    max_size=9,
)


@given(st.lists(PODS, max_size=4))
def test_whatever_pods_do_no_revision_ever_comes_back(rounds: list[list[dict[str, Any]]]) -> None:
    revisions = (revision("vision-2", digest("b")), revision())
    taken: dict[str, Any] = {}
    for number, described in enumerate(rounds):
        now = START + timedelta(seconds=600 * number)
        seen = witnesses([pod(f"p{n}", **more) for n, more in enumerate(described)], now=now)
        done = watch(revisions=revisions, seen=seen, now=now)
        assert watch(revisions=done.revisions, seen=seen, now=now).announcements == ()
        for before, here in zip(revisions, done.revisions, strict=True):
            blamed = [w for w in seen if w.manifest == here.manifest and (w.wrong or w.crashed)]
            if before.state == RevisionState.TAKEN_BACK:
                assert here.taken_back == before.taken_back == taken[here.name]
            elif here.state == RevisionState.TAKEN_BACK:
                assert len({w.pod.uid for w in blamed}) >= 2
                taken[here.name] = here.taken_back
        revisions = done.revisions  # type: ignore[assignment]


def test_which_events_are_news() -> None:
    assert has_news(pod())
    assert has_news(pod(**CRASHED))
    assert not has_news(pod(state={"waiting": {}}))
    assert not has_news(pod(manifest="none"))


def test_an_event_that_tells_nothing_new_wakes_nobody() -> None:
    told = Told(most=2)
    assert told.news(raw_pod(state={"waiting": {}})) == ""
    assert [told.news(raw_pod()) for _ in range(3)] == ["vision", "", ""]
    for change in ({"served": HOT}, {"served": WRONG}, {"served": WRONG, **CRASHED}, {"phase": "Failed"}):
        assert [told.news(raw_pod(**change)) for _ in range(2)] == ["vision", ""]
    assert told.news(raw_pod("b")) == "vision"
    assert told.news(raw_pod("b"), gone=True) == "vision"
    assert told.news(raw_pod("b"), gone=True) == "vision", "rather once too often"
    for name in ("c", "d", "e"):
        told.news(raw_pod(name))
    assert told.news(raw_pod("c")) == "vision", "the oldest is forgotten first"
    assert told.news(raw_pod("e")) == ""
