"""What an objective is: a pure function of scores and a packed batch that says what it needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from assay.errors import RunFailure
from assay.rl.packed import Packed
from assay.rl.policy import Scores

Atom = Literal["turn", "episode", "group"]
"""The piece of a batch that micro-batching must keep together."""


class MissingScores(RunFailure):
    """A batch reached an objective without log-probs or entropies that it needs."""


@dataclass(frozen=True)
class Needs:
    """What must be worked out before or with the scores."""

    old: bool = False
    """`packed.old_S`: several updates are made from one rollout."""
    reference: bool = False
    """`packed.reference_S`."""
    entropy: bool = False
    """`scores.entropy_S`, with gradient."""


@dataclass(frozen=True)
class ObjectiveOutput:
    """Loss and metrics of a micro-batch; both add over micro-batches."""

    loss: Tensor
    """Scalar with gradient."""
    sums: dict[str, Tensor]
    """Detached scalars, sums over trained tokens; "tokens" is how many there were."""


class Objective(Protocol):
    """A training method as the shared loop sees it."""

    @property
    def needs(self) -> Needs:
        """What the loop must supply."""
        ...

    @property
    def atom(self) -> Atom:
        """What micro-batching must not cut."""
        ...

    def __call__(self, scores: Scores, packed: Packed) -> ObjectiveOutput:
        """Loss and metrics of one micro-batch."""
        ...


def token_means(sums: Mapping[str, Tensor | float]) -> dict[str, float]:
    """Sums added over an optimizer batch, as means over its trained tokens; "tokens" is kept."""
    tokens = float(sums["tokens"])
    means = {name: float(total) / max(tokens, 1.0) for name, total in sums.items()}
    return means | {"tokens": tokens}
