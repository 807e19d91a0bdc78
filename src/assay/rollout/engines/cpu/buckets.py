"""Where completions of about the same length keep their keys and values, one prompt slot each.

A bucket's prompt slots hold `width` tokens and its completions `OWN` more; a completion that has
drawn so many is laid behind its prompt and goes on, in a wider bucket where this one is too narrow.
So nothing is held for tokens that may never be drawn, and a long completion takes no room in the
slots of short ones. Who is let in, and what is drawn, is `continuous_batch`' business.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from assay.models.inference import InferenceModel
from assay.rollout.engines.cpu.decode import Decode, decoder
from assay.rollout.engines.cpu.kv_cache import Cache, empty_cache
from assay.rollout.engines.cpu.prefill import cache_shape
from assay.rollout.engines.cpu.running_rows import Running
from assay.rollout.sampling import Sampling

OWN = 256
"""Tokens that a completion draws before they are laid behind its prompt."""
LEAST_WIDTH = 512
"""Prompt tokens of the narrowest bucket; the next ones have twice as many."""


@dataclass(eq=False)
class Row:
    """One completion under way."""

    tokens: list[int]
    """The context and what was drawn."""
    context: int
    """Tokens of the context."""
    state: np.uint64
    sampling: Sampling
    width: int = 0
    """Of the bucket that it is in; 0 while it waits."""
    slot: int = 0
    prompt: int = 0
    """How many of its tokens belong into the prompt slot."""
    filled: int = 0
    """How many of those are there."""

    @property
    def waits(self) -> bool:
        """Whether it has no slot."""
        return not self.width

    @property
    def filling(self) -> bool:
        """Whether tokens of its prompt are still to be computed."""
        return self.filled < self.prompt

    @property
    def drawn(self) -> int:
        """Tokens drawn so far."""
        return len(self.tokens) - self.context

    @property
    def known(self) -> int:
        """How many of its tokens have keys and values: while it is sampled, all but the last."""
        if self.waits:
            return 0
        return self.filled if self.filling else len(self.tokens) - 1


def width_for(tokens: int) -> int:
    """The width of the bucket for prompts of so many tokens."""
    width = LEAST_WIDTH
    while width < tokens:
        width *= 2
    return width


def empty_running(model: InferenceModel, slots: int, width: int) -> Running:
    """Empty slots."""
    return Running(
        cache=empty_cache(cache_shape(model), slots, 1, width, OWN),
        contexts=[()] * slots,
        turn_B=np.full(slots, -1),
        states_B=np.zeros(slots, dtype=np.uint64),
        drawn_B=np.zeros(slots, dtype=np.int64),
        tokens_BC=np.zeros((slots, OWN), dtype=np.int64),
        logps_BC=np.zeros((slots, 0)),
    )


@dataclass
class Bucket:
    """Completions by slot, and what the decoder reads of them."""

    model: InferenceModel
    width: int
    rows: dict[int, Row] = field(default_factory=dict)
    running: Running = field(init=False)
    decode: Decode = field(init=False)

    def __post_init__(self) -> None:
        """Begin with one slot."""
        self.running = empty_running(self.model, 1, self.width)
        self.decode = decoder(self.model)

    @property
    def cache(self) -> Cache:
        """Keys and values."""
        return self.running.cache

    @property
    def sampled(self) -> list[Row]:
        """The rows whose next token can be drawn, by slot."""
        return [self.rows[slot] for slot in sorted(self.rows) if not self.rows[slot].filling]

    def take(self, row: Row, sources: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Give a row a slot with the keys and values (J, T, D) that are known of it, by layer."""
        slots = len(self.running.turn_B)
        if len(self.rows) == slots:
            self._lay_out(2 * slots)
        free = (slot for slot in range(len(self.running.turn_B)) if slot not in self.rows)
        row.slot, row.width = next(free), self.width
        row.prompt = len(row.tokens)
        row.filled = sources[0][0].shape[1] if sources else 0
        self.rows[row.slot] = row
        self.running.contexts[row.slot] = tuple(row.tokens)
        for layer, (keys, values) in enumerate(sources):
            self.cache.prompt_keys[layer][row.slot, :, : row.filled] = keys
            self.cache.prompt_values[layer][row.slot, :, : row.filled] = values

    def drew(self, row: Row, token: int) -> None:
        """Note the next token of a row whose prompt is whole."""
        number, slot = len(row.tokens) - row.prompt, row.slot
        row.tokens.append(token)
        self.running.turn_B[slot] = slot
        self.running.tokens_BC[slot, number] = token
        self.running.drawn_B[slot] = number + 1

    def full(self, row: Row) -> bool:
        """Whether the row's own part has no place for another token."""
        return len(row.tokens) - row.prompt == OWN

    def lay_behind(self, row: Row) -> None:
        """Make what a row has drawn a part of its prompt, whose last token is to be computed."""
        cache, own = self.cache, len(row.tokens) - row.prompt - 1
        held = (cache.prompt_keys, cache.own_keys), (cache.prompt_values, cache.own_values)
        for prompts, owns in held:
            for prompt, drawn in zip(prompts, owns, strict=True):
                prompt[row.slot, :, row.prompt : row.prompt + own] = drawn[row.slot, :, :own]
        row.prompt, row.filled = len(row.tokens), len(row.tokens) - 1
        self.running.contexts[row.slot] = tuple(row.tokens)
        self.running.turn_B[row.slot] = -1

    def leave(self, row: Row) -> None:
        """Free a row's slot, and memory where most slots are free."""
        self.running.turn_B[row.slot] = -1
        del self.rows[row.slot]
        row.width = 0
        slots = len(self.running.turn_B)
        if 0 < len(self.rows) <= slots // 4:
            self._lay_out(slots // 2)

    def held(self, row: Row, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Keys and values (J, T, D) of the row's first `count` tokens, by layer."""
        prompt = min(count, row.prompt)
        cache, own = self.cache, count - prompt
        layers = zip(
            cache.prompt_keys, cache.own_keys, cache.prompt_values, cache.own_values, strict=True
        )
        for prompt_keys, own_keys, prompt_values, own_values in layers:
            keys = prompt_keys[row.slot, :, :prompt], own_keys[row.slot, :, :own]
            values = prompt_values[row.slot, :, :prompt], own_values[row.slot, :, :own]
            yield torch.cat(keys, dim=1), torch.cat(values, dim=1)

    def _lay_out(self, slots: int) -> None:
        """Move all rows to the first of `slots` slots."""
        before, rows = self.running, [self.rows[slot] for slot in sorted(self.rows)]
        self.running = empty_running(self.model, slots, self.width)
        self.cache.version = before.cache.version + 1
        old = [row.slot for row in rows]
        new = slice(0, len(rows))
        for name in ("prompt_keys", "prompt_values", "own_keys", "own_values"):
            moved = zip(getattr(self.cache, name), getattr(before.cache, name), strict=True)
            for layer, earlier in moved:
                layer[new] = earlier[old]
        self.cache.prompt_lengths_U[new] = before.cache.prompt_lengths_U[old]
        for name in ("drawn_B", "tokens_BC"):
            getattr(self.running, name)[new] = getattr(before, name)[old]
        self.running.turn_B[new] = np.where(before.turn_B[old] >= 0, np.arange(len(rows)), -1)
        self.running.contexts[new] = [before.contexts[slot] for slot in old]
        self.rows = dict(enumerate(rows))
        for slot, row in self.rows.items():
            row.slot = slot
