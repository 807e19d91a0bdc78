"""Answers of a policy: one to each question, or an episode with each dialogue.

Nothing is judged and nothing recorded here.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from assay.data.episode import Completion, Context, Turn
from assay.data.row import Row
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.episodes import run_episodes
from assay.tasks.rendered_dialogue import RenderedDialogue

Question = tuple[Row, int]
"""An item and the number of the repeat."""


class Answers(Protocol):
    """What can answer prompts: a policy, or a sampler that is never trained."""

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """One turn per context."""
        ...

    def conversations(self) -> AbstractContextManager[int | None]:
        """See `rl.policy.Policy.conversations`."""
        ...


@dataclass(frozen=True)
class Answered:
    """What one repeat of an item was answered."""

    item: Row
    repeat: int
    turns: tuple[Turn, ...]
    completion: Completion
    failure: str = ""
    """What the world of a dialogue raised, which ended it."""
    several: bool = False
    """Whether the item could take several turns."""


def single_answers(
    answers: Answers,
    asked: Sequence[Question],
    contexts: Sequence[Context],
    keys: Sequence[SampleKey],
    sampling: Sampling,
    decode: Callable[[Sequence[int]], str],
) -> list[Answered]:
    """One answer to each question."""
    turns = answers.sample(contexts, keys, sampling)
    return [
        Answered(item, repeat, (turn,), Completion(decode(turn.actions), turn.actions, turn.ended))
        for (item, repeat), turn in zip(asked, turns, strict=True)
    ]


def episodes(
    answers: Answers,
    asked: Sequence[Question],
    worlds: Sequence[RenderedDialogue],
    keys: Sequence[SampleKey],
    sampling: Sampling,
    positions: int | None,
) -> list[Answered]:
    """One episode with each world, within the model's positions."""
    played = run_episodes(answers, worlds, keys, sampling, positions)
    return [
        Answered(item, repeat, p.turns, world.completion(p.ended), p.failure, several=True)
        for (item, repeat), world, p in zip(asked, worlds, played, strict=True)
    ]
