"""Pieces: what is cut apart comes together again, and whatever was altered is found."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preheat_operator.store.errors import PieceCorruptError
from preheat_operator.store.pieces import decode, encode, split, verify_stored

# Runs of one byte compress, random bytes do not: both encodings appear.
DATA = st.binary(min_size=1, max_size=3000) | st.builds(
    lambda b, n: b * n, st.binary(min_size=1, max_size=3), st.integers(1, 5000)
)


def restore(stored: bytes, piece: object) -> bytes:
    out = io.BytesIO()
    verify_stored(piece, iter([stored[:7], stored[7:]]), lambda _: None)  # type: ignore[arg-type]
    decode(piece, io.BytesIO(stored), out.write)  # type: ignore[arg-type]
    return out.getvalue()


@given(DATA)
def test_a_piece_comes_back_as_it_was(data: bytes) -> None:
    encoded = encode(data)
    assert restore(encoded.data, encoded.piece) == data
    assert encoded.piece.stored_size == len(encoded.data) <= len(data)
    assert encoded.piece.sha256 == hashlib.sha256(encoded.data).hexdigest()


@given(DATA)
def test_the_same_bytes_give_the_same_piece(data: bytes) -> None:
    assert encode(data) == encode(bytearray(data))  # type: ignore[arg-type]


def test_compression_is_used_where_it_helps_only() -> None:
    assert encode(b"\0" * 100_000).piece.encoding == "zstd"
    assert encode(hashlib.sha256(b"x").digest()).piece.encoding == "identity"


@pytest.mark.parametrize("data", [b"", b"x" * (16 * 2**20 + 1)])
def test_a_piece_has_bounds(data: bytes) -> None:
    with pytest.raises(ValueError, match="a piece has 1 to"):
        encode(data)


@given(st.binary(max_size=100), st.integers(1, 17), st.integers(1, 9))
def test_a_file_is_cut_into_full_pieces_whatever_reads_return(data: bytes, size: int, most: int) -> None:
    source = io.BytesIO(data)
    parts = list(split(lambda n: source.read(min(n, most)), piece_bytes=size))
    assert b"".join(parts) == data
    assert all(len(part) == size for part in parts[:-1])
    assert b"" not in parts


@given(DATA, st.data())
def test_one_altered_byte_is_always_found(data: bytes, draw: st.DataObject) -> None:
    encoded = encode(data)
    at = draw.draw(st.integers(0, len(encoded.data) - 1))
    flipped = encoded.data[at] ^ draw.draw(st.integers(1, 255))
    altered = encoded.data[:at] + bytes([flipped]) + encoded.data[at + 1 :]
    with pytest.raises(PieceCorruptError, match="other bytes"):
        restore(altered, encoded.piece)


@given(DATA, st.binary(min_size=1, max_size=5))
def test_another_length_is_always_found(data: bytes, more: bytes) -> None:
    encoded = encode(data)
    with pytest.raises(PieceCorruptError, match="larger"):
        restore(encoded.data + more, encoded.piece)
    with pytest.raises(PieceCorruptError, match="bytes, the manifest says"):
        restore(encoded.data[:-1], encoded.piece)


def test_a_stream_without_end_is_cut_at_the_stored_size() -> None:
    piece = encode(b"x" * 1000).piece
    taken = 0

    def endless() -> object:
        nonlocal taken
        while True:
            taken += 1
            yield b"\0" * 1000

    with pytest.raises(PieceCorruptError, match="larger"):
        verify_stored(piece, endless(), lambda _: None)  # type: ignore[arg-type]
    assert taken == 1


@pytest.mark.parametrize("change", [-1, 1])
def test_a_publisher_that_lied_about_the_size_is_found(change: int) -> None:
    encoded = encode(b"x" * 1000)
    lying = replace(encoded.piece, size=1000 + change)
    with pytest.raises(PieceCorruptError, match="does not decode to"):
        decode(lying, io.BytesIO(encoded.data), lambda _: None)


def test_a_bomb_is_cut_at_the_size_of_the_manifest() -> None:
    import zstandard

    bomb = zstandard.compress(b"\0" * 50_000_000)
    piece = replace(
        encode(b"x" * 1000).piece, sha256=hashlib.sha256(bomb).hexdigest(), stored_size=len(bomb), size=1000
    )
    written = io.BytesIO()
    with pytest.raises(PieceCorruptError, match="does not decode to"):
        decode(piece, io.BytesIO(bomb), written.write)
    assert len(written.getvalue()) <= 1000


def test_a_frame_that_wants_too_much_memory_is_refused() -> None:
    import zstandard

    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = compressor.compress(b"x" * 1000) + compressor.flush()
    piece = replace(encode(b"x" * 1000).piece, stored_size=len(frame))
    with pytest.raises(PieceCorruptError, match="zstd"):
        decode(piece, io.BytesIO(frame), lambda _: None)
