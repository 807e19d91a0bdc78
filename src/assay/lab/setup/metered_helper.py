"""A helper model whose calls are recorded in the run's cost ledger and kept within its budgets.

Wraps a helper model of any kind. What was answered before in the run may be remembered; drawn
answers are remembered by their draw, so that two samples of one prompt stay two. Prices come from
the experiment; what a server charged is only known by the tokens that it counts.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any

from assay.data.conversation import dump_message
from assay.data.files import whole_text
from assay.data.hashing import canonical_json, sha256_text
from assay.data.row import Message, TextPart
from assay.errors import AssayError
from assay.experiment.price_table import TokenPrice, units
from assay.lab.setup.endpoint_helper import EndpointHelper
from assay.lab.setup.helper_budgets import EatenByFailures, HelperBudgets
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.endpoint.client import Unanswered
from assay.runs.cost_ledger import CostLedger, KnownAnswer, LedgerCall, Place
from assay.tasks.helper_model import (
    Caller,
    HelperAnswer,
    HelperModel,
    OverBudget,
    Reproducible,
    Usage,
)

TEMPLATE_TOKENS, MESSAGE_TOKENS = 256, 32
"""That a chat template adds to a conversation, such as a system prompt, and to each message."""
IMAGE_TOKENS = 50_000
"""That an image is read as, at most."""


@dataclass(frozen=True)
class Meter:
    """What the calls of one helper model are recorded and bounded by."""

    source: str
    ledger: CostLedger
    budgets: HelperBudgets
    price: Callable[[date], TokenPrice | None]
    """Of a day in UTC; None where it is not known."""
    now: Callable[[], Caller]
    """The stage and the step under way, for callers that do not say."""
    cache: bool | None = None
    """Whether answers are remembered; None where they are greedy and of an endpoint."""

    def remembers(self, sampling: Sampling) -> bool:
        """Whether an answer with these settings is remembered."""
        if self.cache is not None:
            return self.cache
        return sampling.temperature == 0 and self.source.startswith("openai:")

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
    _reserved: int = 0
    _lost: int = 0
    _begun: float = 0.0

    @property
    def caller(self) -> Caller:
        """For whom it is."""
        row = self.row
        return Caller(row.stage, row.step, row.problem, row.completion, row.operator)

    @property
    def most(self) -> int:
        """Nano-units of one attempt, at most; 0 where no price is known."""
        return self._price.of(self.most_prompt, self.most_completion) if self._price else 0

    def attempt(self) -> None:
        """See `Charge`. Raises OverBudget where the call has no room; Unanswered where only its
        repetition has none, or where calls that the endpoint lost took the room of its problem."""
        if self._place is None:
            self._begin()
        elif not self._reserved and self.most:
            self._reserve_again()
        self.row = replace(self.row, attempts=self.row.attempts + 1)

    def _begin(self) -> None:
        now = datetime.now(UTC)
        self._price, self._begun = self.meter.price(now.date()), time.monotonic()
        try:
            self.meter.budgets.reserve(self.caller, self.most)
        except EatenByFailures as eaten:
            raise Unanswered("lost calls used up the budget", str(eaten)) from eaten
        self._reserved = self.most
        each = self._price
        prices = (each.prompt, each.completion) if each else (None, None)
        self.row = replace(
            self.row,
            at=_stamp(now),
            prompt_price=prices[0],
            completion_price=prices[1],
            uncertain=self.most,
        )
        self._place = self.meter.ledger.begin(self.row)

    def _reserve_again(self) -> None:
        try:
            self.meter.budgets.reserve(self.caller, self.most, self._lost)
        except (OverBudget, EatenByFailures) as full:
            raise Unanswered("lost, and no budget to ask again", str(full)) from full
        self._reserved = self.most
        self._write(replace(self.row, uncertain=self._lost + self.most))

    def lost(self) -> None:
        """See `Charge`: the attempt's reservation counts as spent."""
        self.meter.budgets.settle(self.caller, self._reserved, self._reserved, self._reserved)
        self._lost += self._reserved
        self._reserved = 0

    def ended(self, answer: HelperAnswer) -> HelperAnswer:
        """See `Account`."""
        if self._place is None:
            return replace(answer, cost=0.0)
        cost, uncertain = self._cost(answer)
        self.meter.budgets.settle(self.caller, self._reserved, (cost or 0) + uncertain)
        self._reserved = 0
        self._write(
            replace(
                self.row,
                status="failed" if answer.failure else "answered",
                prompt_tokens=answer.prompt_tokens,
                completion_tokens=answer.completion_tokens,
                cost=cost,
                uncertain=self._lost + uncertain,
                seconds=time.monotonic() - self._begun,
                why=whole_text(answer.failure),
            )
        )
        self._remember(answer)
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

    def _remember(self, answer: HelperAnswer) -> None:
        if self.key and not answer.failure:
            counts = answer.prompt_tokens, answer.completion_tokens
            known = KnownAnswer(answer.text, answer.ended, *counts)
            self.meter.ledger.remember(self.key, known)

    def _write(self, row: LedgerCall) -> None:
        assert self._place is not None
        self.row = row
        self.meter.ledger.update(self._place, row)


