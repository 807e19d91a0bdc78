"""A Transformers causal language model as a `Policy`: trained in one module, sampled from another.

The trained module keeps fp32 master weights; where the machine computes in bf16 a bf16 copy is
sampled from and refreshed in place after every update. Another token-in, token-out engine takes
the copy's place by implementing `Sampler`.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import nn

from assay.data.episode import Context, Turn
from assay.models.precision import Precision
from assay.models.scoring import score_actions
from assay.rl.packed import Packed
from assay.rl.policy import SampleKey, Scores
from assay.rollout.engine import sample_turns
from assay.rollout.sampling import Sampling


class Sampler(Protocol):
    """A token-in, token-out engine with weights of its own."""

    def refresh(self, module: nn.Module) -> None:
        """Take over the trained module's weights."""
        ...

    def sample(
        self,
        contexts: Sequence[tuple[int, ...]],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int,
    ) -> list[Turn]:
        """One turn per context."""
        ...


class LocalSampler:
    """Samples in this process from `model`, which is in the type it computes in."""

    def __init__(self, model: nn.Module, end_tokens: frozenset[int]):
        self.model: Any = model
        self.end_tokens = end_tokens

    def refresh(self, module: nn.Module) -> None:
        """Copy the trained weights in place; nothing to do where the model is the trained one."""
        if module is not self.model:
            with torch.no_grad():
                for name, weight in merged_weights(module):
                    self.model.get_parameter(name).copy_(weight)

    def sample(
        self,
        contexts: Sequence[tuple[int, ...]],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int = 0,
    ) -> list[Turn]:
        """One turn per context; see `rollout.engine.sample_turns`."""
        was_training = self.model.training
        self.model.eval()
        turns = sample_turns(self.model, contexts, keys, sampling, self.end_tokens, policy_version)
        self.model.train(was_training)
        return turns


def sampler_beside(
    module: nn.Module, precision: Precision, end_tokens: frozenset[int]
) -> LocalSampler:
    """A sampler for a module in training: from a copy where the compute type is another."""
    if precision.compute == precision.master:
        return LocalSampler(module, end_tokens)
    return LocalSampler(merged_copy(module, precision.compute), end_tokens)


def merged_copy(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A plain frozen copy of the module in `dtype`, adapters merged into the weights."""
    copied = copy.deepcopy(module)
    if isinstance(copied, PeftModel):
        copied = copied.merge_and_unload()
    return copied.to(dtype).requires_grad_(False)  # type: ignore[union-attr]


def merged_weights(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and values of the weights of the plain model that `module` amounts to."""
    if not isinstance(module, PeftModel):
        yield from module.named_parameters()
        return
    base = module.get_base_model()
    for name, layer in base.named_modules():
        if isinstance(layer, LoraLayer):
            adapted: Any = layer
            delta = sum(adapted.get_delta_weight(adapter) for adapter in adapted.active_adapters)
            yield f"{name}.weight", adapted.get_base_layer().weight + delta
    for name, weight in base.named_parameters():
        if "lora_" not in name and ".base_layer." not in name:
            yield name, weight


class LanguagePolicy:
    """See `rl.policy.Policy`; contexts are tuples of token ids."""

    def __init__(
        self,
        module: nn.Module,
        precision: Precision,
        end_tokens: frozenset[int],
        *,
        sampler: Sampler | None = None,
        frozen: nn.Module | None = None,
    ):
        """`frozen` is the KL reference; without it an adapter's own base is the reference."""
        self._module = module
        self.precision = precision
        self.sampler = sampler or sampler_beside(module, precision, end_tokens)
        self.frozen = frozen
        self.version = 0
        self._scoring: nn.Module = module

    @property
    def module(self) -> nn.Module:
        """The trained module."""
        return self._module

    def updated(self) -> None:
        """The trained weights changed: the sampler takes them over."""
        self.version += 1
        self.sampler.refresh(self._module)

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """One turn per context."""
        return self.sampler.sample(contexts, keys, sampling, self.version)

    def score(self, packed: Packed, entropy: bool = False) -> Scores:
        """Log-probs (S) and, if asked, entropies (S) of the packed actions, on the CPU."""
        with self.precision.autocast():
            logps_S, entropy_S = score_actions(
                self._scoring,  # type: ignore[arg-type]
                packed.contexts,
                packed.actions_S,
                packed.offsets_N1,
                temperature=packed.temperature,
                entropy=entropy,
            )
        return Scores(logps_S.cpu(), None if entropy_S is None else entropy_S.cpu())

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Inside, `score` answers for the frozen copy, or for the model without its adapter."""
        bare: AbstractContextManager[Any] = nullcontext()
        if self.frozen is None:
            assert isinstance(self._module, PeftModel)
            bare = self._module.disable_adapter()
        self._scoring = self.frozen or self._module
        try:
            with torch.no_grad(), bare:
                yield
        finally:
            self._scoring = self._module

    def context_cost(self, context: Context) -> int:
        """The context's token count."""
        return len(context)
