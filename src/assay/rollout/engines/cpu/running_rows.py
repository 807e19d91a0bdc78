"""Completions under way: what fills each slot of the cache and what was drawn there.

The bookkeeping alone: no model is run and nothing is drawn here.
"""

from dataclasses import dataclass

import numpy as np
import torch

from assay.models.numeric import moved
from assay.rollout.engines.cpu.kv_cache import Cache


@dataclass
class Running:
    """Completions under way, by row slot r = prompt slot * n + number within the prompt."""

    cache: Cache
    contexts: list[tuple[int, ...]]
    """By prompt slot."""
    turn_B: np.ndarray
    """The caller's turn in each slot; -1 where there is none or it has finished."""
    states_B: np.ndarray
    drawn_B: np.ndarray
    """Tokens drawn so far; all but the last are in the cache."""
    tokens_BC: np.ndarray
    logps_BC: np.ndarray

    @property
    def alive_A(self) -> np.ndarray:
        """Slots of the rows that are still going, ascending."""
        return np.flatnonzero(self.turn_B >= 0)

    def keep(self, prompts: np.ndarray, rows: np.ndarray, turns: np.ndarray, slots: int) -> None:
        """Keep only these prompt slots and row slots, now with these turns in them."""
        device = self.cache.prompt_lengths_U.device
        kept, stays = (moved(torch.from_numpy(x), device) for x in (prompts, rows))
        self.cache.keep(kept, stays, slots)
        self.contexts = [self.contexts[u] for u in prompts]
        self.turn_B = turns
        for name in ("states_B", "drawn_B", "tokens_BC", "logps_BC"):
            setattr(self, name, getattr(self, name)[rows])

    @property
    def fed_B(self) -> np.ndarray:
        """Tokens of each row that are in the cache: all but the last drawn."""
        return self.drawn_B - 1
