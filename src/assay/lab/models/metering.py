"""Meters a helper model of any kind: every call is in the run's cost ledger and within its budgets.

The most that a call can cost is reserved and written before it is sent, and replaced by what it did
cost. What was answered before in the run may be remembered; drawn answers are remembered by their
draw, so that two samples of one prompt stay two. What a server charged is only known by the tokens
that it counts.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from assay.data.conversation import dump_message
from assay.data.files import canonical_json, sha256_text, whole_text
from assay.data.row import Message, TextPart
from assay.errors import AssayError
from assay.experiment.price_table import TokenPrice, units
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.endpoint.client import PREFIX
from assay.rollout.engines.endpoint.openai_text import EndpointAnswer, read_words
from assay.runs.cost_ledger import CostLedger, LedgerCall, LedgerPlace
from assay.tasks.helper_model import (
    BudgetScope,
    Call,
    Caller,
    HelperAnswer,
    HelperFailed,
    Model,
    NextWords,
    OverBudget,
    Question,
    Score,
    ScoredTokens,
    Scores,
    Tokens,
    Usage,
)

Computed = TypeVar("Computed", Scores, NextWords)

TEMPLATE_TOKENS, MESSAGE_TOKENS = 256, 32
"""That a chat template adds to a conversation, such as a system prompt, and to each message."""
IMAGE_TOKENS = 50_000
"""That an image is read as, at most."""

Key = tuple[BudgetScope, tuple[str, ...]]
"""One budget: its scope and what it is the budget of."""


@dataclass
class HelperBudgets:
    """The budgets of one helper model, kept exactly however many calls run at once; safe to use
    from several threads."""

    model: str = ""
    """The name of its table."""
    limits: Mapping[BudgetScope, int] = field(default_factory=dict)
    """Nano-units; a scope without one is not bounded."""
    _spent: Counter[Key] = field(default_factory=Counter)
    """Nano-units spent and reserved."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def restart(self, calls: Iterable[LedgerCall]) -> None:
        """Begin anew with what earlier sessions of a run spent."""
        with self._lock:
            self._spent.clear()
            for call in calls:
                if call.model == self.model:
                    for key in _budgets(call.stage, call.step):
                        self._spent[key] += call.most

    def reserve(self, caller: Caller, amount: int) -> None:
        """Take nano-units from every budget of `caller`, or from none. Raises OverBudget."""
        keys = _budgets(caller.stage, caller.step)
        with self._lock:
            for key in keys:
                limit, spent = self.limits.get(key[0]), self._spent[key]
                if limit is not None and spent + amount > limit:
                    raise OverBudget(
                        f"model.{self.model}.budget.{key[0]}: {units(spent):g} of "
                        f"{units(limit):g} spent or reserved, and the next call may cost "
                        f"{units(amount):g}"
                    )
            for key in keys:
                self._spent[key] += amount

    def settle(self, caller: Caller, reserved: int, spent: int) -> None:
        """Replace a reservation by what was spent."""
        with self._lock:
            for key in _budgets(caller.stage, caller.step):
                self._spent[key] += spent - reserved


def _budgets(stage: str, step: int) -> list[Key]:
    return [("run", ()), *([("step", (stage, str(step)))] if stage else [])]


@dataclass(frozen=True)
class Meter:
    """What the calls of one helper model are counted, recorded and bounded by."""

    source: str = ""
    ledger: CostLedger = field(default_factory=CostLedger)
    budgets: HelperBudgets = field(default_factory=HelperBudgets)
    usage: Usage = field(default_factory=Usage)
    price: TokenPrice | None = None
    """None where it is not known."""
    now: Callable[[], Caller] = Caller
    """The stage and the step under way, for callers that do not say."""
    cache: bool | None = None
    """Whether answers are remembered; None where they are greedy and of an endpoint."""

    def remembers(self, sampling: Sampling) -> bool:
        """Whether an answer with these settings is remembered."""
        if self.cache is not None:
            return self.cache
        return sampling.temperature == 0 and self.source.startswith(PREFIX)

    def whole(self, caller: Caller) -> Caller:
        """The caller with the stage and the step under way, where it does not say them."""
        if caller.stage:
            return caller
        now = self.now()
        return replace(caller, stage=now.stage, step=caller.step or now.step)


