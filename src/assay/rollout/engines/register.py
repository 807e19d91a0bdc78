"""Registers the engines that complete a model's prompts, by name.

A token engine takes token ids and returns turns with log-probs, so its model can be trained and
measured. A text engine takes messages and returns text, so its model can only be measured. To add
one, write its factory and enter it in `TOKEN_ENGINES` or `TEXT_ENGINES`.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import nn

from assay.data.episode import Context, Turn
from assay.models.plain_forward import causal_of
from assay.models.supported import why_plain
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.sampler import LocalSampler
from assay.rollout.engines.endpoint.client import Endpoint, endpoint_of
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


class TokenEngine(Protocol):
    """Makes the sampler of a module."""

    def __call__(
        self,
        module: nn.Module,
        end_tokens: frozenset[int],
        compute: torch.dtype | None = None,
        processes: int = 1,
    ) -> Sampler:
        """`compute` is the type products run in, the module's own without it; a batch may be
        sampled in so many `processes`."""
        ...


TextEngine = Callable[[str, str | None], Endpoint]
"""Makes the client of a model's name (`openai:NAME`) and a URL."""

TOKEN_ENGINES: dict[str, TokenEngine] = {"cpu": LocalSampler, "plain": PlainSampler}
TEXT_ENGINES: dict[str, TextEngine] = {"endpoint": endpoint_of}


def sampler_here(
    module: nn.Module,
    end_tokens: frozenset[int],
    compute: torch.dtype | None = None,
    processes: int = 1,
) -> Sampler:
    """The sampler of a model by its token engine; see `TokenEngine`."""
    return TOKEN_ENGINES[("plain" if why_plain(causal_of(module).config) else "cpu")](
        module, end_tokens, compute, processes
    )
