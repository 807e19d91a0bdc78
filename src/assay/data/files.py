"""Files that are either the old or the new, never half of the new: atomic writes, and sha256.

Nothing here knows what is in a file.
"""

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yields a temporary name in the folder of `path` (made if absent), which replaces `path`.

    The block writes the temporary file, which is on the disk before it takes its name. If the
    block raises, nothing is left behind and `path` is as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def atomic_write_bytes(path: str | Path, content: bytes) -> None:
    """Write `content` to `path`, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def atomic_write_text(path: str | Path, content: str) -> None:
    """Write `content` to `path` as UTF-8 with the line ends it has, whole or not at all."""
    atomic_write_bytes(path, content.encode("utf-8"))


def sync(path: Path) -> None:
    """Wait until the file or folder at `path` is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_file(path: str | Path) -> str:
    """The sha256 of the bytes of the file, in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
