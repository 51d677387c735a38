"""The levers of torch.compile and the kinds of inputs, each through the real driver and into a pod."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from preheat_runtime.package import Target
from unit.compiler.documented import undocumented
from unit.compiler.jobs import Job, bucket, compile_job, serve, serve_each, tensor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

MODEL = '''
import torch
from torch import nn

class Nested(nn.Module):
    """Takes what a decoder takes: a list of layers, a dict of options, constants; gives a dict with a tuple in it."""

    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x, past, *, extra, scale=1.0, names=None):
        y = self.inner(x) * scale
        for layer in past:
            y = y + layer["key"].sum(1) * layer["value"]
        return {"y": y + extra["bias"], "last": (past[-1]["key"] * 2, names)}

class Pair(nn.Module):
    def forward(self, pair, n: int):
        a, b = pair
        return torch.sin(a) * n + b

class Cut(nn.Module):
    """Two graphs: the print is between them."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x):
        y = torch.relu(self.inner(x))
        print("in between")
        return torch.sigmoid(self.inner(y))

class Sized(nn.Module):
    """Another way for large batches: no one code is right for the whole range."""

    def forward(self, x):
        return torch.sin(x) * 2 if x.shape[0] > 6 else torch.cos(x)

class Images(nn.Module):
    """As people serve images: channels last."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

class Parts:
    def __init__(self, width):
        torch.manual_seed(3)
        self.nested, self.pair, self.cut, self.sized = Nested(width), Pair(), Cut(), Sized()
        self.images = Images()

def load(width: int, kind: str = "plain"):
    assert kind == "fancy"
    return Parts(width)

def pair():
    return ((torch.randn(3, 5), torch.ones(3, 5)),), {"n": 3}

def images():
    return (torch.randn(2, 3, 12, 10).to(memory_format=torch.channels_last),), {}

def wrong():
    return torch.randn(3)
'''
ARGUMENTS = [{"name": "width", "type": "Int", "value": "32"}, {"name": "kind", "value": "fancy"}]


def nested_bucket() -> dict[str, object]:
    layer = {"dict": [{"key": "key", **tensor("n", 4, 32)}, {"key": "value", **tensor("n", 32)}]}
    return bucket(
        "nested", tensor("n", 32), {"list": [layer, layer]}, dims=[{"name": "n", "min": 2, "max": 10, "multipleOf": 2}],
        kwargs=[
            {"name": "extra", "dict": [{"key": "bias", **tensor(32)}]},
            {"name": "scale", "const": {"type": "Float", "value": "0.5"}},
            {"name": "names", "const": {"type": "String", "value": "ab"}},
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Mode, options, factory arguments, nested inputs, inputs of the user's own, a graph break and a recompile with their gates."""
    return compile_job(
        tmp_path_factory.mktemp("tuned"), MODEL, "model:load",
        {"name": "nested", "path": "nested", "buckets": [nested_bucket()]},
        {
            "name": "pair",
            "path": "pair",
            "buckets": [
                {"name": "made", "exampleInputs": "model:pair"}, {"name": "wrong", "exampleInputs": "model:wrong"},
            ],
        },
        {"name": "images", "path": "images", "buckets": [{"name": "last", "exampleInputs": "model:images"}]},
        {"name": "cut", "path": "cut", "buckets": [bucket("one", tensor(4, 16))]},
        {
            "name": "sized",
            "path": "sized",
            "buckets": [bucket("range", tensor("n", 16), dims=[{"name": "n", "min": 2, "max": 9}])],
        },
        torch={
            "arguments": ARGUMENTS,
            "mode": "MaxAutotuneNoCudagraphs",
            "autotuneTimeoutSeconds": 1,  # what it tunes is seen in test_autotune.py
            "options": [{"name": "epilogue_fusion", "value": "false"}, {"name": "max_fusion_size", "value": "8"}],
        },
        keepIf={"minSpeedup": "0", "maxGraphBreaks": 0, "maxRecompiles": 0},
    )  # fmt: skip


CALL = """
import torch, model
net = model.load(32, "fancy").nested.eval()
fast = torch.compile(net{arguments})
def call(n, module, *, scale=0.5, names="ab", keys=("key", "value")):
    torch.manual_seed(n)
    past = []
    for _ in range(2):
        layer = dict(zip(("key", "value"), (torch.randn(n, 4, 32), torch.randn(n, 32))))
        past.append({{key: layer[key] for key in keys}})
    return module(torch.randn(n, 32), past, extra={{"bias": torch.randn(32)}}, scale=scale, names=names)
with torch.no_grad():
    {body}
"""


