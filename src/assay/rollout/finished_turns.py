"""Tells how many turns a sampler has finished while it goes on sampling; no result depends on it.

A sampler calls `turn_finished` for every turn. A batch may be sampled in forked processes: they
count in memory that they share, each in a place of its own, and the process that asked tells the
sum.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

PLACES = 256
"""Processes that count without sharing a place, by the end of their ids."""


@dataclass(frozen=True)
class _Count:
    told: Callable[[int], None]
    places: memoryview
    owner: int

    def add(self) -> None:
        self.places[os.getpid() % PLACES] += 1
        if os.getpid() == self.owner:
            self.told(sum(self.places))


_COUNT: ContextVar[_Count | None] = ContextVar("finished_turns", default=None)


@contextmanager
def telling(told: Callable[[int], None]) -> Iterator[None]:
    """Inside, `told` hears of the number of turns that are finished, in the caller's thread."""
    places = memoryview(mmap.mmap(-1, 8 * PLACES)).cast("q")
    token = _COUNT.set(_Count(told, places, os.getpid()))
    try:
        yield
    finally:
        _COUNT.reset(token)


def turn_finished() -> None:
    """A turn is finished."""
    if (count := _COUNT.get()) is not None:
        count.add()
