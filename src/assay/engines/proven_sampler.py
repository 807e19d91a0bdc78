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
from torch import nn

from assay.data.episode import Context, Turn, tokens_of
from assay.engines.handover import FULL, ROUGH, Reading, judge, judge_first
from assay.models.handed_over import State, bare, by_file_names, logps_of, rounded, whole_weights
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.episodes import turn_finished
from assay.rollout.token_choice import key_state

PROBES, PROBE_TOKENS, PROBE_ACTIONS = 8, 768, 64
"""Sequences of the probe at most, their tokens in all, and actions of each."""
POINTS = 4
"""Actions of each sequence that are also scored by way of the prefix cache."""
SEED_BITS = (1 << 63) - 1

Sequences = tuple[list[list[int]], list[list[int]]]
"""Contexts and the actions that follow each."""


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
        """`opened` gives the engine, which is started at the first sample; `compute` is the type of
        its weights: float32 where there is an adapter, whose small changes bf16 would lose."""
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
        state = whole_weights(self.module, self.compute)
        engine.load(by_file_names(self.module, state))
        engine.owner, updated, self._due = self, self._due, False
        if updated:
            self.measured = {"engine/load_seconds": time.perf_counter() - started}
        if self._probe is not None:
            self._prove(engine)

    def _prove(self, engine: Engine) -> None:
        started = time.perf_counter()
        assert self._probe is not None
        with rounded(self.module, self.compute):
            now = reading(self.module, engine, *self._probe)
        if self._first is None or self._before is None:
            with bare(self.module) as without:
                bare_S = logps_of(self.module, *self._probe).numpy() if without else None
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
        trainer_S=logps_of(module, contexts, actions).numpy(),
        engine_S=np.array([logp for row in scored for logp in row]),
        cached_K=np.array([logp for (logp,) in cached]),
        places_K=np.array([starts[row] + place for row, place in points]),
    )