def test_nested_inputs_are_served_from_a_package_at_every_multiple(tuned: Job, tmp_path: Path) -> None:
    target = tuned.target("nested", "nested")
    assert (target["verdict"], target["tier"]) == ("Kept", "package"), target["message"]
    assert "of n only 4 to 10 is served; for 2 give a bucket of its own" in target["message"]
    body = "\n    ".join(
        f"got, want = call({n}, module=fast), call({n}, module=net)\n"
        "    assert got.keys() == want.keys() and got['last'][1] == 'ab' and type(got['last']) is tuple\n"
        "    torch.testing.assert_close((got['y'], got['last'][0]), (want['y'], want['last'][0]))"
        for n in (4, 6, 8, 10)
    )
    said = serve(tuned, "nested", "nested", CALL.format(arguments="", body=body), tmp_path)
    assert {line["outcome"] for line in said} == {"hot"}, said


def test_other_constants_and_other_keys_are_other_calls(tuned: Job, tmp_path: Path) -> None:
    says = {
        ", scale=0.25": "argument scale: is 0.25, compiled for 0.5",
        ', names="ba"': "argument names: is another text",
        ', keys=("value", "key")': "argument past: [0] has its keys in another order",
    }
    body = "got, want = call(4, fast{change}), call(4, net{change}); torch.testing.assert_close(got['y'], want['y'])"
    scripts = {change: CALL.format(arguments="", body=body.format(change=change)) for change in says}
    said = serve_each(tuned, "nested", "nested", scripts, tmp_path, compiler=False)
    for change, lines in said.items():
        assert [line["outcome"] for line in lines] == ["eager"]
        assert says[change] in lines[0]["reason"]


def test_what_the_call_asks_for_itself_must_have_been_made(tuned: Job, tmp_path: Path) -> None:
    outcomes = {
        ', mode="max-autotune-no-cudagraphs"': "hot",
        ', options={"epilogue_fusion": False}': "hot",
        ', mode="reduce-overhead"': "cold",
        ', options={"epilogue_fusion": True}': "cold",
    }
    # What goes to torch is not called: the runtime says so at once, and torch would compile for a minute.
    bodies = {"hot": "call(4, module=fast)", "cold": "pass"}
    scripts = {asked: CALL.format(arguments=asked, body=bodies[outcome]) for asked, outcome in outcomes.items()}
    said = serve_each(tuned, "nested", "nested", scripts, tmp_path, imports="import torch._inductor.compile_fx")
    assert {asked: [line["outcome"] for line in lines] for asked, lines in said.items()} == {
        asked: [outcome] for asked, outcome in outcomes.items()
    }, said


def test_mode_and_options_stand_in_the_contract(tuned: Job) -> None:
    levers = Target.read(tuned.app / "out/nested/nested/target.json").levers
    assert levers.mode == "max-autotune-no-cudagraphs"
    assert levers.options == {"epilogue_fusion": False, "max_fusion_size": 8}
    # What there is to try on a CPU keeps packed weights, so a package is not tuned.
    assert "tuning" not in tuned.report("nested", "nested")


def test_inputs_that_the_user_makes(tuned: Job, tmp_path: Path) -> None:
    target = tuned.target("pair", "made")
    assert (target["verdict"], target["tier"]) == ("Kept", "package"), target["message"]
    script = (
        "import torch, model\n"
        "net = model.Pair().eval(); fast = torch.compile(net)\n"
        "a, b = torch.randn(3, 5), torch.randn(3, 5)\n"
        "torch.testing.assert_close(fast((a, b), 3), net((a, b), 3))\n"
    )
    assert {line["outcome"] for line in serve(tuned, "pair", "made", script, tmp_path)} == {"hot"}
    wrong = tuned.target("pair", "wrong")
    assert (wrong["verdict"], wrong["reason"]) == ("Failed", "InputsRefused")
    assert "model:wrong() gave a Tensor. It must return (args, kwargs)" in wrong["message"]


def test_images_in_channels_last_order_are_inputs_that_the_user_makes(tuned: Job, tmp_path: Path) -> None:
    target = tuned.target("images", "last")
    assert (target["verdict"], target["tier"]) == ("Kept", "package"), target["message"]
    script = (
        "import torch, model\n"
        "net = model.load(32, 'fancy').images.eval(); fast = torch.compile(net)\n"
        "x = torch.randn(2, 3, 12, 10)\n"
        "with torch.no_grad():\n"
        "    for each in (x.to(memory_format=torch.channels_last), x):\n"
        "        got, want = fast(each), net(each)\n"
        "        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)\n"
        "        assert got.stride() == want.stride()\n"
    )
    first, *_, last = serve(tuned, "images", "last", script, tmp_path, compiler=False)
    assert first["outcome"] == "hot", first
    assert last["outcome"] == "eager"
    assert "is not in channels_last order" in last["reason"]


def test_all_that_reports_hold_is_documented(tuned: Job) -> None:
    assert undocumented(tuned) == []


