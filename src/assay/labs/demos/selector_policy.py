"""A selector as a `Policy`: it picks demonstrations one after the other, without replacement.

Each pick is drawn by the softmax of the scores of the candidates that are left (Plackett-Luce where
picks do not change scores). Actions are the demonstrations' numbers. Sampling and everything
without gradient run without dropout; with it only a gradient is computed, where the stage asks so.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from assay.data.episode import Context, Turn
from assay.errors import RunFailure
from assay.labs.demos.modules import ChoiceBatch, SelectionContext, batch_of, choice_of
from assay.models.weight_files import load_module, save_module
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores, SampleKey, Sampling
from assay.rollout.token_choice import draw, key_states, uniforms


class SelectorPolicy:
    """See `rl.policy.Policy`; contexts are `SelectionContext`s."""

    def __init__(self, module: nn.Module, frozen: nn.Module | None = None, dropout: bool = False):
        """`frozen` is the KL reference. With `dropout`, gradients are computed with the selector's
        dropout on, whose masks `models.lora.begin_masks` names."""
        self.module, self.frozen, self.dropout = module.eval(), frozen, dropout
        self.version = 0
        self._scoring = module

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """One turn per context; equal contexts are encoded once."""
        choices = [choice_of(context) for context in contexts]
        distinct, context_N = apart(choices)
        batch = batch_of(distinct)
        self._scoring.eval()
        most = max((choice.shots for choice in choices), default=0)
        picked_NS = torch.zeros(len(choices), 0, dtype=torch.long)
        logps_NS = torch.zeros(len(choices), 0)
        states = key_states(keys)
        for place in range(most):
            with torch.no_grad():
                scores_NK = self._scoring(batch, context_N, picked_NS)[:, -1]
            left_NK = scores_NK.masked_fill(gone(batch, context_N, picked_NS)[:, -1], -torch.inf)
            going_N = torch.tensor([place < choice.shots for choice in choices])
            uniform = uniforms(states[going_N.numpy()], np.full(int(going_N.sum()), place))
            index_N = torch.zeros(len(choices), dtype=torch.long)
            logp_N = torch.zeros(len(choices))
            drawn = draw(left_NK[going_N], sampling, torch.from_numpy(uniform))
            index_N[going_N], logp_N[going_N] = drawn[0], drawn[1].float()
            picked_NS = torch.cat([picked_NS, index_N[:, None]], dim=1)
            logps_NS = torch.cat([logps_NS, logp_N[:, None]], dim=1)
        return [
            self._turn(choice, picked_S, logps_S)
            for choice, picked_S, logps_S in zip(
                choices, picked_NS.tolist(), logps_NS.tolist(), strict=True
            )
        ]

    def _turn(self, choice: SelectionContext, places: list[int], logps: list[float]) -> Turn:
        shots = choice.shots
        picks = tuple(choice.pool[place] for place in places[:shots])
        known = tuple(logps[:shots])
        return Turn(choice, picks, (True,) * shots, known, "stop", self.version)

    def score(self, packed: Packed, entropy: bool = False) -> ActionScores:
        """Log-probs (S) and, if asked, entropies (S) of the picks, each among those left.

        Raises RunFailure for a pick that its pool does not hold.
        """
        distinct, context_N = apart([choice_of(context) for context in packed.contexts])
        batch = batch_of(distinct)
        taken_NS, places_NS = self._places(batch, context_N, packed)
        dropping = self.dropout and torch.is_grad_enabled() and self._scoring is self.module
        self._scoring.train(dropping)
        scores_NSK = self._scoring(batch, context_N, places_NS[:, :-1])
        # Only picks that were made: where a turn has fewer than others, nobody may be left.
        left_SK = scores_NSK.masked_fill(gone(batch, context_N, places_NS[:, :-1]), -torch.inf)
        logps_SK = (left_SK[taken_NS] / packed.temperature).log_softmax(-1)
        logps_S = logps_SK.gather(1, places_NS[taken_NS][:, None])[:, 0]
        if not entropy:
            return ActionScores(logps_S)
        known_SK = logps_SK.masked_fill(logps_SK == -torch.inf, 0.0)
        return ActionScores(logps_S, -(logps_SK.exp() * known_SK).sum(-1))

    def _places(
        self, batch: ChoiceBatch, context_N: Tensor, packed: Packed
    ) -> tuple[Tensor, Tensor]:
        """Which of (N, S) picks were made, and the places in the pools that they name."""
        lengths_N = packed.offsets_N1.diff()
        most = max(int(lengths_N.max()) if len(lengths_N) else 0, 1)
        taken_NS = torch.arange(most) < lengths_N[:, None]
        actions_NS = torch.full(taken_NS.shape, -2)
        actions_NS[taken_NS] = packed.actions_S
        same_NSK = actions_NS[:, :, None] == batch.numbers_BK[context_N][:, None]
        if not bool(same_NSK.any(-1)[taken_NS].all()):
            raise RunFailure("a stored pick is not in the pool of its query")
        return taken_NS, same_NSK.int().argmax(-1)

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Inside, `score` answers for the frozen copy."""
        assert self.frozen is not None
        self._scoring = self.frozen
        try:
            with torch.no_grad():
                yield
        finally:
            self._scoring = self.module

    def conversations(self) -> AbstractContextManager[None]:
        """A selection is one turn."""
        return nullcontext()

    def updated(self) -> None:
        """Sampling uses the trained weights themselves."""
        self.version += 1

    def save(self, folder: Path) -> None:
        """The weights by their names."""
        save_module(self.module, folder)

    def load(self, folder: Path) -> None:
        """See `rl.policy.Policy`."""
        load_module(self.module, folder)

    def context_cost(self, context: Context) -> int:
        """The candidates of the pool."""
        return len(choice_of(context).pool)


class RandomPolicy(SelectorPolicy):
    """Picks uniformly, whatever the temperature: each sample of a row draws anew."""

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """One turn per context."""
        return super().sample(contexts, keys, Sampling(1.0))


def apart(choices: Sequence[SelectionContext]) -> tuple[list[SelectionContext], Tensor]:
    """The choices that differ, in order, and for each of N choices its place among them."""
    places: dict[SelectionContext, int] = {}
    context = [places.setdefault(choice, len(places)) for choice in choices]
    return [*places], torch.tensor(context, dtype=torch.long)


def gone(batch: ChoiceBatch, context_N: Tensor, picked_NS: Tensor) -> Tensor:
    """Bool (N, S+1, K): which candidates cannot be picked before each pick and after the last:
    those picked earlier, and places where a pool is filled up."""
    absent_NK = batch.absent_BK[context_N]
    picked_NSK = nn.functional.one_hot(picked_NS, absent_NK.shape[1]).cumsum(1) > 0
    return torch.cat([absent_NK[:, None], picked_NSK | absent_NK[:, None]], dim=1)
