"""Helper models without weights here: behind an endpoint, or scripted.

A script is JSON lines, one rule a line. The first rule that fits answers; which of several answers,
and whether a failure comes, follows from the request's key, so that equal requests have equal
answers.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import ValidationError, model_validator

from assay.data.files import sha256_file
from assay.data.json_files import read_jsonl
from assay.data.row import Message
from assay.errors import InputError
from assay.experiment.base_table import Many, Share, Table, refused
from assay.experiment.problems import problems_in
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.endpoint.client import Endpoint, Unanswered
from assay.rollout.token_choice import key_state, uniforms
from assay.runs.cost_ledger import CostLedger, LedgerUnusable
from assay.tasks.helper_model import (
    Call,
    HelperAnswer,
    HelperFailed,
    NextWords,
    Question,
    Score,
    Scores,
    Tokens,
)


@dataclass
class Rounds:
    """Acts that write to a ledger, on one event loop; those of one round in one transaction.

    A commit of its own for each would cost more than all the rest of a call.
    """

    ledger: CostLedger
    _waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = field(default_factory=list)

    async def done(self, act: Callable[[], Any]) -> Any:
        """The result of `act`, once what it wrote is committed. Raises what it raises, and
        LedgerUnusable."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((act, result))
        if len(self._waiting) == 1:
            # It runs after all that is ready now, which may have something to write as well.
            loop.call_soon(self._act)
        return await result

    def _act(self) -> None:
        waiting, self._waiting = self._waiting, []
        outcomes = list[tuple[Any, Exception | None]]()
        try:
            with self.ledger.together():
                for act, _ in waiting:
                    try:
                        outcomes.append((act(), None))
                    except LedgerUnusable:
                        raise
                    except Exception as error:  # whoever waits for it raises it
                        outcomes.append((None, error))
        except LedgerUnusable as error:  # nothing is written
            outcomes = [(None, error)] * len(waiting)
        results = [result for _, result in waiting]
        # Errors first: whoever began beside a call without room learns of it before it sends.
        ended = sorted(zip(results, outcomes, strict=True), key=lambda each: each[1][1] is None)
        for result, (value, error) in ended:
            if result.done():  # its batch is cancelled
                continue
            if error is None:
                result.set_result(value)
            else:
                result.set_exception(error)


@dataclass(frozen=True)
class EndpointHelper:
    """See `Model`."""

    name: str
    endpoint: Endpoint
    rendering: str
    rounds: Rounds
    identity: str = ""
    """Nobody knows what answers."""

    @property
    def fingerprint(self) -> str:
        """The endpoint's URL and the model's name; what weights answer is not known."""
        return f"{self.endpoint.url} {self.endpoint.model}"

    def ask(self, batch: Sequence[Question]) -> list[HelperAnswer]:
        """See `Model`. After an error nothing more is sent, and what is on its way is waited for.

        Raises InputError where no request can ever succeed, and what a call raises.
        """
        raised: list[Exception] = []

        async def one(question: Question) -> HelperAnswer:
            try:
                answer = await self._answer(question, _Attempts(self.rounds, question.call, raised))
                return await self.rounds.done(partial(question.call.ended, answer))
            except Exception as error:
                raised.append(error)
                raise

        async def every() -> list[HelperAnswer | BaseException]:
            return await asyncio.gather(*map(one, batch), return_exceptions=True)

        answers = self.endpoint.connections.wait(every())
        if raised:
            raise raised[0]
        return [each for each in answers if isinstance(each, HelperAnswer)]

    async def _answer(self, question: Question, attempts: "_Attempts") -> HelperAnswer:
        # Servers take seeds of 31 bits.
        seed = key_state(question.key) >> 33
        request = question.messages, (), question.sampling, self.rendering, seed, attempts
        scored = question.scored
        try:
            if scored is None:
                said = await self.endpoint.asked(*request)
            else:
                about = scored.tokens, scored.begin, scored.likeliest
                said = await self.endpoint.likely_words(*about, attempts)
        except Unanswered as error:
            return HelperAnswer("", failure=f"endpoint: {error}", too_long=error.too_long)
        return HelperAnswer(said.text, said.ended, said.prompt_tokens, said.completion_tokens)

    def score(self, batch: Sequence[Score]) -> Scores:
        """Raise InputError: an endpoint gives text alone."""
        problem = "a model behind an endpoint gives no log-probabilities"
        fix = "score with a hf:, path:, pypi: or run: model"
        raise InputError(problem, field=f"model.{self.name}.source", fix=fix)

    def read(self, contexts: Sequence[Tokens], answers: Sequence[Tokens]) -> NextWords:
        """Raise InputError: it tells its likeliest words alone, which are asked for one by one."""
        problem = "a model behind an endpoint tells its likeliest words alone"
        raise InputError(problem, field=f"model.{self.name}.source", fix="say how many")


@dataclass(frozen=True)
class _Attempts:
    """The attempts at one answer, none of which is made once another answer of the batch has
    raised."""

    rounds: Rounds
    call: Call
    raised: Sequence[Exception]

    async def attempt(self) -> None:
        self._refuse()
        await self.rounds.done(self.call.attempt)
        self._refuse()

    def _refuse(self) -> None:
        if self.raised:
            raise self.raised[0]

    def lost(self) -> None:
        self.call.lost()


