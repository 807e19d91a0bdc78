"""One call of a helper model, from the reservation of its most to what it did cost.

A call is in the ledger before it is sent. Calls that begin or end at the same time on an endpoint's
event loop are written in one transaction, and none of them is sent before that is done. Which calls
are made, and what is remembered of them, is decided in `metered_helper`.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime

from assay.data.files import whole_text
from assay.experiment.price_table import TokenPrice, units
from assay.lab.setup.helper_budgets import EatenByFailures, HelperBudgets
from assay.rl.policy import Sampling
from assay.rollout.engines.endpoint.client import Unanswered
from assay.runs.cost_ledger import CostLedger, Entry, KnownAnswer, LedgerCall, Place
from assay.tasks.helper_model import Caller, HelperAnswer, OverBudget


@dataclass
class GroupedWrites:
    """Writes to a ledger from one event loop, those of one round in one transaction."""

    ledger: CostLedger
    _waiting: list[tuple[Entry, asyncio.Future[Place]]] = field(default_factory=list)

    async def write(self, entry: Entry) -> Place:
        """Where the entry stands, once it is written. Raises LedgerUnusable."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[Place] = loop.create_future()
        self._waiting.append((entry, written))
        if len(self._waiting) == 1:
            # It runs after all that is ready now, which may have something to write as well.
            loop.call_soon(self._write_all)
        return await written

    def _write_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            places = self.ledger.write([entry for entry, _ in waiting])
        except Exception as error:  # each that waits raises it
            for _, written in waiting:
                if not written.done():
                    written.set_exception(error)
            return
        for (_, written), place in zip(waiting, places, strict=True):
            if not written.done():
                written.set_result(place)


@dataclass(frozen=True)
class Meter:
    """What the calls of one helper model are recorded and bounded by."""

    source: str
    writes: GroupedWrites
    budgets: HelperBudgets
    price: Callable[[date], TokenPrice | None]
    """Of a day in UTC; None where it is not known."""
    now: Callable[[], Caller]
    """The stage and the step under way, for callers that do not say."""
    cache: bool | None = None
    """Whether answers are remembered; None where they are greedy and of an endpoint."""

    @property
    def ledger(self) -> CostLedger:
        """Where calls are recorded."""
        return self.writes.ledger

    def remembers(self, sampling: Sampling) -> bool:
        """Whether an answer with these settings is remembered."""
        if self.cache is not None:
            return self.cache
        return sampling.temperature == 0 and self.source.startswith("openai:")

    def cost_of(self, prompt: int | None, completion: int | None) -> float | None:
        """What so many tokens cost today; None where that is not known."""
        price = self.price(datetime.now(UTC).date())
        if price is None or prompt is None or completion is None:
            return None
        return units(price.of(prompt, completion))

    def whole(self, caller: Caller) -> Caller:
        """The caller with the stage and the step under way, where it does not say them."""
        if caller.stage:
            return caller
        now = self.now()
        return replace(caller, stage=now.stage, step=caller.step or now.step)


