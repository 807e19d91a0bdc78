"""Samples with an engine of somebody else's, and proves each hand-over of weights to it.

The engine takes over the trained weights before the first sample that follows an update, so that
several updates of a step cost one hand-over. The proof is in `handover`; its probe is drawn from
the first turns. An engine may serve several samplers in turn, such as a stage and its evaluations.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers.core_model_loading import revert_weight_conversion

from assay.data.episode import Context, Turn, tokens_of
from assay.engines.handover import FULL, ROUGH, Reading, judge, judge_first
from assay.models.lora import adapter_free, low_rank
from assay.models.plain_forward import causal_of, score_padded
from assay.models.scoring import evaluating, score_actions
from assay.models.supported import why_plain
from assay.models.weight_files import renamed_in_files, whole_state
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.finished_turns import turn_finished
from assay.rollout.token_choice import key_state

PROBES, PROBE_TOKENS, PROBE_ACTIONS = 8, 1024, 64
"""Sequences of the probe at most, their tokens in all, and actions of each."""
POINTS = 4
"""Actions of each sequence that are also scored by way of the prefix cache."""
SEED_BITS = (1 << 63) - 1

Sequences = tuple[list[list[int]], list[list[int]]]
"""Contexts and the actions that follow each."""
State = dict[str, Tensor]


class Engine(Protocol):
    """Samples in another process, or another way."""

    owner: object
    """The sampler whose weights it has."""

    def load(self, state: State) -> None:
        """Take over weights by the names of files, and forget keys and values of earlier ones."""
        ...

    def sample(
        self,
        prompts: list[list[int]],
        seeds: list[int],
        ends: list[int],
        settings: dict[str, Any],
    ) -> list[tuple[list[int], list[float], bool]]:
        """Tokens, their log-probs, and whether an end or a stop string was met, of each prompt."""
        ...

    def score(self, contexts: list[list[int]], actions: list[list[int]]) -> list[list[float]]:
        """Log-probs of all actions at temperature 1."""
        ...

    def score_cached(
        self, contexts: list[list[int]], actions: list[list[int]]
    ) -> list[list[float]]:
        """Of each last action, by way of the prefix cache."""
        ...


class ProvenSampler:
    """See `rollout.engines.register.Sampler`."""

    def __init__(
        self,
        opened: Callable[[], Engine],
        module: nn.Module,
        end_tokens: frozenset[int],
        compute: torch.dtype | None = None,
    ):
        """`opened` gives the engine, which is started at the first sample."""
        self.module = module
        self.end_tokens = end_tokens
        self.compute = compute or next(module.parameters()).dtype
        self.numerics = ROUGH if self.compute == torch.bfloat16 else FULL
        self.measured: dict[str, float] = {}
        """Metrics of the last hand-over."""
        self._opened = opened
        self._due = True
        self._probe: Sequences | None = None
        self._first: Reading | None = None
        self._before: Reading | None = None

    def refresh(self, module: nn.Module) -> None:
        """The weights changed: the next sample hands them over."""
        self.module = module
        self._due = True

    def sleep(self) -> None:
        """The engine keeps its memory."""

    def conversations(self) -> AbstractContextManager[None]:
        """The engine keeps prefixes by itself."""
        return nullcontext()

    def sample(
        self,
        contexts: Sequence[Context],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int = 0,
    ) -> list[Turn]:
        """One turn per context. Raises HandOverFailed, and RunFailure where the engine ends."""
        if not contexts:
            return []
        engine = self._opened()
        self._hand_over(engine)
        prompts = [list(tokens_of(context)) for context in contexts]
        seeds = [key_state(key) & SEED_BITS for key in keys]
        ends = sorted(self.end_tokens)
        sampled = engine.sample(prompts, seeds, ends, settings_of(sampling))
        turns = []
        for prompt, (tokens, logps, ended) in zip(prompts, sampled, strict=True):
            mask = (True,) * len(tokens)
            how = "stop" if ended else "length"
            turn = Turn(tuple(prompt), tuple(tokens), mask, tuple(logps), how, policy_version)
            turns.append(turn)
            turn_finished()
        if self._probe is None and (probe := chosen(turns)):
            self._probe = probe
            self._prove(engine)
        return turns

    def _hand_over(self, engine: Engine) -> None:
        if engine.owner is self and not self._due:
            return
        started = time.perf_counter()
        engine.owner = None  # of nobody, should this fail in between
        engine.load(file_state(self.module, self.compute))
        engine.owner, updated, self._due = self, self._due, False
        if updated:
            self.measured = {"engine/load_seconds": time.perf_counter() - started}
        if self._probe is not None:
            self._prove(engine)

    def _prove(self, engine: Engine) -> None:
        started = time.perf_counter()
        assert self._probe is not None
        now = reading(self.module, engine, *self._probe)
        if self._first is None or self._before is None:
            bare_S = None
            if isinstance(self.module, PeftModel):
                with adapter_free(self.module):
                    bare_S = trainer_logps(self.module, *self._probe)
            found = judge_first(now, self.numerics, bare_S)
            self._first = now
        else:
            found = judge(now, self._before, self._first, self.numerics)
        self._before = now
        self.measured |= {**found, "engine/proof_seconds": time.perf_counter() - started}


def settings_of(sampling: Sampling) -> dict[str, Any]:
    """Sampling settings by vLLM's names."""
    names = ("temperature", "max_tokens", "top_p", "top_k", "min_p")
    settings = {name: getattr(sampling, name) for name in names}
    return settings | ({"stop": list(sampling.stop.strings)} if sampling.stop else {})


