"""Both halves of a library compiled at once: order, errors, and what is left behind."""

from __future__ import annotations

import threading

import pytest

from preheat_compiler.package_objects import wrapper_beside_kernels


class Builder:
    """Inductor's, as far as it is used: `log` has what was built, in order of ending."""

    log: list[str]
    kernels_begun: threading.Event

    def __init__(self, target: str) -> None:
        self.target = target

    def get_target_file_path(self) -> str:
        return self.target

    def build(self) -> None:
        if self.target.endswith(".kernel.o"):
            self.kernels_begun.set()
        if self.target.endswith(".wrapper.o") and not self.kernels_begun.wait(timeout=30):
            raise AssertionError("the kernels wait for the wrapper")
        if "bad" in self.target:
            raise ValueError(self.target)
        self.log.append(self.target)


@pytest.fixture(name="builder")
def fresh_builder() -> type[Builder]:
    return type("Fresh", (Builder,), {"log": [], "kernels_begun": threading.Event()})


def build_inside(builder: type[Builder], *targets: str) -> None:
    with wrapper_beside_kernels(builder):
        for target in targets:
            builder(target).build()


def test_the_kernels_do_not_wait_for_the_wrapper_and_the_linker_waits_for_both(builder: type[Builder]) -> None:
    with wrapper_beside_kernels(builder):
        for target in ("/w/a.wrapper.o", "/w/a.kernel.o", "/w/a.so"):
            builder(target).build()
        assert set(builder.log[:2]) == {"/w/a.wrapper.o", "/w/a.kernel.o"}
        assert builder.log[2] == "/w/a.so"


def test_what_the_wrapper_raises_is_raised_where_it_is_linked(builder: type[Builder]) -> None:
    with wrapper_beside_kernels(builder):
        builder("bad.wrapper.o").build()
        builder("a.kernel.o").build()
        with pytest.raises(ValueError, match=r"bad\.wrapper\.o"):
            builder("a.so").build()
    assert builder.log == ["a.kernel.o"]


def test_a_wrapper_that_nobody_links_is_waited_for_all_the_same(builder: type[Builder]) -> None:
    with pytest.raises(ValueError, match=r"bad\.wrapper\.o"):
        build_inside(builder, "bad.wrapper.o", "a.kernel.o")


def test_builders_are_as_before_afterwards_also_when_the_kernels_fail(builder: type[Builder]) -> None:
    before = builder.build
    with pytest.raises(ValueError, match=r"bad\.kernel\.o"):
        build_inside(builder, "a.wrapper.o", "bad.kernel.o")
    assert builder.build is before
    assert builder.log == ["a.wrapper.o"]


@pytest.mark.parametrize("other", [None, object, type("Renamed", (), {"build": lambda _: None})])
def test_builders_that_work_otherwise_are_left_alone(other: object) -> None:
    before = getattr(other, "build", None)
    with wrapper_beside_kernels(other):
        assert getattr(other, "build", None) is before
