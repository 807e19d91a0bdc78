"""What samples a model in this process: token ids in, turns with log-probs out."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import nn

from assay.data.episode import Context, Turn
from assay.models.plain_forward import causal_of
from assay.models.supported import why_plain
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.sampler import LocalSampler
from assay.rollout.engines.plain_sampler import PlainSampler


class Sampler(Protocol):
    """A token-in, token-out engine with weights of its own."""

    def refresh(self, module: nn.Module) -> None:
        """Take over the trained module's weights."""
        ...

    def sleep(self) -> None:
        """Nothing is sampled for a while: give memory back."""
        ...

    def conversations(self) -> AbstractContextManager[int | None]:
        """See `rl.policy.Policy.conversations`."""
        ...

    def sample(
        self,
        contexts: Sequence[Context],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int = 0,
    ) -> list[Turn]:
        """One turn per context, which are token ids."""
        ...


def sampler_here(
    module: nn.Module,
    end_tokens: frozenset[int],
    compute: torch.dtype | None = None,
    processes: int = 1,
) -> LocalSampler | PlainSampler:
    """The sampler of a model: of the own layers where they compute it, else of Transformers'.
    `compute` is the type products run in, the module's own without it; a batch may be sampled in so
    many `processes` by the own layers."""
    if why_plain(causal_of(module).config):
        return PlainSampler(module, end_tokens, compute)
    return LocalSampler(module, end_tokens, compute, processes)
