"""Keeps what was worked out from a file, until it is another file or another content."""

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

Rest = ParamSpec("Rest")
Value = TypeVar("Value")


def stamp(file: Path) -> Hashable:
    """What is another one after every write; None where there is no file."""
    try:
        found = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def kept(
    most: int,
) -> Callable[[Callable[Concatenate[Path, Rest], Value]], Callable[Concatenate[Path, Rest], Value]]:
    """Decorates a function of a file and hashable values: it reads again only what has changed.

    The `most` latest results stay in memory; callers share them and must not change them.
    """

    def decorate(
        read: Callable[Concatenate[Path, Rest], Value],
    ) -> Callable[Concatenate[Path, Rest], Value]:
        @lru_cache(maxsize=most)
        def again(_: Hashable, file: Path, *arguments: Rest.args, **named: Rest.kwargs) -> Value:
            return read(file, *arguments, **named)

        @wraps(read)
        def reading(file: Path, *arguments: Rest.args, **named: Rest.kwargs) -> Value:
            return again(stamp(file), file, *arguments, **named)

        return reading

    return decorate