@dataclass
class MeteredCall(Call):
    """One call, from the reservation of its most to what it did cost; see `Call`."""

    meter: Meter
    caller: Caller
    row: LedgerCall
    most_prompt: int
    most_completion: int
    key: str = ""
    """What its answer is remembered by; "" where it is not."""
    _place: LedgerPlace | None = None
    _begun: float | None = None
    """On the monotonic clock, once something is reserved for it."""
    _reserved: int | None = None
    """For the attempt under way; None where there is none."""
    _lost: int = 0

    def attempt(self) -> None:
        """See `Call`. Raises OverBudget and LedgerUnusable."""
        price = self.meter.price
        if self._reserved is None:
            most = price.of(self.most_prompt, self.most_completion) if price else 0
            self.meter.budgets.reserve(self.caller, most)
            self._reserved = most
        if self._begun is None:
            self._begun = time.monotonic()
            self.row = replace(
                self.row,
                at=stamp(datetime.now(UTC)),
                prompt_price=price.prompt if price else None,
                completion_price=price.completion if price else None,
            )
        uncertain = self._lost + self._reserved
        self.row = replace(self.row, attempts=self.row.attempts + 1, uncertain=uncertain)
        self._write()

    def lost(self) -> None:
        """See `Call`: the attempt's reservation counts as spent."""
        self._lost += self._reserved or 0
        self._reserved = None

    def ended(self, answer: HelperAnswer) -> HelperAnswer:
        """See `Call`."""
        self.meter.usage.answered([answer])
        return self._close(answer)

    def abandon(self, why: str) -> None:
        """End it where its batch has raised."""
        if self._begun is not None and self.row.status == "sent":
            self._close(HelperAnswer("", failure=why))

    def _close(self, answer: HelperAnswer) -> HelperAnswer:
        """The answer with what it cost, which takes the place of what is reserved."""
        if self._begun is None:
            return replace(answer, cost=0.0)
        cost, uncertain = self._cost(answer)
        self.meter.budgets.settle(self.caller, self._reserved or 0, (cost or 0) + uncertain)
        self._reserved = None
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
        self._write(None if answer.failure else answer)
        return replace(answer, cost=None if cost is None else units(cost))

    def _cost(self, answer: HelperAnswer) -> tuple[int | None, int]:
        """What the answer cost, None where that is not known, and what it may have cost then."""
        if self.meter.price is None:
            return None, 0
        if answer.failure:
            return 0, 0
        if answer.prompt_tokens is None or answer.completion_tokens is None:
            return None, self._reserved or 0
        return self.meter.price.of(answer.prompt_tokens, answer.completion_tokens), 0

    def _write(self, answer: HelperAnswer | None = None) -> None:
        stored = None
        if self.key and answer is not None:
            counts = answer.prompt_tokens, answer.completion_tokens
            stored = EndpointAnswer(answer.text, answer.ended, *counts)
        self._place = self.meter.ledger.write(self.row, self._place, self.key, stored)


FIRST = Sampling(0.0, 1)
"""Of a question about a prompt: servers write at least one token."""


