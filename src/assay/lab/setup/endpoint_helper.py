"""A helper model behind an endpoint, asked for many answers side by side.

What an answer costs is kept by whoever hands in its charge.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from assay.data.row import Message
from assay.errors import InputError
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.endpoint.client import Charge, Endpoint, Free, Unanswered
from assay.rollout.token_choice import key_state
from assay.tasks.helper_model import HelperAnswer, Usage


class Account(Charge, Protocol):
    """The charge of one answer, told how it ended."""

    async def ended(self, answer: HelperAnswer) -> HelperAnswer:
        """The answer, or the failure, with what it cost; called once, also where nothing was
        sent."""
        ...


class Unaccounted(Free):
    """The account of what nobody keeps a ledger of."""

    async def ended(self, answer: HelperAnswer) -> HelperAnswer:
        """See `Account`."""
        return replace(answer, cost=None)


@dataclass(frozen=True)
class EndpointHelper:
    """See `HelperModel`."""

    name: str
    endpoint: Endpoint
    sampling: Sampling
    rendering: str
    usage: Usage = field(default_factory=Usage)

    @property
    def fingerprint(self) -> str:
        """The endpoint's URL and the model's name; what weights answer is not known."""
        return f"{self.endpoint.url} {self.endpoint.model}"

    def answer(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        keys: Sequence[SampleKey],
    ) -> list[HelperAnswer]:
        """See `HelperModel`. Raises EndpointError where no request can ever succeed."""
        return self.accounted(conversations, sampling, keys, [Unaccounted()] * len(keys))

    def accounted(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        keys: Sequence[SampleKey],
        accounts: Sequence[Account],
    ) -> list[HelperAnswer]:
        """The same with the account of each answer, which may keep it from being sent.

        After an error nothing more is sent, and what is on its way is waited for. Raises
        EndpointError and what an account raises.
        """
        stopped: list[Exception] = []

        async def one(
            messages: Sequence[Message], key: SampleKey, account: Account
        ) -> HelperAnswer:
            try:
                charge = _Stopping(account, stopped)
                return await account.ended(await self._said(messages, sampling, key, charge))
            except Exception as error:
                stopped.append(error)
                await account.ended(HelperAnswer("", failure=str(error)))
                raise

        async def every() -> list[HelperAnswer | BaseException]:
            asked = [one(*each) for each in zip(conversations, keys, accounts, strict=True)]
            return await asyncio.gather(*asked, return_exceptions=True)

        wait = self.endpoint.connections.wait
        if len(keys) == 1:  # without a task of its own
            found = [wait(one(conversations[0], keys[0], accounts[0]))]
        else:
            found = wait(every())
        answers = [each for each in found if isinstance(each, HelperAnswer)]
        self.usage.answered(answers)
        if stopped:
            raise stopped[0]
        return answers

    async def _said(
        self, messages: Sequence[Message], sampling: Sampling, key: SampleKey, charge: Charge
    ) -> HelperAnswer:
        # Servers take seeds of 31 bits.
        seed = key_state(key) >> 33
        try:
            said = await self.endpoint.asked(messages, (), sampling, self.rendering, seed, charge)
        except Unanswered as error:
            return HelperAnswer("", failure=f"endpoint: {error}", too_long=error.too_long)
        return HelperAnswer(said.text, said.ended, said.prompt_tokens, said.completion_tokens)

    def score(
        self,
        conversations: Sequence[Sequence[Message]],
        answers: Sequence[str],
        ended: bool = False,
    ) -> list[tuple[float, ...]]:
        """Raise InputError: an endpoint gives text alone."""
        problem = "a model behind an endpoint gives no log-probabilities"
        fix = "score with a hf:, path:, pypi: or run: model"
        raise InputError(problem, field=f"model.{self.name}.source", fix=fix)


@dataclass(frozen=True)
class _Stopping:
    """A charge that lets nothing more be sent once an answer of its batch has raised."""

    charge: Charge
    stopped: Sequence[Exception]

    async def attempt(self) -> None:
        self._refuse()
        await self.charge.attempt()
        self._refuse()  # another answer may have raised in the meantime

    def _refuse(self) -> None:
        if self.stopped:
            raise self.stopped[0]

    def lost(self) -> None:
        self.charge.lost()
