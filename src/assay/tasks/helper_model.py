"""The interface of a helper model: a further model that rewards and tasks ask or score with.

An experiment declares it as `[model.NAME]`; `lab.models` opens it. Nothing here loads a model.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from assay.data.episode import Ended
from assay.data.row import Message
from assay.errors import AssayError, RunFailure
from assay.rl.policy import SampleKey, Sampling

if TYPE_CHECKING:  # rewards that ask no model of this process run without torch
    from torch import Tensor


class HelperFailed(AssayError):
    """A helper model could not score: what asked it abstains."""

    too_long = False
    """Whether there were more tokens than the model has positions."""


BudgetScope = Literal["step", "run"]


class OverBudget(RunFailure):
    """A call that a budget has no room for; it was not made and cost nothing."""


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a helper model is asked; costs and budgets are kept by it."""

    stage: str = ""
    """A stage or an evaluation; "" where it is not known."""
    step: int = 0
    """Of the stage, from 1; 0 outside steps."""
    problem: str = ""
    """The row's id."""
    completion: str = ""
    """Which of the problem's completions."""
    operator: str = ""
    """What a workflow program called."""


@dataclass(frozen=True, slots=True)
class HelperAnswer:
    """What a helper model answered."""

    text: str
    ended: Ended = "stop"
    """"stop", or "length" where the answer was cut at `max_tokens`."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """None where a server did not count them."""
    failure: str = ""
    """Why there is no answer; "" if there is one."""
    too_long: bool = False
    """Whether it failed because the model cannot read so much: whoever asked could have known."""
    cost: float | None = 0.0
    """In the price's currency, failed attempts that were charged included; None where no price is
    known."""
    remembered: bool = False
    """Whether it was known from before, and so cost nothing."""
    saved: float | None = 0.0
    """What a remembered answer would have cost; None where no price is known."""


@dataclass
class Usage:
    """What was asked of a helper model so far; safe to use from several threads."""

    requests: int = 0
    """Answers and scores that were asked for, failures included."""
    failures: int = 0
    uncounted: int = 0
    """Answers whose tokens the server did not count; they cost nothing here."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    remembered: int = 0
    """Answers and scores that were known from before; they were not asked for again."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def answered(self, answers: Sequence[HelperAnswer]) -> None:
        """Count answers."""
        with self._lock:
            self.requests += len(answers)
            for answer in answers:
                unknown = answer.prompt_tokens is None or answer.completion_tokens is None
                self.failures += bool(answer.failure)
                self.uncounted += unknown and not answer.failure
                self.prompt_tokens += answer.prompt_tokens or 0
                self.completion_tokens += answer.completion_tokens or 0

    def remember(self, known: int) -> None:
        """Count what was not asked for again."""
        with self._lock:
            self.remembered += known

    def scored(self, requests: int, tokens: int, failures: int = 0) -> None:
        """Count scores; their tokens are read, none is written."""
        with self._lock:
            self.requests += requests
            self.prompt_tokens += tokens
            self.failures += failures


class Call:
    """Told of the attempts at one answer, and how it ended; this one keeps nothing of it."""

    def attempt(self) -> None:
        """Before each attempt; what it raises keeps the attempt from being made."""

    def lost(self) -> None:
        """After an attempt that has no answer and may have been charged."""

    def ended(self, answer: HelperAnswer) -> HelperAnswer:
        """The answer, or the failure, with what it cost."""
        return answer


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked; temperature 0 is greedy."""

    messages: Sequence[Message]
    sampling: Sampling
    key: SampleKey
    call: Call = field(default_factory=Call, compare=False)
    """A metered model puts its own in this place."""
    scored: "ScoredTokens | None" = None
    """Asked about in place of messages: the answer is `read_words`' text."""
    tools: Sequence[Any] = ()
    """That it may call; of a model behind an endpoint."""
    most: tuple[int, int] | None = None
    """Tokens that it can read and write; None: those of the messages and of the sampling."""
    remembered_as: str | None = None
    """The key of an answer that is remembered, "" for one that is not; None: as the table says."""