@dataclass(frozen=True)
class MeteredModel:
    """See `HelperModel`."""

    name: str
    model: Model
    sampling: Sampling
    meter: Meter = field(default_factory=Meter)
    caller: Caller = field(default_factory=Caller)

    @property
    def fingerprint(self) -> str:
        """See `HelperModel`."""
        return self.model.fingerprint

    @property
    def identity(self) -> str:
        """See `HelperModel`."""
        return self.model.identity

    @property
    def usage(self) -> Usage:
        """See `HelperModel`."""
        return self.meter.usage

    def called_by(self, caller: Caller) -> "MeteredModel":
        """See `HelperModel`. A caller that names no stage asks in this one's, else in the one under
        way now: who is left behind and asks later is not billed to a later step."""
        if not caller.stage:
            step = caller.step or self.caller.step
            caller = replace(caller, stage=self.caller.stage, step=step)
        return replace(self, caller=self.meter.whole(caller))

    def known(self, question: Question) -> HelperAnswer | None:
        """The answer that is remembered, not counted; None where it would be asked for."""
        name = self._remembered_as(question)
        answer = self.meter.ledger.known(name) if name else None
        return None if answer is None else self._remembered(answer)

    def answer(self, batch: Sequence[Question]) -> list[HelperAnswer]:
        """See `HelperModel`; what is remembered is not asked. Raises OverBudget, and LedgerUnusable
        before anything is sent."""
        ledger, answers = self.meter.ledger, dict[int, HelperAnswer]()
        questions, calls = dict[int, Question](), list[MeteredCall]()
        for n, question in enumerate(batch):
            name = self._remembered_as(question)
            known = ledger.known(name) if name else None
            if known is not None:
                answers[n] = self._remembered(known)
                continue
            most = question.most or (most_tokens(question.messages), question.sampling.max_tokens)
            calls.append(MeteredCall(self.meter, self._caller(), self._row(), *most, name))
            questions[n] = replace(question, call=calls[-1])
        if answers:
            self.usage.remember(len(answers))
            ledger.add([replace(self._row(), status="remembered", cost=0)] * len(answers))
        try:
            fresh = self.model.answer([*questions.values()]) if questions else []
        except Exception as error:
            for call in calls:
                call.abandon(str(error))
            raise
        answers |= zip(questions, fresh, strict=True)
        return [answers[n] for n in range(len(batch))]

    def score(
        self,
        conversations: Sequence[Sequence[Message]],
        answers: Sequence[str],
        ended: bool = False,
    ) -> list[tuple[float, ...]]:
        """See `HelperModel`; recorded as one call, whose cost is not known: what conversations
        begin with alike is computed once for several callers."""
        batch = [Score(*each, ended) for each in zip(conversations, answers, strict=True)]
        return self._at_once(len(batch), lambda: self.model.score(batch)).logps

    def read(
        self, contexts: Sequence[Tokens], answers: Sequence[Tokens], likeliest: int | None = None
    ) -> NextWords:
        """See `HelperModel`; of a model in this process recorded as one call, like scores. Raises
        HelperFailed where an answer is missing, and OverBudget."""
        if likeliest is None or not self.meter.source.startswith(PREFIX):
            return self._at_once(len(contexts), lambda: self.model.read(contexts, answers), "read")
        batch = []
        for context, answer in zip(contexts, answers, strict=True):
            scored = ScoredTokens((*context, *answer), len(context), likeliest)
            about = [self.fingerprint, scored.tokens, scored.begin, likeliest]
            name = "" if self.meter.cache is False else sha256_text(canonical_json(about))
            meant = {"scored": scored, "most": (len(scored.tokens), 1), "remembered_as": name}
            batch.append(Question((), FIRST, SampleKey(0, "", 0), **meant))
        replies = self.answer(batch)
        if failed := next((each.failure for each in replies if each.failure), ""):
            raise HelperFailed(f"{self.name}: {failed}")
        told = [read_words(each.text) for each in replies]
        return NextWords(
            sum(each.prompt_tokens or 0 for each in replies),
            told_SN=torch.from_numpy(np.concatenate([each.words_TN for each in told])),
            logps_SN=torch.from_numpy(np.concatenate([each.logps_TN for each in told])),
            texts={word: text for each in told for word, text in each.texts.items()},
        )

    def _at_once(
        self, count: int, compute: Callable[[], Computed], kind: Literal["score", "read"] = "score"
    ) -> Computed:
        """What is computed of so many answers, counted and recorded as one call."""
        begun, row, why = time.monotonic(), self._row(), ""
        try:
            scores = compute()
        except AssayError as error:
            why = str(error)
            if isinstance(error, HelperFailed):
                self.usage.scored(count, 0, failures=1)
            raise
        finally:
            seconds = time.monotonic() - begun
            status = "failed" if why else "answered"
            ended_row = replace(row, kind=kind, attempts=count, seconds=seconds)
            self.meter.ledger.add([replace(ended_row, status=status, why=whole_text(why))])
        self.usage.scored(count, scores.tokens)
        return scores

    def _caller(self) -> Caller:
        return self.meter.whole(self.caller)

    def _row(self) -> LedgerCall:
        caller = self._caller()
        return LedgerCall(
            at=stamp(datetime.now(UTC)),
            model=self.name,
            source=self.meter.source,
            stage=caller.stage,
            step=caller.step,
            problem=whole_text(caller.problem),
            completion=whole_text(caller.completion),
            operator=caller.operator,
        )

    def _remembered(self, known: EndpointAnswer) -> HelperAnswer:
        read, wrote = known.prompt_tokens, known.completion_tokens
        price, saved = self.meter.price, None
        if price is not None and read is not None and wrote is not None:
            saved = units(price.of(read, wrote))
        told = {"cost": 0.0, "remembered": True, "saved": saved}
        return HelperAnswer(known.text, known.ended, read, wrote, **told)

    def _remembered_as(self, question: Question) -> str:
        """The key of an answer that is remembered; "" where it is not."""
        sampling, key = question.sampling, question.key
        if question.remembered_as is not None:
            return question.remembered_as
        if not self.meter.remembers(sampling):
            return ""
        stop = None if sampling.stop is None else list(sampling.stop.strings)
        settings = [sampling.temperature, sampling.max_tokens, sampling.top_p, sampling.top_k]
        model = [self.fingerprint, *settings, sampling.min_p, stop]
        model += [sampling.beams] if sampling.beams > 1 else []
        draw = [key.seed, key.row, key.sample] if sampling.temperature > 0 else None
        return sha256_text(canonical_json([model, contents(question.messages), draw]))


def most_tokens(messages: Sequence[Message]) -> int:
    """The most tokens that a server can read a conversation as.

    A byte of text is at most one token in every byte-level vocabulary. What a chat template adds
    and images are assumptions: TEMPLATE_TOKENS, MESSAGE_TOKENS and IMAGE_TOKENS each.
    """
    count = TEMPLATE_TOKENS
    for message in messages:
        texts = [message.content, message.reasoning]
        texts += [canonical_json([call.name, dict(call.arguments)]) for call in message.tool_calls]
        images = sum(not isinstance(part, TextPart) for part in message.parts)
        count += sum(len(text.encode("utf-8", "replace")) for text in texts)
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


def stamp(at: datetime) -> str:
    """A time as ledgers have it."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
