"""Starts the compile driver in the user's image, without leaving a trace in what the user's code imports.

Why it exists: a script's own folder comes first on `sys.path`, so running the driver from its folder would put our
names before the user's, and the user's working directory nowhere. Here the two packages are found by a finder that
knows nothing but their names, and the user's code is imported from where `python serve.py` would find it.
Standard library only, and no module of the driver before the paths are right.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys

PACKAGES = ("preheat_compiler", "preheat_runtime")


class ToolkitFinder(importlib.abc.MetaPathFinder):
    """Finds `packages` in `folder`, and nothing else there."""

    def __init__(self, folder: str, packages: tuple[str, ...]) -> None:
        self._folder = folder
        self._packages = packages

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """The spec of one of our packages, else None; submodules are found through their package."""
        if path is None and name in self._packages:
            return importlib.machinery.PathFinder.find_spec(name, [self._folder], target)
        return None


def toolkit_folder(script: str) -> str:
    """The folder that holds the packages: the script's own, or, in a source tree, the one above its package."""
    here = os.path.dirname(os.path.abspath(script))  # noqa: PTH100, PTH120
    if os.path.isdir(os.path.join(here, PACKAGES[0])):  # noqa: PTH112, PTH118
        return here
    return os.path.dirname(os.path.dirname(here))  # noqa: PTH120


def user_path(path: list[str], script: str, directory: str) -> list[str]:
    """`sys.path` as the user's own script in `directory` would have it: that folder in place of this script's."""
    own = os.path.dirname(os.path.abspath(script))  # noqa: PTH100, PTH120
    rest = [entry for index, entry in enumerate(path) if not (index == 0 and os.path.abspath(entry or ".") == own)]  # noqa: PTH100
    return [directory, *rest]


def main(argv: list[str]) -> int:
    """Run the role named first (the driver when none is)."""
    role = argv[0] if argv and not argv[0].startswith("-") else "driver"
    # In a fresh process the runtime must come from where a pod has it, or the proof would prove something else.
    packages = PACKAGES[:1] if role == "fresh" else PACKAGES
    sys.meta_path.insert(0, ToolkitFinder(toolkit_folder(__file__), packages))
    sys.path[:] = user_path(sys.path, __file__, os.getcwd())  # noqa: PTH109
    if role == "driver":
        from preheat_compiler import driver

        return driver.main(argv, launcher=os.path.abspath(__file__))  # noqa: PTH100
    import importlib

    from preheat_compiler import parent

    arguments = parent.take(argv[1:])
    module = importlib.import_module(f"preheat_compiler.{ROLES[role]}")
    return module.main(arguments, launcher=os.path.abspath(__file__))  # type: ignore[no-any-return]  # noqa: PTH100


#: Further processes of the driver, by the word that starts them.
ROLES = {"target": "begin", "caches": "caches", "fresh": "fresh", "eager": "fresh"}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