@dataclass(frozen=True, slots=True)
class ScoredTokens:
    """Tokens of which a model behind an endpoint is to tell its likeliest words."""

    tokens: tuple[int, ...]
    begin: int
    """The first token that is asked about."""
    likeliest: int


@dataclass(frozen=True, slots=True)
class Score:
    """An answer to be scored after its conversation, with `ended` the end of the turn as well."""

    messages: Sequence[Message]
    answer: str
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probabilities of each token of each answer, and how many tokens were read for them."""

    logps: list[tuple[float, ...]]
    tokens: int


@dataclass(frozen=True, slots=True)
class NextWords:
    """What a model says of the next word at each token of some answers, S in all: hidden states and
    the head that reads them, or its likeliest words."""

    tokens: int
    """That were read."""
    hidden_SD: "Tensor | None" = None
    words: "Callable[[Tensor], Tensor] | None" = None
    """Hidden states (K, D) to scores (K, V)."""
    size: int | None = None
    """V."""
    told_SN: "Tensor | None" = None
    """Ids of the N likeliest words, the likeliest first."""
    logps_SN: "Tensor | None" = None
    texts: Mapping[int, str] = field(default_factory=dict)
    """Of some words, as who told them has them."""


Tokens = tuple[int, ...]


class Model(Protocol):
    """A frozen model in this process or behind an endpoint; safe to use from several threads."""

    @property
    def fingerprint(self) -> str:
        """What its answers depend on: the sha256 of weights or script, or endpoint and name."""
        ...

    @property
    def identity(self) -> str:
        """All that its answers depend on: weights, rendering, number format and device; "" for a
        model that may say something else when it is asked again."""
        ...

    def answer(self, batch: Sequence[Question]) -> list[HelperAnswer]:
        """One answer per question, in order, of which each call is told. A request that fails is an
        answer with `failure`, never an empty text."""
        ...

    def score(self, batch: Sequence[Score]) -> Scores:
        """The scores of answers, in order; what conversations begin with alike is computed once.

        Raises InputError for a model that gives no log-probabilities, and HelperFailed.
        """
        ...

    def read(self, contexts: Sequence[Tokens], answers: Sequence[Tokens]) -> NextWords:
        """What it says of the next word at each token of the answers, in order.

        Raises InputError for a model that tells no distribution, and HelperFailed.
        """
        ...


class HelperModel(Protocol):
    """A model as rewards and tasks ask it: counted, recorded and within its budgets."""

    @property
    def name(self) -> str:
        """The name of its table."""
        ...

    @property
    def fingerprint(self) -> str:
        """See `Model`."""
        ...

    @property
    def identity(self) -> str:
        """See `Model`."""
        ...

    @property
    def sampling(self) -> Sampling:
        """How its table draws answers, for rewards that do not say."""
        ...

    @property
    def usage(self) -> Usage:
        """What it was asked so far."""
        ...

    def called_by(self, caller: Caller) -> "HelperModel":
        """The same model, whose calls are recorded for `caller` and kept within its budgets."""
        ...

    def answer(self, batch: Sequence[Question]) -> list[HelperAnswer]:
        """See `Model`. Raises OverBudget."""
        ...

    def score(
        self,
        conversations: Sequence[Sequence[Message]],
        answers: Sequence[str],
        ended: bool = False,
    ) -> list[tuple[float, ...]]:
        """The log-probability of each token of each answer after its conversation, in order; see
        `Model.score`."""
        ...

    def read(
        self, contexts: Sequence[Tokens], answers: Sequence[Tokens], likeliest: int | None = None
    ) -> NextWords:
        """See `Model.read`; of a model behind an endpoint the `likeliest` words, so many."""
        ...


DECLARE = "declare it as [model.{}]"
"""The fix where a helper model is asked and none is there."""
KINDS: dict[str, Callable[[str, Path], Model]] = {}
"""Further kinds of model by the scheme of their source: made of the table's name and of the file
behind the colon."""
