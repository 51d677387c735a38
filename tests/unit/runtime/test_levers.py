"""Which calls of torch.compile an artifact answers, by the mode and options it was made with; autocast."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from preheat_runtime.levers import Levers

PLAIN = Levers()
TUNED = Levers(mode="max-autotune", options={"epilogue_fusion": False, "max_fusion_size": 8})


@pytest.mark.parametrize(
    ("levers", "arguments", "answers"),
    [
        (PLAIN, {}, True),
        (PLAIN, {"mode": None, "options": None}, True),
        (PLAIN, {"mode": "default", "options": {}}, True),
        (PLAIN, {"mode": "max-autotune"}, False),
        (PLAIN, {"options": {"epilogue_fusion": False}}, False),
        (TUNED, {}, True),
        (TUNED, {"mode": "default"}, True),
        (TUNED, {"mode": "max-autotune"}, True),
        (TUNED, {"mode": "reduce-overhead"}, False),
        (TUNED, {"options": {"epilogue-fusion": False}}, True),
        (TUNED, {"options": {"epilogue_fusion": True}}, False),
        (TUNED, {"options": {"epilogue_fusion": 0}}, False),
        (TUNED, {"options": {"max_fusion_size": 8, "shape_padding": True}}, False),
    ],
)
def test_a_call_is_answered_unless_it_asks_for_something_else(
    levers: Levers, arguments: dict[str, Any], answers: bool
) -> None:
    refusal = levers.refusal(arguments)
    assert (refusal is None) == answers, refusal


def test_the_real_compile_gets_what_the_job_had() -> None:
    assert PLAIN.arguments({"dynamic": True}) == {"dynamic": True}
    assert Levers(mode="max-autotune").arguments({}) == {"mode": "max-autotune", "options": None}
    given = TUNED.arguments({"fullgraph": True})
    assert given["mode"] is None
    assert given["fullgraph"] is True
    # What torch itself takes the mode for, and the options over it.
    assert given["options"] == {**torch._inductor.list_mode_options("max-autotune"), **TUNED.options}


def test_autocast_must_be_as_it_was() -> None:
    half = Levers(autocast="bfloat16")
    assert PLAIN.autocast_reason("cpu") is None
    assert half.autocast_reason("cpu") == "autocast is off, compiled with bfloat16"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert PLAIN.autocast_reason("cpu") == "autocast is on"
        assert half.autocast_reason("cpu") is None
        with torch.autocast("cpu", enabled=False):
            assert half.autocast_reason("cpu") is not None
    with torch.autocast("cpu", dtype=torch.float16):
        assert half.autocast_reason("cpu") == "autocast is float16, compiled with bfloat16"


def test_they_are_written_and_read() -> None:
    assert Levers.from_json(TUNED.to_json()) == TUNED
    with pytest.raises(TypeError):
        Levers.from_json({**TUNED.to_json(), "surprise": 1})
