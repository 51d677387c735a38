"""Byte code of the runtime itself, made where the user's Python is, for pods that cannot keep any.

Why it exists: the runtime lies on a read-only volume in a pod, so every process of the pod would compile it anew: half of
what importing it takes, before the first answer. Byte code depends on the Python, and only the compile Job runs the
user's. So the Job packs it beside each artifact, and `fetch` lays it where Python looks. Python believes it only while it
is of the very source that lies there (PEP 552, checked hashes); of another release of Preheat it is left out, and ignored.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import py_compile
import re
import tempfile
import zipfile
from pathlib import Path

FILE = "bytecode.zip"
"""The file's name in an artifact. A zip without compression, since the store compresses: `<module>.<cache tag>.pyc`."""
MAX_BYTES = 8 * 1024 * 1024
_NAME = re.compile(r"(?P<module>[A-Za-z0-9_]{1,64})\.[a-z]{1,20}-[0-9]{2,4}\.pyc", re.ASCII)
_CHECKED_HASH = (0b11).to_bytes(4, "little")


@functools.cache
def pack() -> bytes:
    """The archive of this package's modules for the running Python. Raises OSError."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive, tempfile.TemporaryDirectory() as scratch:
        for source in sorted(Path(__file__).parent.glob("*.py")):
            made = Path(scratch) / Path(importlib.util.cache_from_source(source.name)).name
            py_compile.compile(
                str(source), str(made), dfile=source.name, doraise=True, quiet=2,
                invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
            )  # fmt: skip
            archive.writestr(zipfile.ZipInfo(made.name), made.read_bytes())
    return packed.getvalue()


def unpack(packed: bytes, package: Path) -> int:
    """Lay what is of the sources in the folder `package` into its `__pycache__`; how many modules that were.

    The archive comes from the user's image: whatever else is in it, or wrong with it, is left out. Raises OSError.
    """
    if len(packed) > MAX_BYTES:
        return 0
    count = 0
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            for entry in archive.infolist():
                found = _NAME.fullmatch(entry.filename)
                source = package / f"{found['module']}.py" if found else None
                if source is None or entry.compress_type != zipfile.ZIP_STORED or not source.is_file():
                    continue
                content = archive.read(entry)
                if content[4:8] == _CHECKED_HASH and content[8:16] == importlib.util.source_hash(source.read_bytes()):
                    _write(package / "__pycache__" / entry.filename, content)
                    count += 1
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError):
        return count
    return count


def _write(path: Path, content: bytes) -> None:
    if not path.parent.exists():
        path.parent.mkdir()
        path.parent.chmod(0o755)
    path.write_bytes(content)
    path.chmod(0o644)
