"""Files and folders that are either the old or the new, never half of the new; and sha256.

Nothing here knows what is in a file.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.errors import InputError


class FolderTaken(InputError):
    """A folder that is to be made has something in it."""


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Yields a temporary folder beside `path`, which becomes `path` once it is on the disk.

    If the block raises, nothing is left behind. Raises FolderTaken, before the block and after it,
    where `path` exists and is no empty folder.
    """
    path = Path(path)
    refuse_taken(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    temporary.mkdir()
    try:
        yield temporary
        for inner in sorted(temporary.rglob("*")):
            sync(inner)
        sync(temporary)
        refuse_taken(path)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync(path.parent)


def refuse_taken(path: Path) -> None:
    """Raise FolderTaken where something lies at `path`, but for an empty folder."""
    if path.is_symlink() or path.is_file() or (path.is_dir() and any(path.iterdir())):
        problem = "is not empty" if path.is_dir() else "is no folder"
        raise FolderTaken(problem, file=path, fix="name a folder that does not exist yet")


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
