"""The seam between training and whatever is trained: a language model, a selector, an engine.

A policy samples turns and scores them; trainers know nothing else of it.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from assay.data.episode import Context, Turn
from assay.rl.packed import Packed


@dataclass(frozen=True, slots=True)
class SampleKey:
    """Names the random numbers of one completion: they depend on this and the position alone."""

    seed: int
    row: str
    sample: int


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probs (S) of the packed actions and, if asked for, entropies (S), both with gradient."""

    logps_S: Tensor
    entropy_S: Tensor | None = None


class Policy(Protocol):
    """Anything that can be trained by the shared loop."""

    @property
    def module(self) -> torch.nn.Module:
        """The trained module: its `requires_grad` parameters are what an optimizer sees."""
        ...

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Any
    ) -> list[Turn]:
        """One turn per context; equal contexts (a group) are worked out once."""
        ...

    def conversations(self) -> AbstractContextManager[int | None]:
        """Inside this context, contexts go on from earlier turns; their work may be kept.

        Gives the number of tokens whose work is kept at once; None where that is no question.
        """
        ...

    def score(self, packed: Packed, entropy: bool = False) -> Scores:
        """Log-probs of `packed.actions_S` at `packed.temperature`, differentiable."""
        ...

    def reference(self) -> AbstractContextManager[None]:
        """Inside this context `score` answers for the frozen reference, without gradient."""
        ...

    def updated(self) -> None:
        """The trained weights changed: whatever samples takes them over."""
        ...

    def context_cost(self, context: Context) -> int:
        """Tokens that a context costs in a micro-batch, once however many turns share it."""
        ...
