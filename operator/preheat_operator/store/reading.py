"""Reads one small file of an artifact into memory, verified: for people who ask, not for pods."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

from preheat_operator.store import pieces
from preheat_operator.store.errors import PieceCorruptError, PieceMissingError

if TYPE_CHECKING:
    from preheat_operator.store.interface import Objects
    from preheat_operator.store.keys import Keys
    from preheat_runtime.manifest import File


def read_file(store: Objects, keys: Keys, file: File, *, limit: int) -> bytes:
    """Return the contents of a file of at most `limit` bytes.

    Raises PieceCorruptError (also for a larger one), PieceMissingError, or what the store raises.
    """
    if file.size > limit:
        raise PieceCorruptError(f"{file.path}: has {file.size} bytes, more than {limit}")
    whole = io.BytesIO()
    for piece in file.pieces:
        stored = io.BytesIO()
        with store.chunks(keys.blob(piece.sha256)) as chunks:
            if chunks is None:
                raise PieceMissingError(f"the store lacks the blob {piece.sha256} of {file.path}")
            pieces.verify_stored(piece, chunks, stored.write)
        stored.seek(0)
        pieces.decode(piece, stored, whole.write)
    data = whole.getvalue()
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise PieceCorruptError(f"{file.path}: its pieces do not make the file the manifest describes")
    return data
