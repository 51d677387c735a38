"""Cuts files into pieces and makes files of pieces again.

A piece is at most 16 MiB of a file, stored raw or as one zstd frame, whichever is smaller by a margin worth the CPU,
and named by the hash of what is stored: it can be retried, verified and fetched on its own, and equal parts of
different files or revisions are stored once. Nothing here knows S3, and nothing holds more than one piece.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from preheat_operator.store.errors import PieceCorruptError
from preheat_runtime.manifest import MAX_PIECE_BYTES, Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEVEL: Final = 3
"""zstd's default. Its window is 2 MiB, which is all a pod's fetch needs to hold while decoding."""
MAX_WINDOW_BYTES: Final = 8 * 1024 * 1024
"""What a decoder accepts to allocate for one frame: above every window LEVEL makes, far below a bomb."""
WORTH: Final = 0.95
"""Compressed only when the result is at most this part of the original; else decoding costs and gains nothing."""
CHUNK_BYTES: Final = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class EncodedPiece:
    """A piece and its stored bytes, ready to send."""

    piece: Piece
    data: bytes


def split(read: Callable[[int], bytes], *, piece_bytes: int = MAX_PIECE_BYTES) -> Iterator[bytes]:
    """Yield the contents behind `read` in parts of `piece_bytes`, the last one shorter; nothing for an empty file."""
    while data := _read_exactly(read, piece_bytes):
        yield data


def encode(data: bytes) -> EncodedPiece:
    """Return the piece of some raw bytes (1 to 16 MiB). The same bytes always give the same piece."""
    if not 0 < len(data) <= MAX_PIECE_BYTES:
        raise ValueError(f"a piece has 1 to {MAX_PIECE_BYTES} bytes, not {len(data)}")
    import zstandard

    compressed = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(data)
    helps = len(compressed) <= len(data) * WORTH
    stored, encoding = (compressed, "zstd") if helps else (data, "identity")
    piece = Piece(sha256=hashlib.sha256(stored).hexdigest(), size=len(data), stored_size=len(stored), encoding=encoding)
    return EncodedPiece(piece=piece, data=stored)


def verify_stored(piece: Piece, chunks: Iterator[bytes], write: Callable[[bytes], object]) -> None:
    """Pass the stored bytes on to `write` and check their length and hash.

    Raises PieceCorruptError as soon as there are too many, or at the end when they are too few or others. What was
    written until then must not be used.
    """
    seen = 0
    hasher = hashlib.sha256()
    for chunk in chunks:
        seen += len(chunk)
        if seen > piece.stored_size:
            raise PieceCorruptError(f"blob {piece.sha256} is larger than the {piece.stored_size} bytes of the manifest")
        hasher.update(chunk)
        write(chunk)
    if seen != piece.stored_size:
        raise PieceCorruptError(f"blob {piece.sha256} has {seen} bytes, the manifest says {piece.stored_size}")
    if hasher.hexdigest() != piece.sha256:
        raise PieceCorruptError(f"blob {piece.sha256} holds other bytes than its name says")


def decode(piece: Piece, stored: IO[bytes], write: Callable[[bytes], object]) -> None:
    """Write the raw bytes of a verified piece; `stored` stands at its beginning.

    Raises PieceCorruptError when they are not exactly `piece.size`: the publisher was wrong or lied.
    """
    written = 0
    for chunk in _decoded_chunks(piece, stored):
        written += len(chunk)
        if written > piece.size:
            break
        write(chunk)
    if written != piece.size:
        raise PieceCorruptError(f"blob {piece.sha256} does not decode to the {piece.size} bytes of the manifest")


def _decoded_chunks(piece: Piece, stored: IO[bytes]) -> Iterator[bytes]:
    if piece.encoding == "identity":
        while chunk := stored.read(CHUNK_BYTES):
            yield chunk
        return
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    try:
        with decompressor.stream_reader(stored, read_size=CHUNK_BYTES, closefd=False) as reader:
            while chunk := reader.read(CHUNK_BYTES):
                yield chunk
    except zstandard.ZstdError:
        raise PieceCorruptError(f"blob {piece.sha256} is no zstd frame of this format") from None


def _read_exactly(read: Callable[[int], bytes], size: int) -> bytes:
    parts = []
    while size > 0 and (data := read(min(size, 4 * 1024 * 1024))):
        parts.append(data)
        size -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)