def test_a_graph_break_is_named_with_its_line_and_can_be_refused(tuned: Job) -> None:
    target = tuned.target("cut", "one")
    assert (target["verdict"], target["reason"]) == ("Rejected", "GraphBreaksAboveMaximum"), target["message"]
    line = next(number for number, text in enumerate(MODEL.splitlines(), 1) if "in between" in text and "print" in text)
    assert f"model.py:{line}" in target["message"]
    (graphs,) = tuned.report("cut", "one")["graphs"]
    assert graphs["graphs"] == 2
    assert len(graphs["breaks"]) == 1
    assert "print" in graphs["breaks"][0]["reason"] + graphs["breaks"][0]["remedy"]
    (whole,) = tuned.report("nested", "nested")["graphs"]
    assert (whole["graphs"], whole["breaks"], whole["recompiles"]) == (1, [], 0)


def test_recompiles_over_the_range_are_counted_and_can_be_refused(tuned: Job) -> None:
    target = tuned.target("sized", "range")
    assert (target["verdict"], target["reason"]) == ("Rejected", "RecompilesAboveMaximum"), target["message"]
    (graphs,) = tuned.report("sized", "range")["graphs"]
    assert (graphs["graphs"], graphs["breaks"]) == (1, [])
    assert graphs["recompiles"] >= 1
    assert f"compiled {graphs['recompiles']} times again" in target["message"]
    # Why there is no package of it: to what the code holds the range.
    assert "of n the code allows only" in target["message"]


@pytest.mark.soak
def test_pods_find_caches_that_were_filled_with_options(tmp_path: Path) -> None:
    job = compile_job(
        tmp_path / "job", MODEL, "model:load", {"name": "cut", "path": "cut", "buckets": [bucket("one", tensor(4, 16))]},
        torch={"arguments": ARGUMENTS, "options": [{"name": "epilogue_fusion", "value": "false"}]},
        keepIf={"minSpeedup": "0"},
    )  # fmt: skip
    target = job.target("cut", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "caches"), target["message"]
    fresh = [proof for proof in job.report("cut", "one")["proofs"] if proof["name"] == "fresh process"]
    assert {proof["compilerRuns"] for proof in fresh} == {0}
    script = (
        "import sys, torch, model\n"
        "sys.stdout = sys.stderr  # the model prints\n"
        "net = model.load(32, 'fancy').cut.eval(); fast = torch.compile(net{asks})\n"
        "x = torch.randn(4, 16)\n"
        "with torch.no_grad():\n"
        "    torch.testing.assert_close(fast(x), net(x))\n"
    )
    asked = ["", ", options={'epilogue_fusion': False}"]
    said = serve_each(job, "cut", "one", {asks: script.format(asks=asks) for asks in asked}, tmp_path)
    assert {asks: [line["outcome"] for line in lines] for asks, lines in said.items()} == {
        asks: ["warm"] for asks in asked
    }, said


@pytest.mark.soak
def test_autocast_is_compiled_in_and_asked_of_the_pod(tmp_path: Path) -> None:
    job = compile_job(
        tmp_path / "job", MODEL, "model:load", {"name": "nested", "path": "nested", "buckets": [nested_bucket()]},
        torch={"arguments": ARGUMENTS, "autocast": "bfloat16"}, keepIf={"minSpeedup": "0"},
    )  # fmt: skip
    target = job.target("nested", "nested")
    assert (target["verdict"], target["tier"]) == ("Kept", "package"), target["message"]
    # Eager's two answers are apart by what bfloat16 costs, and a served one must be the one under autocast.
    within = (
        "plain = call(4, net)['y']\n"
        "    with torch.autocast('cpu', dtype=torch.{dtype}):\n"
        "        got, want = call(4, fast), call(4, net)\n"
        "    assert got['y'].dtype == want['y'].dtype\n"
        "    off, apart = ((each - want['y']).abs().max() for each in (got['y'], plain))\n"
        "    assert off < apart / 4, (off, apart)"
    )
    outcomes = {}
    for name, body in (
        ("as compiled", within.format(dtype="bfloat16")),
        ("another", within.format(dtype="float16")),
        ("none", "torch.testing.assert_close(call(4, fast)['y'], call(4, net)['y'])"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (line,) = serve(job, "nested", "nested", CALL.format(arguments="", body=body), folder)
        outcomes[name] = line["outcome"], line["reason"]
    assert outcomes["as compiled"][0] == "hot", outcomes
    assert outcomes["another"][0] == "cold"
    assert "autocast is float16, compiled with bfloat16" in outcomes["another"][1]
    assert outcomes["none"][0] == "cold"
    assert "autocast is off, compiled with bfloat16" in outcomes["none"][1]


def test_a_refused_option_fails_the_target_before_anything_is_compiled(tmp_path: Path) -> None:
    job = compile_job(
        tmp_path, MODEL, "model:load", {"name": "pair", "path": "pair", "buckets": [bucket("one", tensor(4, 16))]},
        torch={"arguments": ARGUMENTS, "options": [{"name": "freezing", "value": "true"}]},
    )  # fmt: skip
    target = job.target("pair", "one")
    assert (target["verdict"], target["reason"]) == ("Failed", "OptionRefused")
    assert "loading the model" not in job.said
    json.dumps(job.report("pair", "one"))
