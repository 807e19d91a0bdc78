"""The interface between training and what is trained: a language model or a selector.

A policy samples turns and scores them; trainers know nothing else of it. Sampling settings and keys
are defined here too; `rollout.token_choice` draws tokens from them.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assay.data.episode import Context, Turn

if TYPE_CHECKING:  # settings and keys are read where nothing is trained, without torch
    from torch import Tensor, nn

    from assay.models.distilling import Compared
    from assay.rl.packed import Packed


@dataclass(frozen=True, slots=True)
class SampleKey:
    """Names the random numbers of one completion: they depend on this and the position alone."""

    seed: int
    row: str
    sample: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Texts that end a completion, after the first token with which its text holds one of them.

    The completion keeps all its tokens; the text that is judged is cut before the stop string, as
    OpenAI's interface, vLLM and lm-eval return it.
    """

    strings: tuple[str, ...]
    decode: Callable[[Sequence[int]], str] | None = field(default=None, compare=False)
    """Actions to text; None where another program looks for the strings."""

    def ends(self, actions: Sequence[int]) -> bool:
        """Whether the text of the actions holds a stop string, of which the last is a part."""
        assert self.decode is not None, "an engine that samples tokens needs their text"
        # A token is at least a byte of text, so that a string lies within so many tokens.
        within = max(len(string.encode()) for string in self.strings) + MARGIN
        return self._held(self.decode(actions[-within:])) and self._held(self.decode(actions))

    def _held(self, text: str) -> bool:
        return any(string in text for string in self.strings)

    def cut(self, text: str) -> str:
        """The text before the first stop string."""
        return text[: min((text.find(s) for s in self.strings if s in text), default=len(text))]


MARGIN = 8
"""Tokens decoded beyond the longest stop string: the first of a text may lose a space."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings. Temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 keep the full
    softmax."""

    temperature: float = 1.0
    max_tokens: int = 1024
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    """Words less likely than this share of the likeliest are left out."""
    stop: Stop | None = None
    beams: int = 1
    """Continuations that a search keeps, of helper models alone; 1 draws instead."""


@dataclass(frozen=True, slots=True)
class ActionScores:
    """Log-probs (S) of the packed actions and, if asked for, entropies (S), both with gradient."""

    logps_S: "Tensor"
    entropy_S: "Tensor | None" = None
    compared: "Compared | None" = None
    """Where the batch has a teacher; log-probs are without gradient then."""


class Policy(Protocol):
    """Anything that can be trained by the shared loop."""

    @property
    def module(self) -> "nn.Module":
        """The trained module: its `requires_grad` parameters are what an optimizer sees."""
        ...

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """One turn per context; equal contexts (a group) are computed once."""
        ...

    def conversations(self) -> AbstractContextManager[int | None]:
        """Inside this context, later contexts may extend earlier turns, whose keys may be kept.

        Gives the number of tokens that are kept at once; None where nothing bounds them.
        """
        ...

    def score(self, packed: "Packed", entropy: bool = False) -> ActionScores:
        """Log-probs of `packed.actions_S` at `packed.temperature`, differentiable."""
        ...

    def reference(self) -> AbstractContextManager[None]:
        """Inside this context `score` answers for the frozen reference, without gradient."""
        ...

    def updated(self) -> None:
        """The trained weights changed: the sampler takes them over."""
        ...

    def save(self, folder: Path) -> None:
        """Write the trained weights into a checkpoint's folder."""
        ...

    def load(self, folder: Path) -> None:
        """Read what `save` wrote, completely or not at all; `updated` follows.

        Raises InputError for weights that do not fit.
        """
        ...

    def context_cost(self, context: Context) -> int:
        """Tokens that a context costs in a micro-batch, once however many turns share it."""
        ...
