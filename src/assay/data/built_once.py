"""Where downloads and conversions live, and how a directory there is built exactly once.

`ASSAY_CACHE` when it is set, else `~/.cache/assay`. What is built is the caller's matter.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def cache_root() -> Path:
    """The cache directory; it need not exist yet."""
    chosen = os.environ.get("ASSAY_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "assay"


def fsync_path(path: Path) -> None:
    """Force a file's content, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def built_once(target: Path, build: Callable[[Path], None]) -> Path:
    """Return `target`, after `build(directory)` has filled it if it does not exist yet.

    A lock beside it keeps other processes waiting; the directory is built under a temporary name,
    fsynced and renamed, so that `target` is either absent or whole. When `build` raises, nothing
    is left behind; what a killed process left goes before the next one builds.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(target.name + ".lock")):
        if target.is_dir():
            return target
        _remove_leftovers(target)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            # mkdtemp makes it private; a shared cache must be readable as any other directory.
            temporary.chmod(0o755)
            build(temporary)
            for path in temporary.rglob("*"):
                fsync_path(path)
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        fsync_path(target.parent)
    return target


def _remove_leftovers(target: Path) -> None:
    """Whoever built under these names did so under the lock that the caller holds."""
    ours = re.compile(re.escape(f".{target.name}-") + "[a-z0-9_]{8}")  # as mkdtemp names them
    for path in target.parent.iterdir():
        if ours.fullmatch(path.name):
            shutil.rmtree(path)
