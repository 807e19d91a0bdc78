"""A helper model behind an endpoint, asked for many answers side by side."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from assay.errors import InputError
from assay.rollout.engines.endpoint.client import Endpoint, Unanswered
from assay.rollout.token_choice import key_state
from assay.tasks.helper_model import Call, HelperAnswer, Question, Score, Scores


@dataclass(frozen=True)
class EndpointHelper:
    """See `Model`."""

    name: str
    endpoint: Endpoint
    rendering: str
    identity: str = ""
    """Nobody knows what answers."""

    @property
    def fingerprint(self) -> str:
        """The endpoint's URL and the model's name; what weights answer is not known."""
        return f"{self.endpoint.url} {self.endpoint.model}"

    def ask(self, batch: Sequence[Question]) -> list[HelperAnswer]:
        """See `Model`. After an error nothing more is sent, and what is on its way is waited for.

        Raises EndpointError where no request can ever succeed, and what a call raises.
        """
        raised: list[Exception] = []

        async def one(question: Question) -> HelperAnswer:
            try:
                answer = await self._answer(question, _Attempts(question.call, raised))
                return question.call.ended(answer)
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
        try:
            said = await self.endpoint.asked(*request)
        except Unanswered as error:
            return HelperAnswer("", failure=f"endpoint: {error}", too_long=error.too_long)
        return HelperAnswer(said.text, said.ended, said.prompt_tokens, said.completion_tokens)

    def score(self, batch: Sequence[Score]) -> Scores:
        """Raise InputError: an endpoint gives text alone."""
        problem = "a model behind an endpoint gives no log-probabilities"
        fix = "score with a hf:, path:, pypi: or run: model"
        raise InputError(problem, field=f"model.{self.name}.source", fix=fix)


@dataclass(frozen=True)
class _Attempts:
    """The attempts at one answer, none of which is made once another answer of the batch has
    raised."""

    call: Call
    raised: Sequence[Exception]

    async def attempt(self) -> None:
        self._refuse()
        self.call.attempt()
        await asyncio.sleep(0)  # whoever begins at the same time may have no room
        self._refuse()

    def _refuse(self) -> None:
        if self.raised:
            raise self.raised[0]

    def lost(self) -> None:
        self.call.lost()
