"""Turns laid end to end for one scoring pass, with everything an objective needs per token.

N turns, S action tokens in all (masked ones included, with weight 0). `weight_S` carries every
batch-level denominator and is computed before micro-batching, so that adding the losses of any
split gives the loss of the whole. Building one from episodes is here; running a model is not.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from assay.data.episode import Context, Episode, continues
from assay.models.distilling import Teacher

PER_TOKEN = re.compile(r"_S[A-Z]?$")
"""Names of tensors over action tokens."""


@dataclass(frozen=True)
class Packed:
    """A batch of turns. All `_S` tensors run over action tokens, as the first dimension
    of `_SD` and `_SN` does, `_N` over turns."""

    contexts: tuple[Context, ...]
    """N contexts, one per turn."""
    actions_S: Tensor
    offsets_N1: Tensor
    """Turn n owns actions offsets[n] to offsets[n + 1]."""
    episode_N: Tensor
    """Index of the turn's episode within the batch it was built from (survives splitting)."""
    group_N: Tensor
    """Index of the turn's group within the batch it was built from."""
    mask_S: Tensor
    """Bool: tokens the policy is trained on."""
    weight_S: Tensor
    """Multiplies the per-token loss; 0 where masked."""
    advantage_S: Tensor
    behaviour_S: Tensor | None = None
    """Log-probs under the policy that sampled, None when unknown."""
    excess_S: Tensor | None = None
    """Those log-probs plus the entropies of what the actions were drawn from, None when unknown."""
    old_S: Tensor | None = None
    """Log-probs of the training forward before this batch's first update, when it differs."""
    reference_S: Tensor | None = None
    policy_mask_S: Tensor | None = None
    """Bool: tokens at which policy loss and entropy bonus count; None: at all that are trained."""
    preference_S: Tensor | None = None
    """Of pairs, which are groups here: what the log-ratio of the token's completion counts by,
    above 0 for the chosen one and below for the rejected one; None without pairs."""
    temperature: float = 1.0
    """Scores are log-probs at this temperature, as the actions were sampled."""
    teacher: Teacher | None = None
    """What scores are compared with; one of the next two is what it says."""
    teacher_SD: Tensor | None = None
    """Its hidden states where it predicts each action."""
    told_SN: Tensor | None = None
    """Its N likeliest words there, the likeliest first."""
    told_logps_SN: Tensor | None = None
    own_S: Tensor | None = None
    """Bool: trained tokens that the student sampled itself."""

    @property
    def turn_S(self) -> Tensor:
        """Index of the turn that each action token belongs to, counted within this batch."""
        lengths_N = self.offsets_N1.diff()
        return torch.repeat_interleave(torch.arange(len(lengths_N)), lengths_N)

    @property
    def episode_S(self) -> Tensor:
        """Index of the episode that each action token belongs to."""
        return self.episode_N[self.turn_S]

    @property
    def group_S(self) -> Tensor:
        """Index of the group that each action token belongs to."""
        return self.group_N[self.turn_S]

    def goes_on(self, before: int, turn: int) -> bool:
        """Whether one turn's context begins with another turn, actions and all."""
        first, stop = int(self.offsets_N1[before]), int(self.offsets_N1[before + 1])
        actions = tuple(self.actions_S[first:stop].tolist())
        return continues(self.contexts[turn], self.contexts[before], actions)

    def with_tokens(self, **tensors_S: Tensor | None) -> "Packed":
        """A copy with some per-token tensors replaced."""
        return replace(self, **tensors_S)

    def take(self, turns: Sequence[int]) -> "Packed":
        """The batch that holds only these turns, in this order; weights are kept as they are."""
        spans = [(int(self.offsets_N1[n]), int(self.offsets_N1[n + 1])) for n in turns]
        index_S = torch.cat([torch.arange(a, b) for a, b in spans]) if spans else torch.arange(0)
        lengths = torch.tensor([0] + [b - a for a, b in spans])
        per_token = {
            f.name: value[index_S]
            for f in fields(self)
            if PER_TOKEN.search(f.name) and (value := getattr(self, f.name)) is not None
        }
        index_N = torch.tensor(list(turns), dtype=torch.long)
        return replace(
            self,
            contexts=tuple(self.contexts[n] for n in turns),
            offsets_N1=lengths.cumsum(0),
            episode_N=self.episode_N[index_N],
            group_N=self.group_N[index_N],
            **per_token,
        )


def pack(episodes: Sequence[Episode], temperature: float = 1.0) -> Packed:
    """Lay the turns of `episodes` end to end, in order, with weight 1 on trained tokens.

    Groups are those of `group_numbers`. `behaviour_S` is None unless every turn knows its
    behaviour log-probs. Advantages start at 0.
    """
    turns = [(e, turn) for e, episode in enumerate(episodes) for turn in episode.turns]
    groups = group_numbers(episodes)
    actions_S = torch.tensor([a for _, t in turns for a in t.actions], dtype=torch.long)
    mask_S = torch.tensor([m for _, t in turns for m in t.loss_mask], dtype=torch.bool)
    behaviour_S = None
    if turns and all(t.behaviour_logps is not None for _, t in turns):
        behaviour_S = torch.tensor([x for _, t in turns for x in t.behaviour_logps or ()])
    excess_S = None
    if behaviour_S is not None and all(t.entropies is not None for _, t in turns):
        excess_S = behaviour_S + torch.tensor([x for _, t in turns for x in t.entropies or ()])
    return Packed(
        contexts=tuple(t.context for _, t in turns),
        actions_S=actions_S,
        offsets_N1=torch.tensor([0] + [len(t.actions) for _, t in turns]).cumsum(0),
        episode_N=torch.tensor([e for e, _ in turns], dtype=torch.long),
        group_N=torch.tensor([groups[e] for e, _ in turns], dtype=torch.long),
        mask_S=mask_S,
        weight_S=mask_S.float(),
        advantage_S=torch.zeros(len(actions_S)),
        behaviour_S=behaviour_S,
        excess_S=excess_S,
        temperature=temperature,
    )


def group_numbers(episodes: Sequence[Episode]) -> list[int]:
    """The group of each episode, numbered by first appearance: one visit to a row is one group."""
    numbers: dict[tuple[str, int], int] = {}
    return [numbers.setdefault((e.group, e.visit), len(numbers)) for e in episodes]