def chosen(turns: Sequence[Turn]) -> Sequences | None:
    """Turns of different contexts for the probe, at least one; None where none has two actions."""
    contexts: list[list[int]] = []
    actions: list[list[int]] = []
    seen, spent = set[tuple[int, ...]](), 0
    for turn in turns:
        context, tail = tokens_of(turn.context), turn.actions[:PROBE_ACTIONS]
        spent += len(context) + len(tail)
        if context in seen or len(tail) < 2 or (contexts and spent > PROBE_TOKENS):
            spent -= len(context) + len(tail)
            continue
        seen.add(context)
        contexts.append(list(context))
        actions.append(list(tail))
        if len(contexts) == PROBES:
            break
    return (contexts, actions) if contexts else None


def reading(
    module: nn.Module, engine: Engine, contexts: list[list[int]], actions: list[list[int]]
) -> Reading:
    """The probe scored by both. The cache is asked first: scoring anew might put right what it
    holds."""
    starts = np.cumsum([0, *map(len, actions)])
    points = [
        (row, place)
        for row, tail in enumerate(actions)
        for place in sorted({len(tail) * (n + 1) // POINTS - 1 for n in range(POINTS)} - {-1})
    ]
    heads = [actions[row][: place + 1] for row, place in points]
    cached = engine.score_cached([contexts[row] for row, _ in points], heads)
    scored = engine.score(contexts, actions)
    return Reading(
        trainer_S=trainer_logps(module, contexts, actions),
        engine_S=np.array([logp for row in scored for logp in row]),
        cached_K=np.array([logp for (logp,) in cached]),
        places_K=np.array([starts[row] + place for row, place in points]),
    )


def trainer_logps(
    module: nn.Module, contexts: list[list[int]], actions: list[list[int]]
) -> np.ndarray:
    """The trained module's log-probs (S) in the type of its weights, without dropout."""
    score: Any = score_padded if why_plain(causal_of(module).config) else score_actions
    offsets = torch.tensor([0, *map(len, actions)]).cumsum(0)
    flat_S = torch.tensor([token for tail in actions for token in tail])
    with torch.no_grad(), evaluating(module):
        logps_S, _ = score(module, [tuple(context) for context in contexts], flat_S, offsets)
    return logps_S.double().cpu().numpy()


def file_state(module: nn.Module, dtype: torch.dtype) -> State:
    """Whole weights by the names of the family's files, an adapter added in fp32; the module stays
    as it is.
    """
    causal = causal_of(module)
    state = whole_state(causal)
    if isinstance(module, PeftModel):
        state = {
            name.replace(".base_layer.", "."): tensor
            for name, tensor in state.items()
            if ".lora_" not in name
        }
        for name, part in causal.named_modules():
            if hasattr(part, "lora_A") and part.active_adapters:
                own = low_rank(part)
                weight = state[f"{name}.weight"] + own.scaling * (own.up_OR @ own.down_RD)
                if own.lengths_O is not None:
                    weight = weight * own.lengths_O[:, None]
                state[f"{name}.weight"] = weight
    state = {name: tensor.detach().to(dtype).contiguous() for name, tensor in state.items()}
    return revert_weight_conversion(causal, state) if renamed_in_files(causal) else state
