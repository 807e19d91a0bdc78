"""A Transformers causal language model as a `Policy`: trained as it is, sampled laid out anew.

The trained module keeps fp32 master weights; for sampling they are laid out in the type the
machine computes in, adapters merged, and dropped as soon as training goes on. Another token-in,
token-out engine takes the sampler's place by implementing `Sampler`.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from peft import PeftModel
from torch import nn

from assay.data.episode import Context, Turn
from assay.models.inference import InferenceModel, inference_model
from assay.models.lora import adapter_free
from assay.models.precision import Precision
from assay.models.scoring import score_actions
from assay.rl.packed import Packed
from assay.rl.policy import SampleKey, Scores
from assay.rollout.engines.cpu.engine import CACHE_BYTES, Watch, sample_turns
from assay.rollout.engines.cpu.prefill import cache_shape
from assay.rollout.engines.cpu.prefix_cache import PrefixStore
from assay.rollout.engines.cpu.side_by_side import sample_side_by_side
from assay.rollout.sampling import Sampling


class Sampler(Protocol):
    """A token-in, token-out engine with weights of its own."""

    def refresh(self, module: nn.Module) -> None:
        """Take over the trained module's weights."""
        ...

    def sleep(self) -> None:
        """Nothing is sampled for a while: give memory back."""
        ...

    def conversations(self) -> AbstractContextManager[int | None]:
        """Inside, contexts go on from earlier turns: what was computed for them may be kept.

        Gives the number of tokens that are kept at once, None without a bound.
        """
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
    """Samples in this process; `module`'s weights are laid out for it when they are needed."""

    def __init__(
        self,
        module: nn.Module,
        end_tokens: frozenset[int],
        compute: torch.dtype | None = None,
        processes: int = 1,
    ):
        """`compute` is the type products run in; the module's own without it.

        With several `processes`, batches that are large enough are sampled side by side in so many
        (see `side_by_side`), on a CPU under Linux only, and not where turns go on from each other.
        """
        self.module = module
        self.processes = processes
        self.end_tokens = end_tokens
        self.compute = compute or next(module.parameters()).dtype
        self.prefilled_tokens = 0
        """Prompt tokens computed so far; what was shared or kept counts once."""
        self._model: InferenceModel | None = None
        self._store: PrefixStore | None = None

    def refresh(self, module: nn.Module) -> None:
        """The weights changed: lay them out anew before the next sample."""
        self.module = module
        self.sleep()

    def sleep(self) -> None:
        """Drop the laid-out weights, and keys and values made with them."""
        self._model = None
        if self._store is not None:
            self._store = PrefixStore()

    @property
    def model(self) -> InferenceModel:
        """The weights laid out for sampling."""
        if self._model is None:
            self._model = inference_model(self.module, self.compute)
        return self._model

    @contextmanager
    def conversations(self) -> Iterator[int]:
        """Inside, finished turns stay in a store that the next ones go on from.

        Gives the number of tokens that the store holds.
        """
        self._store = PrefixStore()
        try:
            yield self._store.budget // cache_shape(self.model).token_bytes
        finally:
            self._store = None

    def sample(
        self,
        contexts: Sequence[tuple[int, ...]],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int = 0,
        watch: Watch | None = None,
    ) -> list[Turn]:
        """One turn per context; see `rollout.engines.cpu.engine.sample_turns`."""
        model = self.model

        def some(places: Sequence[int]) -> tuple[list[Turn], int]:
            return sample_turns(
                model,
                [contexts[place] for place in places],
                [keys[place] for place in places],
                sampling,
                self.end_tokens,
                policy_version,
                self._store,
                watch,
                cache_bytes=CACHE_BYTES // processes,
            )

        alone = self._store is not None or watch is not None or model.device.type != "cpu"
        # Other systems' libraries do not survive a fork.
        alone = alone or sys.platform != "linux"
        processes = 1 if alone else self.processes
        if processes == 1:
            turns, prefilled = some(range(len(contexts)))
        else:
            turns, prefilled = sample_side_by_side(some, contexts, processes)
        self.prefilled_tokens += prefilled
        return turns


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
        self.sampler = sampler or LocalSampler(module, end_tokens, precision.compute)
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
        if torch.is_grad_enabled():
            self.sampler.sleep()
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
            bare = adapter_free(self._module)
        self._scoring = self.frozen or self._module
        try:
            with torch.no_grad(), bare:
                yield
        finally:
            self._scoring = self._module

    def conversations(self) -> AbstractContextManager[int | None]:
        """Inside, contexts go on from earlier turns."""
        return self.sampler.conversations()

    def context_cost(self, context: Context) -> int:
        """The context's token count."""
        return len(context)
