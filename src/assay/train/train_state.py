"""Defines the state that a stage carries between steps, and the interfaces of the training loop.

A method collects the batch of a step, a recorder keeps the history. Plain data and protocols;
nothing is computed here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from assay.data.episode import Completion, Context, Reward, Turn
from assay.data.row import Row
from assay.errors import RunFailure
from assay.rl.kl import AdaptiveKl
from assay.rl.objectives import Objective
from assay.rl.packed import Packed
from assay.rl.policy import Policy


class TrainingFailure(RunFailure):
    """Training cannot go on: too many bad gradients or abstentions, or too large a gap."""


class LossIsNotItsParts(TrainingFailure):
    """The loss that was differentiated is not sum(coefficient * part): a term is missing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stage stands; the order of rows and all randomness follow from it."""

    step: int = 0
    """Finished steps of the stage."""
    cursor: int = 0
    """Rows consumed from the shuffled stream."""
    kl_coef: float | None = None
    """An adaptive KL coefficient as the last step left it; None before the first."""


@dataclass
class TrainState:
    """Counters that a checkpoint saves. Changed by the loop alone."""

    step: int = 0
    """See `Place`."""
    cursor: int = 0
    """See `Place`."""
    skipped: int = 0
    """Updates skipped for a non-finite gradient."""
    counts: dict[str, int] = field(default_factory=dict)
    """Bad steps in a row, by the `HealthCheck` of the method that counts them."""
    kl_coef: float | None = None
    """See `Place`."""

    @property
    def place(self) -> Place:
        """Where the stage stands."""
        return Place(self.step, self.cursor, self.kl_coef)


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One sampled completion as it is recorded."""

    row_id: str
    visit: int
    """Earlier visits of the stage to this row; the samples of one visit are a group."""
    sample: int
    """Index among all completions of this row in the stage."""
    text: str
    tokens: tuple[int, ...]
    behaviour_logps: tuple[float, ...]
    reward: Reward
    advantage: float
    ended: str
    prompt: Context | None = None
    """What a single answer followed; None in an episode of several turns."""
    said: Completion | None = None
    """Of an episode of several turns: what was judged."""
    turns: tuple[Turn, ...] = ()
    """Of an episode of several turns: each with the context it had."""


@dataclass(frozen=True)
class HealthCheck:
    """A metric of a method that the loop watches."""

    counter: str
    """Names the count of bad steps in a checkpoint's state."""
    limit: int
    """Bad steps in a row at which training stops."""
    is_bad: Callable[[Mapping[str, float]], bool | None]
    """Judges a step by its metrics; None where they do not decide, and the count stays."""
    problem: Callable[[Mapping[str, float], int], str]
    """The problem after this many bad steps, and its fix."""


@dataclass(frozen=True)
class Batch:
    """What a method collected for one step."""

    updates: tuple[Packed, ...]
    """One optimizer update each, in order; empty when nothing carries signal."""
    objective: Objective
    metrics: dict[str, float] = field(default_factory=dict)
    samples: tuple[SampleRecord, ...] = ()
    consumed: int = 0
    """Rows of the shuffled stream that this step used."""
    health: tuple[HealthCheck, ...] = ()
    adaptive_kl: AdaptiveKl | None = None
    """Moves the KL coefficient after the step."""


@dataclass(frozen=True, slots=True)
class Journalled:
    """A reward that an interrupted attempt at a step recorded, and the tokens it judged."""

    tokens: tuple[int, ...]
    """All actions of the completion, several turns laid end to end."""
    reward: Reward


class Journal(Protocol):
    """The records of an interrupted attempt at a step."""

    def recorded_rewards(self, step: int) -> Mapping[str, Journalled]:
        """Rewards already journalled for this step by an interrupted run, by completion."""
        ...


class Recorder(Journal, Protocol):
    """Where a stage's history goes; implemented by the lab, trivially by tests."""

    def samples(self, step: int, records: Sequence[SampleRecord]) -> None:
        """Journal a step's completions; called before the update that uses them."""
        ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """One line of the stage's metrics."""
        ...

    def checkpoint(
        self, policy: Policy, optimizer: torch.optim.Optimizer, state: TrainState
    ) -> None:
        """Called after every step; saves where one is due."""
        ...


Score = Callable[[Sequence[tuple[Row, Completion]]], list[Reward]]
"""Judges completions; exceptions and deadlines come back as abstentions."""


class Method(Protocol):
    """A training method: collects what one step trains on."""

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """The batch of the step that follows `place`."""
        ...
