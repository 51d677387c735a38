"""target.json is read back as it was written, and nothing else is read."""

import json
from dataclasses import replace

import pytest

from preheat_runtime.levers import Levers
from preheat_runtime.package import (
    CallSpec,
    ConstSpec,
    DimRange,
    Identity,
    ModuleIdentity,
    PackageSpec,
    Target,
    TargetUnreadable,
    TensorIdentity,
    TensorSpec,
    const_spec,
    const_value,
)

TARGET = Target(
    identity=Identity(
        modules={"": ModuleIdentity(class_name="Net", code="c", attributes="a")},
        tensors={"w": TensorIdentity(kind="parameter", shape=(2, 3), stride=(3, 1), dtype="float32", device="cpu")},
        patches="p",
    ),
    call=CallSpec(
        arguments=(
            TensorSpec(parameter="x", shape=("n", 3), dtype="float32", device="cpu"),
            ConstSpec(parameter="flag", type="bool", value="True"),
        ),
        dims=(DimRange(name="n", minimum=2, maximum=8, multiple_of=2),),
    ),
    package=PackageSpec(
        library="model.so", library_outputs=2, constants=(("w", "w"),), out_spec="[1]",
        outputs=(0, ConstSpec(parameter="", type="int", value="5")),
    ),
)  # fmt: skip


def test_round_trip(tmp_path):
    TARGET.write(tmp_path / "target.json")
    assert Target.read(tmp_path / "target.json") == TARGET


def test_what_is_seldom_said_of_an_input_is_not_written_where_nothing_is_to_say(tmp_path):
    """A release of before reads what has none of it, and no other."""
    TARGET.write(tmp_path / "target.json")
    written = json.loads((tmp_path / "target.json").read_text())["call"]["arguments"][0]
    assert written == {
        "parameter": "x",
        "shape": ["n", 3],
        "dtype": "float32",
        "device": "cpu",
        "order": "contiguous_format",
    }
    odd = replace(TARGET.call.arguments[0], stride=(None, 7), same_as="y", subclass="Parameter")
    target = replace(TARGET, call=replace(TARGET.call, arguments=(odd,)))
    target.write(tmp_path / "target.json")
    assert Target.read(tmp_path / "target.json") == target


def test_the_error_that_is_allowed(tmp_path):
    exact = replace(TARGET, max_error="1e-05")
    exact.write(tmp_path / "target.json")
    assert Target.read(tmp_path / "target.json") == exact
    assert exact.allowed_error == 1e-5
    assert replace(TARGET, max_error="0").allowed_error == 0


@pytest.mark.parametrize(
    ("dtypes", "autocast", "allowed"),
    [("float32", None, 1e-3), ("float64", None, 1e-6), ("float64", "bfloat16", 5e-2), ("int64", None, 0)],
)
def test_a_contract_of_before_is_held_to_what_is_allowed_by_default(tmp_path, dtypes, autocast, allowed):
    weight = replace(TARGET.identity.tensors["w"], dtype=dtypes)
    x = TensorSpec(parameter="x", shape=(2,), dtype=dtypes, device="cpu")
    target = replace(
        TARGET, identity=replace(TARGET.identity, tensors={"w": weight}), call=CallSpec(arguments=(x,)),
        levers=Levers(autocast=autocast),
    )  # fmt: skip
    target.write(tmp_path / "target.json")
    data = json.loads((tmp_path / "target.json").read_text())
    del data["max_error"]
    (tmp_path / "target.json").write_text(json.dumps(data))
    assert Target.read(tmp_path / "target.json").allowed_error == allowed


@pytest.mark.parametrize("text", ["-1", "nan", "much", "", 3, []])
def test_an_error_that_bounds_nothing_is_refused(tmp_path, text):
    TARGET.write(tmp_path / "target.json")
    data = json.loads((tmp_path / "target.json").read_text())
    (tmp_path / "target.json").write_text(json.dumps({**data, "max_error": text}))
    with pytest.raises(TargetUnreadable):
        Target.read(tmp_path / "target.json")


def test_the_same_target_is_the_same_bytes(tmp_path):
    TARGET.write(tmp_path / "a")
    Target.read(tmp_path / "a").write(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def without(key):
    def change(data):
        del data[key]

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(formatVersion=2),
        without("formatVersion"),
        without("identity"),
        without("call"),
        without("package"),
        lambda data: data["call"]["arguments"].append({"shape": [1]}),
        lambda data: data["package"].pop("library"),
        lambda data: data.update(identity=[]),
    ],
)
def test_anything_else_is_refused(tmp_path, change):
    path = tmp_path / "target.json"
    TARGET.write(path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(TargetUnreadable, match=r"target\.json"):
        Target.read(path)


@pytest.mark.parametrize("value", [None, True, False, 0, -3, 1.5, 1e-300, float("inf"), "", "a'b\n"])
def test_constants_come_back_with_their_type(value):
    back = const_value(const_spec("p", value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("value", [[1], (1,), b"x", 1j, object()])
def test_other_constants_are_not_written(value):
    assert const_spec("p", value) is None


def test_subclasses_of_constants_are_not_taken_for_them():
    class Mine(int):
        pass

    assert const_spec("p", Mine(3)) is None


@pytest.mark.parametrize(("size", "fits"), [(1, False), (2, True), (3, False), (8, True), (10, False)])
def test_a_range_with_a_step(size, fits):
    assert DimRange(name="n", minimum=2, maximum=8, multiple_of=2).allows(size) is fits
