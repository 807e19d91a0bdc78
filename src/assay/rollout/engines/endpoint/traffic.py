"""Decides when an endpoint may be asked: how many requests at once.

Concurrency adapts as TCP's congestion window does (RFC 5681: additive increase, multiplicative
decrease): a round of answers allows one request more, a refusal for load (429) or an answer that
does not come in time halves it. Nothing is sent here; all of it runs on one event loop.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Traffic:
    """The requests to one endpoint; without bounds it lets all through."""

    most: int | None = None
    """Requests at once, at most."""
    limit: float = field(init=False)
    """Requests at once, as the server bears them."""
    _inside: int = field(default=0, init=False)
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque, init=False)
    _sent: int = field(default=0, init=False)
    """Requests so far."""
    _cut_at: int = field(default=0, init=False)
    """Requests sent when the limit was last halved."""

    def __post_init__(self) -> None:
        """It begins at the most."""
        self.limit = math.inf if self.most is None else float(self.most)

    @property
    def _places(self) -> float:
        return self.limit if self.most is None else math.floor(self.limit)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[int]:
        """Wait for a turn to send a request; gives its number, for `overloaded`."""
        await self._enter()
        try:
            self._sent += 1
            yield self._sent
        finally:
            self._inside -= 1
            self._let_in()

    def answered(self) -> None:
        """A request was answered: a little more may be asked at once."""
        if self.most is not None:
            self.limit = min(float(self.most), self.limit + 1 / self.limit)
            self._let_in()

    def overloaded(self, number: int) -> None:
        """The server could not answer a request: half as much may be asked at once, at least one.

        What was sent before the last cut says nothing of the load after it.
        """
        if self.most is not None and number > self._cut_at:
            self.limit = max(1.0, self.limit / 2)
            self._cut_at = self._sent

    async def _enter(self) -> None:
        if not self._waiting and self._inside < self._places:
            self._inside += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._inside -= 1
                self._let_in()
            raise

    def _let_in(self) -> None:
        while self._waiting and self._inside < self._places:
            place = self._waiting.popleft()
            if not place.done():
                self._inside += 1
                place.set_result(None)
