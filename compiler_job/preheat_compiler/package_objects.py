"""Lets the C++ compiler work on both halves of a library at once: the wrapper, and the kernels.

Why it exists: Inductor has them compiled one after the other, and together they are most of what a compile takes (11 and
4 s of 25 for one block of a transformer). Neither needs the other before they are linked.
"""

from __future__ import annotations

import contextvars
import functools
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from preheat_runtime.memory import memory_available
from preheat_runtime.processors import processors

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Three times what g++ 12 needed for the wrapper of 24 transformer blocks: 0.9 GB.
_BYTES_FREE = 2.7e9


def room_for_two() -> bool:
    """Whether two C++ compilers may run at once here: a second processor, and memory that is known to be free."""
    free = memory_available()
    return processors() > 1 and free is not None and free >= _BYTES_FREE


@contextmanager
def wrapper_beside_kernels(builders: Any) -> Iterator[None]:
    """Inside, `builders.build()` of a wrapper's object file returns at once, and that of anything linked waits for it.

    `builders` is Inductor's class of builders; one that works otherwise is left as it is. What the wrapper's compile
    raises is raised by the build that waits.
    """
    build = getattr(builders, "build", None)
    if not callable(build) or not callable(getattr(builders, "get_target_file_path", None)):
        yield
        return
    begun: list[Future[Any]] = []

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="preheat-wrapper") as aside:

        @functools.wraps(build)
        def build_aside(self: Any, *args: Any, **kwargs: Any) -> Any:
            target = str(self.get_target_file_path())
            if target.endswith(".wrapper.o"):
                begun.append(aside.submit(contextvars.copy_context().run, build, self, *args, **kwargs))
                return None
            if not target.endswith(".o"):
                while begun:
                    begun.pop().result()
            return build(self, *args, **kwargs)

        builders.build = build_aside
        try:
            yield
            while begun:
                begun.pop().result()
        finally:
            builders.build = build
