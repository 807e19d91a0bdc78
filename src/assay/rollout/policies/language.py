"""A Transformers causal language model as a `Policy`.

The trained module keeps fp32 master weights. A `Sampler` with weights of its own samples, and takes
over the trained ones after each update.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from peft import PeftModel
from torch import nn

from assay.data.episode import Context, Turn, tokens_of
from assay.models.distilling import Lesson, compare_actions
from assay.models.plain_forward import causal_of, keep_only_adapter_dropout, score_padded
from assay.models.precision import Precision
from assay.models.scoring import score_actions
from assay.models.supported import why_plain
from assay.models.weight_files import load_weights, save_weights
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores, SampleKey, Sampling
from assay.rl.sampling_proof import NotAsTold, wrong_end
from assay.rollout.engines.register import Sampler, sampler_here


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
        self.end_tokens = end_tokens
        self.precision = precision
        self.plain = bool(why_plain(causal_of(module).config))
        """Whether Transformers' own forward scores (`models.plain_forward`)."""
        if self.plain:
            keep_only_adapter_dropout(module)
        self.sampler = sampler or sampler_here(module, end_tokens, precision.compute)
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
        """One turn per context. Raises NotAsTold where one does not end as it was asked to."""
        turns = self.sampler.sample(contexts, keys, sampling, self.version)
        if problem := wrong_end(turns, self.end_tokens, sampling.stop):
            raise NotAsTold(problem)
        return turns

    def score(self, packed: Packed, entropy: bool = False) -> ActionScores:
        """Log-probs (S) and, if asked, entropies (S) of the packed actions, on the CPU."""
        if torch.is_grad_enabled():
            self.sampler.sleep()
        if packed.teacher is not None:
            return self._compared(packed)
        with self.precision.autocast():
            score = score_padded if self.plain else score_actions
            logps_S, entropy_S = score(
                self._scoring,  # type: ignore[arg-type]
                [tokens_of(context) for context in packed.contexts],
                packed.actions_S,
                packed.offsets_N1,
                temperature=packed.temperature,
                entropy=entropy,
            )
        return ActionScores(logps_S.cpu(), None if entropy_S is None else entropy_S.cpu())

    def _compared(self, packed: Packed) -> ActionScores:
        """Log-probs without gradient, and how far the student is from the batch's teacher."""
        assert packed.teacher is not None
        told = packed.teacher_SD, packed.told_SN, packed.told_logps_SN
        turns = [tokens_of(c) for c in packed.contexts], packed.actions_S, packed.offsets_N1
        with self.precision.autocast():
            lesson = Lesson(packed.teacher, *told)
            logps_S, differences = compare_actions(self._scoring, turns, lesson, packed.temperature)
        return ActionScores(logps_S.cpu(), compared=differences.each(torch.Tensor.cpu))

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Inside, `score` answers for the frozen copy, or for the model without its adapter."""
        bare: AbstractContextManager[None] = nullcontext()
        if self.frozen is None:
            assert isinstance(self._module, PeftModel)
            bare = self._module.disable_adapter()
        self._scoring = self.frozen or self._module
        try:
            with torch.no_grad(), bare:
                yield
        finally:
            self._scoring = self._module

    def save(self, folder: Path) -> None:
        """The weights as the ecosystem names them."""
        save_weights(self._module, folder)  # type: ignore[arg-type]

    def load(self, folder: Path) -> None:
        """See `rl.policy.Policy`."""
        load_weights(self._module, folder)  # type: ignore[arg-type]

    def conversations(self) -> AbstractContextManager[int | None]:
        """Inside, contexts may extend earlier turns."""
        return self.sampler.conversations()

    def context_cost(self, context: Context) -> int:
        """The context's token count."""
        return len(tokens_of(context))