@dataclass
class MeteredCall:
    """One call, from its reservation to what it cost; see `endpoint_helper.Account`."""

    meter: Meter
    row: LedgerCall
    most_prompt: int
    most_completion: int
    key: str = ""
    """What its answer is remembered by; "" where it is not."""
    _price: TokenPrice | None = None
    _place: Place | None = None
    _begun: float | None = None
    """On the monotonic clock, once something is reserved for it."""
    _reserved: int = 0
    _lost: int = 0

    @property
    def caller(self) -> Caller:
        """For whom it is."""
        row = self.row
        return Caller(row.stage, row.step, row.problem, row.completion, row.operator)

    @property
    def begun(self) -> bool:
        """Whether anything was reserved for it."""
        return self._begun is not None

    @property
    def most(self) -> int:
        """Nano-units of one attempt, at most; 0 where no price is known."""
        return self._price.of(self.most_prompt, self.most_completion) if self._price else 0

    async def attempt(self) -> None:
        """See `Charge`. Raises as `reserve`, and LedgerUnusable."""
        if self.reserve():
            self._place = await self.meter.writes.write(self.entry())

    def reserve(self) -> bool:
        """Make room for an attempt; whether its row has to be written before it is sent.

        Raises OverBudget where the call has no room; Unanswered where only its repetition has none,
        or where calls that the endpoint lost took the room of its problem.
        """
        if self._begun is None:
            self._reserve_first()
        elif not self._reserved and self.most:
            self._reserve_again()
        else:
            self.row = replace(self.row, attempts=self.row.attempts + 1)
            return False
        return True

    def entry(self, answer: HelperAnswer | None = None) -> Entry:
        """What is to be written, with an answer that is to be remembered."""
        if not self.key or answer is None or answer.failure:
            return Entry(self._place, self.row)
        counts = answer.prompt_tokens, answer.completion_tokens
        known = KnownAnswer(answer.text, answer.ended, *counts)
        return Entry(self._place, self.row, self.key, known)

    def placed(self, place: Place) -> None:
        """It is written there."""
        self._place = place

    def _reserve_first(self) -> None:
        now = datetime.now(UTC)
        self._price = price = self.meter.price(now.date())
        try:
            self.meter.budgets.reserve(self.caller, self.most)
        except EatenByFailures as eaten:
            raise Unanswered("lost calls used up the budget", str(eaten)) from eaten
        self._begun, self._reserved = time.monotonic(), self.most
        self.row = replace(
            self.row,
            at=stamp(now),
            attempts=1,
            prompt_price=price.prompt if price else None,
            completion_price=price.completion if price else None,
            uncertain=self.most,
        )

    def _reserve_again(self) -> None:
        try:
            self.meter.budgets.reserve(self.caller, self.most, self._lost)
        except (OverBudget, EatenByFailures) as full:
            raise Unanswered("lost, and no budget to ask again", str(full)) from full
        self._reserved = self.most
        attempts, uncertain = self.row.attempts + 1, self._lost + self.most
        self.row = replace(self.row, attempts=attempts, uncertain=uncertain)

    def lost(self) -> None:
        """See `Charge`: the attempt's reservation counts as spent."""
        self.meter.budgets.settle(self.caller, self._reserved, self._reserved, self._reserved)
        self._lost += self._reserved
        self._reserved = 0

    async def ended(self, answer: HelperAnswer) -> HelperAnswer:
        """See `Account`."""
        said = self.settle(answer)
        if self._begun is not None:
            self._place = await self.meter.writes.write(self.entry(answer))
        return said

    def settle(self, answer: HelperAnswer) -> HelperAnswer:
        """The answer with what it cost, which takes the place of what is reserved."""
        if self._begun is None:
            return replace(answer, cost=0.0)
        cost, uncertain = self._cost(answer)
        self.meter.budgets.settle(self.caller, self._reserved, (cost or 0) + uncertain)
        self._reserved = 0
        self.row = replace(
            self.row,
            status="failed" if answer.failure else "answered",
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            cost=cost,
            uncertain=self._lost + uncertain,
            seconds=time.monotonic() - self._begun,
            why=whole_text(answer.failure),
        )
        return replace(answer, cost=None if cost is None else units(cost))

    def _cost(self, answer: HelperAnswer) -> tuple[int | None, int]:
        """What the answer cost, None where that is not known, and what it may have cost then."""
        if self._price is None:
            return None, 0
        if answer.failure:
            return 0, 0
        if answer.prompt_tokens is None or answer.completion_tokens is None:
            return None, self._reserved
        return self._price.of(answer.prompt_tokens, answer.completion_tokens), 0


def begin_all(calls: Sequence[MeteredCall]) -> None:
    """Make room for calls that are asked as one batch, and write them. Raises OverBudget,
    Unanswered and LedgerUnusable."""
    fresh = [call for call in calls if call.reserve()]
    _write(fresh, [call.entry() for call in fresh])


def end_all(calls: Sequence[MeteredCall], answers: Sequence[HelperAnswer]) -> list[HelperAnswer]:
    """The answers of a batch with what they cost, written as one."""
    said = [call.settle(answer) for call, answer in zip(calls, answers, strict=True)]
    begun = [(call, answer) for call, answer in zip(calls, answers, strict=True) if call.begun]
    _write([call for call, _ in begun], [call.entry(answer) for call, answer in begun])
    return said


def _write(calls: Sequence[MeteredCall], entries: Sequence[Entry]) -> None:
    if calls:
        places = calls[0].meter.ledger.write(entries)
        for call, place in zip(calls, places, strict=True):
            call.placed(place)


def stamp(at: datetime) -> str:
    """A time as ledgers have it."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
