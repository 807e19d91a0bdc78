"""A helper model whose calls are recorded in the run's cost ledger and kept within its budgets.

Wraps a helper model of any kind. What was answered before in the run may be remembered; drawn
answers are remembered by their draw, so that two samples of one prompt stay two. Prices come from
the experiment; what a server charged is only known by the tokens that it counts.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from assay.data.conversation import dump_message
from assay.data.files import whole_text
from assay.data.hashing import canonical_json, sha256_text
from assay.data.row import Message, TextPart
from assay.errors import AssayError
from assay.lab.setup.endpoint_helper import EndpointHelper
from assay.lab.setup.metered_call import Meter, MeteredCall, begin_all, end_all, stamp
from assay.rl.policy import SampleKey, Sampling
from assay.runs.cost_ledger import KnownAnswer, LedgerCall
from assay.tasks.helper_model import Caller, HelperAnswer, HelperModel, Reproducible, Usage

TEMPLATE_TOKENS, MESSAGE_TOKENS = 256, 32
"""That a chat template adds to a conversation, such as a system prompt, and to each message."""
IMAGE_TOKENS = 50_000
"""That an image is read as, at most."""


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
        """See `Metered`. A caller that names no stage asks in this one's, else in the one under way
        now: who is left behind and asks later is not billed to a later step."""
        if not caller.stage:
            step = caller.step or self.caller.step
            caller = replace(caller, stage=self.caller.stage, step=step)
        return replace(self, caller=self.meter.whole(caller))

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
            asked[n] if answer is None else self._remembered(answer)
            for n, answer in enumerate(known)
        ]

    def _remembered(self, answer: KnownAnswer) -> HelperAnswer:
        counts = answer.prompt_tokens, answer.completion_tokens
        saved = self.meter.cost_of(*counts)
        return HelperAnswer(
            answer.text, answer.ended, *counts, cost=0.0, remembered=True, saved=saved
        )

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
            begin_all(calls)
            found = self.inner.answer(conversations, sampling, keys)
        except AssayError as error:
            end_all(calls, [HelperAnswer("", failure=str(error))] * len(calls))
            raise
        return end_all(calls, found)

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
            self._record_score(at, begun, len(answers), str(error))
            raise
        self._record_score(at, begun, len(answers), "")
        return found

    def _record_score(self, at: datetime, begun: float, scores: int, why: str) -> None:
        row = replace(
            self._row(at),
            kind="score",
            status="failed" if why else "answered",
            attempts=scores,
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
            at=stamp(at),
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
        model += [sampling.beams] if sampling.beams > 1 else []
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