class ScriptRule(Table):
    """What is answered or scored where the patterns are found."""

    prompt: str = ""
    """A regular expression, searched in the conversation as `role: content` lines."""
    answered: str = ""
    """A regular expression, searched in an answer that is to be scored."""
    answer: str | Many[str] | None = None
    """The answer; of several the first when greedy, else one drawn by the request's key."""
    logps: float | Many[float] | None = None
    """Log-probabilities of a scored answer: one for each of its words, or the list itself."""
    failure: str | None = None
    """The reason of a failure, in place of an answer."""
    share: Share = 1.0
    """The share of the requests that fail."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        for pattern in ("prompt", "answered"):
            try:
                re.compile(getattr(self, pattern))
            except re.error as error:
                raise refused(pattern, f"is no regular expression: {error}") from None
        if self.answer is None and self.logps is None and self.failure is None:
            raise refused("answer", "the rule has no answer, logps or failure")
        if self.answer == ():
            raise refused("answer", "must not be empty")
        return self

    def fails(self, state: int) -> bool:
        """Whether the request with this key state fails."""
        return self.failure is not None and _uniform(state, 0) < self.share


def _uniform(state: int, position: int) -> float:
    return float(uniforms(np.array([state], dtype=np.uint64), np.array([position]))[0])


def read_script(file: Path) -> tuple[ScriptRule, ...]:
    """The rules of a script. Raises InputError with file, line and field."""
    rules = []
    for record in read_jsonl(file):
        try:
            rules.append(ScriptRule.model_validate(record.value))
        except ValidationError as invalid:
            first = problems_in(invalid.errors(include_url=False), record.value, ScriptRule)[0]
            place, fix = ".".join(map(str, first.path)), first.fix or None
            problem = first.problem
            raise InputError(problem, file=file, line=record.line, field=place, fix=fix) from None
    if not rules:
        raise InputError("the script has no rules", file=file)
    return tuple(rules)


@dataclass(frozen=True)
class ScriptedHelper:
    """See `Model`. Tokens are words."""

    name: str
    file: Path
    rules: tuple[ScriptRule, ...]
    identity: str = ""

    @property
    def fingerprint(self) -> str:
        """The sha256 of the script."""
        return sha256_file(self.file)

    def ask(self, batch: Sequence[Question]) -> list[HelperAnswer]:
        """See `Model`."""
        for question in batch:
            question.call.attempt()
        return [
            each.call.ended(
                self._answer(_written(each.messages), each.sampling, key_state(each.key))
            )
            for each in batch
        ]

    def _answer(self, text: str, sampling: Sampling, state: int) -> HelperAnswer:
        read = len(text.split())
        for rule in self.rules:
            if not re.search(rule.prompt, text):
                continue
            if rule.fails(state):
                return HelperAnswer("", failure=rule.failure or "")
            if rule.answer is not None:
                whole = _chosen(rule.answer, sampling, state)
                words = re.findall(r"\s*\S+", whole)
                if len(words) <= sampling.max_tokens:
                    return HelperAnswer(whole, "stop", read, len(words))
                cut = "".join(words[: sampling.max_tokens])
                return HelperAnswer(cut, "length", read, sampling.max_tokens)
        return HelperAnswer("", failure=f"no rule of {self.file.name} answers {text!r}")

    def score(self, batch: Sequence[Score]) -> Scores:
        """See `Model`; an end of the turn is as likely as a word, or in the rule's list."""
        texts = [_written(each.messages) for each in batch]
        logps = [
            self._logps(text, each.answer, each.ended)
            for text, each in zip(texts, batch, strict=True)
        ]
        words = sum(len(text.split()) for text in [*texts, *(each.answer for each in batch)])
        return Scores(logps, words)

    def read(self, contexts: Sequence[Tokens], answers: Sequence[Tokens]) -> NextWords:
        """Raise InputError: a script has no words."""
        problem = "a scripted model has no distribution over words"
        raise InputError(
            problem, field=f"model.{self.name}.source", fix="name a model with weights"
        )

    def _logps(self, text: str, answer: str, ended: bool) -> tuple[float, ...]:
        state = key_state(SampleKey(0, f"{text}\x1f{answer}", 0))
        for rule in self.rules:
            if not re.search(rule.prompt, text) or not re.search(rule.answered, answer):
                continue
            if rule.fails(state):
                raise HelperFailed(f"{self.name}: {rule.failure}")
            if isinstance(rule.logps, tuple):
                return rule.logps
            if rule.logps is not None:
                return (rule.logps,) * (len(answer.split()) + ended)
        raise HelperFailed(f"{self.name}: no rule of {self.file.name} scores {answer!r}")


def _written(messages: Sequence[Message]) -> str:
    return "\n".join(f"{message.role}: {message.content}" for message in messages)


def _chosen(answer: str | tuple[str, ...], sampling: Sampling, state: int) -> str:
    if isinstance(answer, str):
        return answer
    return answer[int(_uniform(state, 1) * len(answer)) if sampling.temperature else 0]