@dataclass(frozen=True)
class MeteredHelper:
    """See `HelperModel` and `Metered`."""

    inner: HelperModel
    meter: Meter
    caller: Caller = field(default_factory=Caller)

    @property
    def name(self) -> str:
        """See `HelperModel`."""
        return self.inner.name

    @property
    def fingerprint(self) -> str:
        """See `HelperModel`."""
        return self.inner.fingerprint

    @property
    def sampling(self) -> Sampling:
        """See `HelperModel`."""
        return self.inner.sampling

    @property
    def usage(self) -> Usage:
        """See `HelperModel`."""
        return self.inner.usage

    def called_by(self, caller: Caller) -> "MeteredHelper":
        """See `Metered`."""
        return replace(self, caller=caller)

    def answer(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        keys: Sequence[SampleKey],
    ) -> list[HelperAnswer]:
        """See `HelperModel`. Raises OverBudget, and LedgerUnusable before anything is sent."""
        names = self._names(conversations, sampling, keys)
        known = [self.meter.ledger.known(name) if name else None for name in names]
        fresh = [n for n, answer in enumerate(known) if answer is None]
        self._record_hits(len(known) - len(fresh))
        calls = [self._call(conversations[n], sampling, names[n]) for n in fresh]
        given = [conversations[n] for n in fresh], sampling, [keys[n] for n in fresh]
        asked = dict(zip(fresh, self._asked(*given, calls) if fresh else [], strict=True))
        return [
            asked[n] if answer is None else _remembered(answer) for n, answer in enumerate(known)
        ]

    def _asked(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        keys: Sequence[SampleKey],
        calls: Sequence[MeteredCall],
    ) -> list[HelperAnswer]:
        if isinstance(self.inner, EndpointHelper):
            return self.inner.accounted(conversations, sampling, keys, calls)
        try:
            for call in calls:
                call.attempt()
            found = self.inner.answer(conversations, sampling, keys)
        except AssayError as error:
            for call in calls:
                call.ended(HelperAnswer("", failure=str(error)))
            raise
        return [call.ended(answer) for call, answer in zip(calls, found, strict=True)]

    def score(
        self,
        conversations: Sequence[Sequence[Message]],
        answers: Sequence[str],
        ended: bool = False,
    ) -> list[tuple[float, ...]]:
        """See `HelperModel`; recorded as one call, whose cost is not known: what conversations
        begin with alike is computed once for several callers."""
        begun, at = time.monotonic(), datetime.now(UTC)
        try:
            found = self.inner.score(conversations, answers, ended)
        except AssayError as error:
            self._record_score(at, begun, str(error))
            raise
        self._record_score(at, begun, "")
        return found

    def _record_score(self, at: datetime, begun: float, why: str) -> None:
        row = replace(
            self._row(at),
            kind="score",
            status="failed" if why else "answered",
            attempts=1,
            seconds=time.monotonic() - begun,
            why=whole_text(why),
        )
        self.meter.ledger.add([row])

    def _record_hits(self, count: int) -> None:
        if count:
            self.usage.remember(count)
            row = replace(self._row(datetime.now(UTC)), status="remembered", cost=0)
            self.meter.ledger.add([row] * count)

    def _call(self, messages: Sequence[Message], sampling: Sampling, name: str) -> MeteredCall:
        row = self._row(datetime.now(UTC))
        return MeteredCall(self.meter, row, most_tokens(messages), sampling.max_tokens, name)

    def _row(self, at: datetime) -> LedgerCall:
        caller = self.meter.whole(self.caller)
        return LedgerCall(
            at=_stamp(at),
            model=self.name,
            source=self.meter.source,
            stage=caller.stage,
            step=caller.step,
            problem=whole_text(caller.problem),
            completion=whole_text(caller.completion),
            operator=caller.operator,
        )

    def _names(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        keys: Sequence[SampleKey],
    ) -> list[str]:
        """What each answer is remembered by; "" where it is not."""
        if not self.meter.remembers(sampling):
            return [""] * len(keys)
        stop = None if sampling.stop is None else list(sampling.stop.strings)
        settings = [sampling.temperature, sampling.max_tokens, sampling.top_p, sampling.top_k]
        model = [self.fingerprint, *settings, sampling.min_p, stop]
        drawn = sampling.temperature > 0
        named = [
            [model, contents(messages), [key.seed, key.row, key.sample] if drawn else None]
            for messages, key in zip(conversations, keys, strict=True)
        ]
        return [sha256_text(canonical_json(name)) for name in named]


@dataclass(frozen=True)
class MeteredReproducible(MeteredHelper):
    """The same of a model that says the same whenever it is asked the same."""

    @property
    def identity(self) -> str:
        """See `Reproducible`."""
        assert isinstance(self.inner, Reproducible)
        return self.inner.identity


def metered(inner: HelperModel, meter: Meter) -> MeteredHelper:
    """The model with its meter; as reproducible as it is without."""
    kind = MeteredReproducible if isinstance(inner, Reproducible) else MeteredHelper
    return kind(inner, meter)


def most_tokens(messages: Sequence[Message]) -> int:
    """The most tokens that a server can read a conversation as.

    A byte of text is at most one token in every byte-level vocabulary. What a chat template adds
    and images are assumptions: TEMPLATE_TOKENS, MESSAGE_TOKENS and IMAGE_TOKENS each.
    """
    count = TEMPLATE_TOKENS
    for message in messages:
        written = [message.content, message.reasoning]
        written += [
            canonical_json([call.name, dict(call.arguments)]) for call in message.tool_calls
        ]
        images = sum(not isinstance(part, TextPart) for part in message.parts)
        count += sum(len(text.encode("utf-8", "replace")) for text in written)
        count += MESSAGE_TOKENS + images * IMAGE_TOKENS
    return count


def contents(messages: Sequence[Message]) -> list[Any]:
    """A conversation as a JSON value; an image is its sha256."""
    return [
        dump_message(message)
        if not message.parts
        else [
            message.role,
            *(each.text if isinstance(each, TextPart) else [each.sha256] for each in message.parts),
        ]
        for message in messages
    ]


def _remembered(answer: KnownAnswer) -> HelperAnswer:
    counts = answer.prompt_tokens, answer.completion_tokens
    return HelperAnswer(answer.text, answer.ended, *counts, cost=0.0, remembered=True)


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
