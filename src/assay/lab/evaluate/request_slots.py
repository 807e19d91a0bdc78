"""How many requests are under way at once; who waits before asking again gives its slot away."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(Exception):
    """Nothing more is to be asked."""


class RequestSlots:
    """So many holders at once; the others wait."""

    def __init__(self, count: int):
        self._free = threading.Semaphore(count)
        self._closed = threading.Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        """A slot of one's own. What its holder raises closes them; Stopped once they are closed."""
        self._take()
        try:
            yield
        except BaseException:
            self.close()
            raise
        finally:
            self._free.release()

    def pause(self, seconds: float) -> None:
        """Wait without the slot that the caller holds. Raises Stopped once they are closed."""
        self._free.release()
        try:
            self._closed.wait(seconds)
        finally:
            self._free.acquire()
        self._refuse_closed()

    def close(self) -> None:
        """Wake those that wait; nobody gets a slot any more."""
        self._closed.set()

    def _take(self) -> None:
        self._free.acquire()
        if self._closed.is_set():
            self._free.release()
        self._refuse_closed()

    def _refuse_closed(self) -> None:
        if self._closed.is_set():
            raise Stopped
