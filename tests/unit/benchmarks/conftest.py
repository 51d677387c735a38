"""A benchmark as a module, which is otherwise a program in a folder that is on nobody's path."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from lab.paths import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

FOLDER = REPOSITORY / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports one by name; it and what it shares with others are forgotten after the test."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)
