"""The interface of a helper model: a further model that rewards and tasks ask or score with.

An experiment declares it as `[model.NAME]`; `lab.setup` opens it. Nothing here loads a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.data.row import Message
from assay.rl.policy import SampleKey, Sampling


@dataclass(frozen=True, slots=True)
class HelperAnswer:
    """What a helper model answered."""

    text: str
    ended: str = "stop"
    """"stop", or "length" where the answer was cut at `max_tokens`."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """None where a server did not count them."""
    failure: str = ""
    """Why there is no answer; "" if there is one."""


class HelperModel(Protocol):
    """A frozen model in this process, behind an endpoint, or scripted; safe to use from several
    threads."""

    @property
    def name(self) -> str:
        """The name of its table."""
        ...

    @property
    def fingerprint(self) -> str:
        """What its answers depend on: the sha256 of weights or script, or endpoint and name."""
        ...

    def answer(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        keys: Sequence[SampleKey],
    ) -> list[HelperAnswer]:
        """One answer per conversation, in order; temperature 0 is greedy. A request that fails is
        an answer with `failure`, never an empty text."""
        ...

    def score(
        self, conversations: Sequence[Sequence[Message]], answers: Sequence[str]
    ) -> list[tuple[float, ...]]:
        """The log-probability of each token of each answer after its conversation, in order; what
        conversations begin with alike is computed once.

        Raises InputError for a model that gives no log-probabilities.
        """
        ...
