"""What ends a command with words instead of a traceback: one place decides on the exit code."""

from __future__ import annotations

from preheat_operator.cli import exits
from preheat_operator.store.errors import Retry, StoreError

_MISSING = frozenset({"ManifestMissing", "ManifestCorrupt", "PieceMissing", "PieceCorrupt", "UnknownFormat"})
_REFUSED = frozenset({"StoreDenied", "StoreCredentialsMissing", "NoSpace"})


class CommandError(Exception):
    """The command ends with `code`; the message names what is wrong and what to do."""

    def __init__(self, message: str, *, code: int = exits.USAGE) -> None:
        super().__init__(message)
        self.code = code


def exit_code(error: StoreError) -> int:
    """The exit code a failure of the store means."""
    if error.retry is Retry.LATER or error.reason == "DeadlineExceeded":
        return exits.UNREACHABLE
    if error.reason in _REFUSED:
        return exits.REFUSED
    return exits.MISSING if error.reason in _MISSING else exits.INTERNAL
