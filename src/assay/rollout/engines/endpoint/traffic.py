"""Decides when an endpoint may be asked: how many requests at once, and how many in a minute.

Concurrency adapts as TCP's congestion window does (RFC 5681: additive increase, multiplicative
decrease): a round of answers allows one request more, a refusal for load (429) or an answer that
does not come in time halves it. Nothing is sent here; all of it runs on one event loop.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

MINUTE = 60.0
BURST = 0.1
"""The share of a minute's rate that may be used at once."""


@dataclass
class Bucket:
    """A token bucket that lets at most `rate` units pass in any minute, counted without its end.

    A request of more than a full bucket waits for a full one and leaves a debt, which later ones
    wait for; it waits as well until the minute that ends with it has room for it. One of more than
    `rate` passes alone in its minute. Units count as they are taken; what an estimate took too much
    is forgiven to later requests.
    """

    rate: float
    """Units in a minute, at least 1."""
    clock: Callable[[], float] = time.monotonic
    _level: float = field(init=False)
    _seen: float = field(init=False)
    _passed: deque[tuple[float, float]] = field(default_factory=deque, init=False)
    """When units passed in the last minute, and how many."""
    _recent: float = field(default=0.0, init=False)
    """Their sum."""

    def __post_init__(self) -> None:
        """It begins full."""
        self._level, self._seen = self.full, self.clock()

    @property
    def full(self) -> float:
        """Units that may pass at once."""
        return max(1.0, math.floor(self.rate * BURST))

    @property
    def per_second(self) -> float:
        """A full bucket and a minute of this, its last unit excluded, are the rate."""
        return (self.rate - self.full + 1) / MINUTE

    def take(self, units: float) -> float:
        """Take units and return 0, or take none and return the seconds until it is worth asking
        again."""
        now = self.clock()
        self._level = min(self.full, self._level + (now - self._seen) * self.per_second)
        self._seen = now
        missing = min(units, self.full) - self._level
        if missing > 1e-9 * self.full:
            return missing / self.per_second
        # For smaller ones the bucket alone keeps the rate.
        if units > self.full and (wait := self._until_room(units, now)):
            return wait
        self._level -= units
        self._note(units, now)
        return 0.0

    def give_back(self, units: float) -> None:
        """Correct what was taken by an estimate; negative units are taken as well."""
        self._level = min(self.full, self._level + units)
        if units < 0:
            self._note(-units, self.clock())

    def _note(self, units: float, now: float) -> None:
        self._passed.append((now, units))
        self._recent += units
        self._forget(now)

    def _forget(self, now: float) -> None:
        # A clock of floats may come to rest a rounding short of the minute's end.
        while self._passed and now - self._passed[0][0] > MINUTE - 1e-6:
            self._recent -= self._passed.popleft()[1]

    def _until_room(self, units: float, now: float) -> float:
        """Seconds until the oldest of what leaves no room is a minute old; 0 for room enough."""
        self._forget(now)
        if not self._passed or self._recent + units <= self.rate:
            return 0.0
        return self._passed[0][0] + MINUTE - now


@dataclass
class Traffic:
    """The requests to one endpoint; without bounds it lets all through."""

    most: int | None = None
    """Requests at once, at most."""
    requests: Bucket | None = None
    tokens: Bucket | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    limit: float = field(init=False)
    """Requests at once, as the server bears them."""
    _inside: int = field(default=0, init=False)
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque, init=False)
    _order: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
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
    async def turn(self, tokens: int) -> AsyncIterator[int]:
        """Wait for a turn to send a request of so many tokens; gives the request's number, for
        `answered` and `overloaded`."""
        await self._enter()
        try:
            await self._within_rates(tokens)
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

    def used(self, estimate: int, tokens: int) -> None:
        """Correct the rate of tokens: a request was taken for `estimate` and was of `tokens`."""
        if self.tokens is not None:
            self.tokens.give_back(estimate - tokens)

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

    async def _within_rates(self, tokens: int) -> None:
        for bucket, units in ((self.requests, 1), (self.tokens, tokens)):
            if bucket is None:
                continue
            # In order: a large request must not be overtaken for ever.
            async with self._order:
                while wait := bucket.take(units):
                    await self.sleep(wait)
