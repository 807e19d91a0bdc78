"""Samples requests that come and go, for `assay serve` with a model of the plain path.

Each completion has a cache of its own and gets one token a step: simple, and slower than the
`cpu` engine's continuous batch. `engines.cpu.batcher` owns the thread and ends completions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import nn

from assay.data.episode import Turn
from assay.errors import RunFailure
from assay.models.plain_forward import causal_of
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.continuous_batch import Row, Step
from assay.rollout.engines.plain.plain_decoding import Decoding, Way, decoding, way_of
from assay.rollout.engines.plain.plain_sampler import computing_in, drawn_tokens, proven
from assay.rollout.token_choice import key_state

MOST = 16
"""Completions that hold a cache at once; later ones wait."""


@dataclass
class PlainBatch:
    """See `engines.cpu.batcher.Decoder`; `module` is in evaluation mode."""

    module: nn.Module
    compute: torch.dtype
    rows: dict[Row, Decoding | None] = field(default_factory=dict)
    """Completions in the order of their coming, with what the model keeps of them."""
    logps: dict[Row, list[float]] = field(default_factory=dict)
    """Log-probs drawn so far, until one completion has been compared with its whole sequence."""
    unproven: bool = True

    @cached_property
    def way(self) -> Way:
        """How the model is decoded."""
        return way_of(causal_of(self.module))

    def join(self, context: Sequence[int], key: SampleKey, sampling: Sampling) -> Row:
        """Queue a completion of a non-empty context; the owner enforces `max_tokens`."""
        row = Row(list(context), len(context), np.uint64(key_state(key)), sampling)
        self.rows[row] = None
        return row

    def leave(self, row: Row) -> None:
        """Forget a completion that has not failed. Raises RunFailure for the first one."""
        del self.rows[row]
        logps = self.logps.pop(row, [])
        if not (self.unproven and logps):
            return
        context, actions = tuple(row.tokens[: row.context]), tuple(row.tokens[row.context :])
        turn = Turn(context, actions, (True,) * len(actions), tuple(logps))
        with torch.no_grad(), computing_in(self.module, self.compute):
            self.unproven = not proven(self.module, self.compute, turn, row.sampling)

    def clear(self) -> None:
        """Forget all completions."""
        self.rows, self.logps = {}, {}

    def step(self) -> Step:
        """Draw one token for each of the first completions."""
        step = Step()
        with torch.no_grad():
            way = self.way
            with computing_in(self.module, self.compute):
                for row in list(self.rows)[:MOST]:
                    self._draw(row, way, step)
        return step

    def _draw(self, row: Row, way: Way, step: Step) -> None:
        try:
            held = self.rows[row] or decoding(causal_of(self.module), way, [row.tokens])
            logits_1V = held.logits()
            if not bool(logits_1V.isfinite().all()):
                raise RunFailure("the model's scores are not numbers")
            state_1 = np.array([row.state], dtype=np.uint64)
            token_1, logp_1 = drawn_tokens(logits_1V, state_1, row.drawn, row.sampling)
        except Exception as error:  # this completion fails; the others go on
            del self.rows[row]
            self.logps.pop(row, None)
            step.failed.append((row, error))
            return
        held.feed(token_1)
        self.rows[row] = held
        row.tokens.append(int(token_1))
        if self.unproven:
            self.logps.setdefault(row, []).append(float(logp_1))
        step.drawn.append((row, int(token_1), float(logp_1)))
