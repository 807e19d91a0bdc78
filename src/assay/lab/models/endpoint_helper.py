"""Helper models behind an endpoint: questions out, answers and their scores in."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assay.errors import InputError
from assay.rollout.engines.endpoint.client import Endpoint, Unanswered
from assay.rollout.token_choice import key_state
from assay.runs.cost_ledger import CostLedger, LedgerUnusable
from assay.tasks.helper_model import (
    Call,
    HelperAnswer,
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

    def answer(self, batch: Sequence[Question]) -> list[HelperAnswer]:
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
        about = question.messages, question.tools, question.sampling
        scored = question.scored
        try:
            if scored is None:
                answer = await self.endpoint.answer(*about, self.rendering, seed, attempts)
            else:
                words = scored.tokens, scored.begin, scored.likeliest
                answer = await self.endpoint.likely_words(*words, attempts)
        except Unanswered as error:
            return HelperAnswer("", failure=f"endpoint: {error}", too_long=error.too_long)
        return HelperAnswer(
            answer.text, answer.ended, answer.prompt_tokens, answer.completion_tokens
        )

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
