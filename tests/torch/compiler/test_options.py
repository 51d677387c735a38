"""Mode and options on their way to torch: as they are, to either tier, or refused in words. Nothing is compiled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from preheat_compiler import caches
from preheat_compiler.levers import MODES, RESERVED, levers_of
from preheat_compiler.package import CompileFailed, ExampleCall, build_package
from preheat_compiler.request import TorchSettings
from preheat_compiler.verdict import TargetError
from unit.compiler import requests
from unit.compiler.jobs import bucket, tensor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torch

#: As a CompiledModel has them, and as torch's own type of each option has it.
OPTIONS = {
    "epilogue_fusion": ("false", False),
    "max_fusion_size": ("8", 8),
    "padding_stride_threshold": ("512", 512),
    "max_autotune_gemm_backends": ("ATEN,CPP", "ATEN,CPP"),
}
#: What each mode says to Inductor; torch's own table is compared with it.
SAID = {
    "Default": {},
    "ReduceOverhead": {"triton.cudagraphs": True},
    "MaxAutotune": {"max_autotune": True, "triton.cudagraphs": True, "coordinate_descent_tuning": True},
    "MaxAutotuneNoCudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
}
ASKED = [(mode, chosen) for mode in MODES for chosen in ((), tuple(OPTIONS))]


class Stopped(Exception):
    """Torch was asked, and that is all there is to see."""


def expected(mode: str, chosen: tuple[str, ...]) -> dict[str, Any]:
    return {**SAID[mode], **{name: OPTIONS[name][1] for name in chosen}}


def settings(mode: str, chosen: tuple[str, ...]) -> TorchSettings:
    return TorchSettings(mode=mode, options=tuple((name, OPTIONS[name][0]) for name in chosen))


@pytest.mark.parametrize(("mode", "chosen"), ASKED)
def test_a_package_is_made_with_what_was_asked_for(
    mode: str, chosen: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def ask(*_: object, inductor_configs: dict[str, Any], **__: object) -> None:
        given.append(inductor_configs)
        raise Stopped

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", ask)
    with pytest.raises(CompileFailed, match="Stopped"):
        build_package(
            torch.nn.Linear(8, 8).eval(), ExampleCall(args=(torch.randn(4, 8),)), dynamic_shapes=None, out=tmp_path,
            cpu_isa="X86_64_V3", levers=levers_of(settings(mode, chosen)),
        )  # fmt: skip
    (said,) = given
    wanted = expected(mode, chosen)
    assert {name: said.get(name) for name in wanted} == wanted
    # All else that is said is what nobody may choose.
    assert [name for name in said.keys() - wanted.keys() if not name.startswith(tuple(RESERVED))] == []


@pytest.mark.parametrize(("mode", "chosen"), ASKED)
@pytest.mark.parametrize("fullgraph", ["Required", "Auto"])
def test_caches_are_filled_with_what_was_asked_for(
    mode: str, chosen: tuple[str, ...], fullgraph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def ask(_: object, **arguments: Any) -> None:
        given.append(arguments)
        raise Stopped

    raw = requests.make(
        torch={
            "factory": "torch.nn:Identity", "modules": [{"name": "main", "path": "", "buckets": [bucket("one", tensor(4))]}],
            "mode": mode, "options": [{"name": name, "value": OPTIONS[name][0]} for name in chosen],
            "fullgraph": fullgraph,
        },
        targets=[{"module": "main", "bucket": "one"}],
    )  # fmt: skip
    (tmp_path / "request.json").write_text(json.dumps(raw))
    # It would set this whole process up as one that fills caches.
    monkeypatch.setattr("preheat_runtime.warm.settle", lambda _: None)
    monkeypatch.setattr(torch, "compile", ask)
    words = ["--request", str(tmp_path / "request.json"), "--module", "main", "--bucket", "one", "--seconds", "60"]
    assert caches.main([*words, "--answer", str(tmp_path / "answer.json")], launcher="") == 0
    assert "Stopped" in json.loads((tmp_path / "answer.json").read_text())["message"]
    (said,) = given
    assert said["fullgraph"] is (fullgraph == "Required")
    # torch takes one of the two; a mode is nothing but options.
    by_mode = torch._inductor.list_mode_options(said["mode"]) if said.get("mode") else {}
    assert {**by_mode, **(said.get("options") or {})} == expected(mode, chosen)
    assert not (said.get("mode") and said.get("options"))


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("epilogue_fusio", "true", "Did you mean epilogue_fusion"),
        ("epilogue_fusion", "perhaps", "'perhaps' is no bool"),
        ("max_fusion_size", "many", "'many' is no int"),
        ("freezing", "true", "weights would end up in the code"),
        ("aot_inductor.package_constants_in_so", "true", "agreed with the pods"),
        ("aot_inductor_mode.compile_standalone", "true", "agreed with the pods"),
        ("cpp.march", "native", "hardware[].cpuIsa"),
        ("post_grad_custom_pre_pass", "x", "a value that text cannot give"),
    ],
)
def test_options_that_are_wrong_or_not_to_be_chosen(option: str, value: str, says: str) -> None:
    with pytest.raises(TargetError, match=r"torch\.options") as error:
        levers_of(TorchSettings(options=((option, value),)))
    assert error.value.reason == "OptionRefused"
    assert says in str(error.value)
    assert option in str(error.value)


@pytest.mark.parametrize("reserved", RESERVED)
def test_what_the_proofs_rest_on_cannot_be_chosen(reserved: str) -> None:
    from torch._inductor import config

    known = [name for name in config.get_config_copy() if name.startswith(reserved)]
    # What torch keeps in another module under this name is no entry of the copy, but is set by it all the same.
    if hasattr(config, reserved) and reserved not in known:
        known.append(reserved)
    assert known, "this torch has no such option: it was renamed, or misspelt here"
    for name in known:
        with pytest.raises(TargetError, match=r"torch\.options") as error:
            levers_of(TorchSettings(options=((name, "1"),)))
        assert error.value.reason == "OptionRefused"
        assert f"{name!r} cannot be set: {RESERVED[reserved]}" in str(error.value)
