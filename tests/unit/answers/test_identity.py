"""Whose token it is, and what is remembered of it."""

from __future__ import annotations

from typing import Any

import pytest

from preheat_operator.answers.identity import MAX_TOKEN_CHARACTERS, Known, Pod, Refused, bearer, question, verdict

AUDIENCE = "preheat.dev/reports"
EXTRA = {"authentication.kubernetes.io/pod-name": ["web-1"], "authentication.kubernetes.io/pod-uid": ["u1"]}


def review(*, user: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    who = {"username": "system:serviceaccount:prod:default", "extra": EXTRA} | (user or {})
    return {"status": {"authenticated": True, "audiences": [AUDIENCE], "user": who} | status}


def test_a_pod() -> None:
    assert verdict(review(), AUDIENCE) == Pod(namespace="prod", name="web-1", uid="u1")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, "does not know"),
        ({"status": None}, "does not know"),
        (review(authenticated=False, error="expired"), "does not know"),
        (review(authenticated="true"), "does not know"),
        (review(audiences=["https://kubernetes.default.svc"]), "another audience"),
        (review(audiences=None), "another audience"),
        (review(user={"username": "alice"}), "not a service account"),
        (review(user={"username": "system:serviceaccount:prod"}), "not a service account"),
        (review(user={"username": "system:serviceaccount::x"}), "not a service account"),
        (review(user=None) | {"status": {"authenticated": True, "audiences": [AUDIENCE]}}, "not a service account"),
        (review(user={"extra": None}), "not bound to a pod"),
        (review(user={"extra": {**EXTRA, "authentication.kubernetes.io/pod-uid": []}}), "not bound to a pod"),
        (review(user={"extra": {"authentication.kubernetes.io/pod-uid": ["u"]}}), "not bound to a pod"),
    ],
)
def test_everything_else_is_refused(answer: dict[str, Any], why: str) -> None:
    said = verdict(answer, AUDIENCE)
    assert isinstance(said, Refused)
    assert why in said.why


def test_the_audience_is_asked_for() -> None:
    assert question("t", AUDIENCE)["spec"] == {"token": "t", "audiences": [AUDIENCE]}


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", None), ("Bearer", None), ("Bearer ", None),
        (None, None), ("", None), ("Bearer a b", None), ("Bearer a\tb", None), ("Bearer ä", None),
        ("Bearer " + "x" * (MAX_TOKEN_CHARACTERS + 1), None),
    ],
)  # fmt: skip
def test_bearer(header: str | None, token: str | None) -> None:
    assert bearer(header) == token


def test_verdicts_are_known_for_a_while() -> None:
    known = Known(accepted_seconds=120, refused_seconds=10)
    pod, refused = Pod(namespace="n", name="p", uid="u"), Refused("no")
    known.put("good", pod, 100)
    known.put("bad", refused, 100)
    assert known.get("good", 219) == pod
    assert known.get("bad", 109) == refused
    assert known.get("good", 220) is None
    assert known.get("bad", 110) is None
    assert len(known) == 0


def test_it_is_bounded_and_keeps_who_comes_often() -> None:
    known = Known(most=3)
    pod = Pod(namespace="n", name="p", uid="u")
    for token in ("a", "b", "c"):
        known.put(token, pod, 0)
    assert known.get("a", 1)
    known.put("d", pod, 1)
    assert [known.get(token, 2) is not None for token in "abcd"] == [True, False, True, True]


def test_no_token_is_kept() -> None:
    known = Known()
    known.put("very-secret-token", Refused("no"), 0)
    assert "very-secret-token" not in repr(vars(known))
