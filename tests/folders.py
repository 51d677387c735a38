"""What all modules of one folder of tests share, and what is gone when the last of its tests is over.

pytest's scope "package" needs a package with an `__init__.py`, and is the whole session's without. A control plane that idles
until the session ends takes a tenth of a processor from the tests that come after.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

T = TypeVar("T")
_KEPT = pytest.StashKey[dict[object, Any]]()


def of_folder(request: pytest.FixtureRequest, make: Callable[[], AbstractContextManager[T]]) -> T:
    """What `make` gives, made once for the folder of the test or module that asks, and closed after the folder's last test."""
    folder = request.node.getparent(pytest.Directory)
    assert folder is not None
    kept = folder.stash.setdefault(_KEPT, {})
    if make not in kept:
        stack = contextlib.ExitStack()
        kept[make] = stack.enter_context(make())

        def close() -> None:
            del kept[make]
            stack.close()

        folder.addfinalizer(close)
    made: T = kept[make]
    return made
