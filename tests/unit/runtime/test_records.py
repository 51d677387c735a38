"""Records of the runtime behave as dataclasses do, in all that is used of them."""

import dataclasses
import pickle
import sys
from copy import deepcopy
from functools import cached_property

import pytest

from preheat_runtime import records


def make(dataclass):
    """The same three classes, made by one or the other."""

    @dataclass(frozen=True, kw_only=True)
    class Point:
        x: int
        y: int = 2
        names: dict = dataclasses.field(default_factory=dict)
        note: str = dataclasses.field(default="none")

        @cached_property
        def double(self):
            return 2 * self.x

    @dataclass(frozen=True, kw_only=True)
    class Pair:
        """Two."""

        first: tuple
        second: object = None

    @dataclass(frozen=True, kw_only=True, eq=False)
    class Thing:
        name: str

    return Point, Pair, Thing


@pytest.fixture(params=[records.dataclass, dataclasses.dataclass], ids=["ours", "theirs"])
def made(request):
    return make(request.param)


def test_values_defaults_and_a_fresh_one_from_each_factory(made):
    point, pair, _ = made
    one, other = point(x=1), point(x=1, y=3, names={"a": 1}, note="b")
    assert (one.x, one.y, one.names, one.note) == (1, 2, {}, "none")
    assert (other.x, other.y, other.names, other.note) == (1, 3, {"a": 1}, "b")
    assert one.names is not point(x=1).names
    assert (point.y, point.note) == (2, "none")
    assert not hasattr(point, "names")
    assert pair.__doc__ == "Two."
    assert one.double == one.double == 2


@pytest.mark.parametrize(
    ("values", "says"), [({}, "x"), ({"x": 1, "z": 2}, "unexpected keyword argument 'z'"), ({"y": 1}, "x")]
)
def test_wrong_arguments(made, values, says):
    with pytest.raises(TypeError, match=says):
        made[0](**values)


def test_positions_are_not_taken(made):
    with pytest.raises(TypeError):
        made[1]((), None)


def test_nothing_can_be_set_or_deleted(made):
    one = made[0](x=1)
    for change in (lambda: setattr(one, "x", 2), lambda: setattr(one, "other", 2), lambda: delattr(one, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert one.x == 1


def test_equality_and_hash(made):
    _, pair, thing = made
    assert pair(first=(1,)) == pair(first=(1,), second=None)
    assert pair(first=(1,)) != pair(first=(2,))
    assert pair(first=(1,)) != ((1,), None)
    assert hash(pair(first=(1,))) == hash(pair(first=(1,)))
    with pytest.raises(TypeError):
        hash(pair(first=([],)))
    assert thing(name="a") != thing(name="a")
    assert len({thing(name="a"), thing(name="a")}) == 2
    assert pair(first=()) != make(dataclasses.dataclass)[1](first=())


def test_a_class_made_from_one_is_not_equal_to_it(made):
    pair = made[1]
    other = type("Other", (pair,), {})
    assert pair(first=()) != other(first=())


def test_the_functions_of_dataclasses(made):
    point, pair, _ = made
    one = pair(first=(1,), second=point(x=1))
    assert dataclasses.asdict(one) == {"first": (1,), "second": {"x": 1, "y": 2, "names": {}, "note": "none"}}
    changed = dataclasses.replace(one, first=())
    assert (changed.first, changed.second) == ((), one.second)
    assert [f.name for f in dataclasses.fields(point)] == ["x", "y", "names", "note"]
    assert dataclasses.is_dataclass(one)
    assert dataclasses.fields(point(x=1))[1].default == 2


def test_repr_and_copies(made):
    one = made[1](first=(1, "a"))
    assert repr(one).endswith("Pair(first=(1, 'a'), second=None)")
    assert deepcopy(one) == one


def test_pickles():
    from preheat_runtime.package import DimRange

    one = DimRange(name="n", minimum=1, maximum=4)
    assert pickle.loads(pickle.dumps(one)) == one
    assert dataclasses.replace(one, maximum=8).maximum == 8


def test_mutable_or_positional_records_are_not_made():
    with pytest.raises(TypeError, match="frozen"):
        records.dataclass(frozen=False, kw_only=True)
    with pytest.raises(TypeError, match="keywords"):
        records.dataclass(frozen=True, kw_only=False)


def test_changed_is_as_replace():
    point_kind, pair_kind, _ = make(records.dataclass)
    point = point_kind(x=1, note="kept")
    assert records.changed(point, x=5) == dataclasses.replace(point, x=5) == point_kind(x=5, note="kept")
    assert point.x == 1
    pair = pair_kind(first=(1,))
    assert records.changed(pair, second=pair).second is pair
    with pytest.raises(TypeError, match="third"):
        records.changed(pair, third=3)


def test_changed_needs_none_of_the_modules_that_are_gone_when_the_interpreter_shuts_down(monkeypatch):
    _, pair_kind, _ = make(records.dataclass)
    pair = pair_kind(first=(1,))
    monkeypatch.delitem(sys.modules, "dataclasses")
    with pytest.raises(KeyError):
        dataclasses.replace(pair, second=2)
    assert records.changed(pair, second=2).second == 2
