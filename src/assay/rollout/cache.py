"""Keys and values of running completions: each distinct prompt once, each completion its own.

A cache has U prompt slots with n row slots each (B = U * n). Rows of one prompt read its keys
through one batched product; nothing is concatenated per token. Products outside attention see
only the rows that are alive. Who gets which slot is the engine's business.

Suffixes: A alive rows, J key heads, R query heads per key head, D head size, P prompt positions,
C completion positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.models.flash import attend_last
from assay.models.tree_attention import widened


@dataclass(frozen=True)
class CacheShape:
    """What one layer's cache holds."""

    layers: int
    key_heads: int
    size: int
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values in all layers."""
        return 2 * self.layers * self.key_heads * self.size * self.dtype.itemsize


@dataclass
class Cache:
    """Per layer: prompts (U, J, P, D) and completions (U * n, J, C, D)."""

    prompt_keys: list[Tensor]
    prompt_values: list[Tensor]
    own_keys: list[Tensor]
    own_values: list[Tensor]
    prompt_lengths_U: Tensor
    slots: int
    """n."""
    version: int = 0
    """Counts how often other tensors took the place of these."""

    def keep(self, prompts: Tensor, rows: Tensor, slots: int) -> None:
        """Keep only these prompts and rows (the rows laid out as prompts x slots)."""
        for layer in range(len(self.prompt_keys)):
            self.prompt_keys[layer] = self.prompt_keys[layer][prompts]
            self.prompt_values[layer] = self.prompt_values[layer][prompts]
            self.own_keys[layer] = self.own_keys[layer][rows]
            self.own_values[layer] = self.own_values[layer][rows]
        self.prompt_lengths_U = self.prompt_lengths_U[prompts]
        self.slots = slots
        self.version += 1


def empty_cache(shape: CacheShape, prompts: int, slots: int, longest: int, tokens: int) -> Cache:
    """A cache for `prompts` prompts of at most `longest` tokens, `slots` completions each."""

    def hold(rows: int, columns: int, make: Callable[..., Tensor]) -> list[Tensor]:
        size = (rows, shape.key_heads, columns, shape.size)
        return [make(size, dtype=shape.dtype, device=shape.device) for _ in range(shape.layers)]

    return Cache(
        # Hidden positions have weight 0, so their values must be finite; their keys need not.
        prompt_keys=hold(prompts, longest, torch.empty),
        prompt_values=hold(prompts, longest, torch.zeros),
        own_keys=hold(prompts * slots, tokens, torch.empty),
        own_values=hold(prompts * slots, tokens, torch.zeros),
        prompt_lengths_U=torch.zeros(prompts, dtype=torch.long, device=shape.device),
        slots=slots,
    )


@dataclass(frozen=True)
class Segment:
    """New tokens of one prompt in a packed prefill."""

    slot: int
    """The prompt slot that holds the prompt."""
    behind: int
    """Tokens of the prompt whose keys are in the slot already."""
    start: int
    """Index of the first new token in the packed row."""
    stop: int


@dataclass(frozen=True)
class PrefillPlan:
    """Packed new tokens of some prompts: keys go into their slots, queries see their prompt."""

    cache: Cache
    segments: Sequence[Segment]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See `AttentionPlan.attend`; B is 1 and T covers all segments in order."""
        _, heads, tokens, size = query.shape
        output = query.new_empty(tokens, heads, size).transpose(0, 1)
        for segment in self.segments:
            new = slice(segment.start, segment.stop)
            length = segment.behind + segment.stop - segment.start
            keys = self.cache.prompt_keys[layer][segment.slot, :, :length]
            values = self.cache.prompt_values[layer][segment.slot, :, :length]
            keys[:, segment.behind :] = key[0, :, new]
            values[:, segment.behind :] = value[0, :, new]
            output[:, new] = attend_last(query[0, :, new], keys, values, scale)
        return output[None]


@dataclass(frozen=True)
class DecodePlan:
    """One new token for each alive row: it sees its prompt and its own completion."""

    cache: Cache
    rows_A: Tensor
    """Slot of each alive row, ascending."""
    lengths_A: Tensor
    """Tokens of its completion that are in the cache already."""
    longest_prompt: int
    longest_own: int
    """Positions of the longest completion once the new tokens are in."""
    hidden_UP: Tensor | None
    """Bool: prompt positions that hold nothing; None where all prompts are equally long."""
    hidden_BC: Tensor | None
    """Bool: completion positions that hold nothing; None where there are none."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See `AttentionPlan.attend`; B is 1 and T = A. Writes the tokens' keys and values."""
        cache = self.cache
        own_keys, own_values = cache.own_keys[layer], cache.own_values[layer]
        own_keys[self.rows_A, :, self.lengths_A] = key[0].transpose(0, 1)
        own_values[self.rows_A, :, self.lengths_A] = value[0].transpose(0, 1)
        own = self._spread(query[0].transpose(0, 1) * scale).unflatten(1, (key.shape[1], -1))
        # All rows of a prompt meet its keys in one product: (U, J, n * R, D). Scores stay in the
        # layout they were made in; only one number for each row moves between the two.
        longest, columns = self.longest_prompt, self.longest_own
        shared = self._by_prompt(own)
        to_prompt = widened(shared @ cache.prompt_keys[layer][:, :, :longest].transpose(2, 3))
        if self.hidden_UP is not None:
            to_prompt = to_prompt.masked_fill_(self.hidden_UP[:, None, None], float("-inf"))
        to_own = widened(own @ own_keys[:, :, :columns].transpose(2, 3))
        if self.hidden_BC is not None:
            to_own = to_own.masked_fill_(self.hidden_BC[:, None, None], float("-inf"))
        highest = self._by_row(to_prompt.amax(dim=-1, keepdim=True))
        highest = torch.maximum(highest, to_own.amax(dim=-1, keepdim=True))
        to_own.sub_(highest).exp_()
        to_prompt.sub_(self._by_prompt(highest)).exp_()
        total = self._by_row(to_prompt.sum(-1, keepdim=True)) + to_own.sum(-1, keepdim=True)
        mixed = to_prompt.to(value.dtype) @ cache.prompt_values[layer][:, :, :longest]
        mixed = widened(self._by_row(mixed)) + to_own.to(value.dtype) @ own_values[:, :, :columns]
        output = (mixed / total).to(value.dtype)
        return output.flatten(1, 2)[self.rows_A].transpose(0, 1)[None]

    def _spread(self, rows_A: Tensor) -> Tensor:
        """Alive rows at their slots, zeros elsewhere."""
        slots = len(self.cache.own_keys[0])
        if len(rows_A) == slots:
            return rows_A
        return rows_A.new_zeros(slots, *rows_A.shape[1:]).index_copy_(0, self.rows_A, rows_A)

    def _by_prompt(self, per_row: Tensor) -> Tensor:
        """(B, J, R, X) as (U, J, n * R, X)."""
        return per_row.unflatten(0, (-1, self.cache.slots)).transpose(1, 2).flatten(2, 3)

    def _by_row(self, per_prompt: Tensor) -> Tensor:
        """(U, J, n * R, X) as (B, J, R, X)."""
        return per_prompt.unflatten(2, (self.cache.slots, -1)).transpose(1, 2).flatten(0, 1)
