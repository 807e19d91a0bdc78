"""Keys and values of running completions: each distinct prompt once, each completion its own.

A cache has U prompt slots with n row slots each (B = U * n); `RunningRows` holds what fills the
slots and what was drawn there. Rows of one prompt read its keys through one batched product;
nothing is concatenated per token. Products outside attention see only the rows that are alive. No
model is run here, and who gets which slot is decided by the engine.

Suffixes: A alive rows, J key heads, R query heads per key head, D head size, P prompt positions, C
completion positions.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from assay.data.episode import Turn, tokens_of
from assay.models.attention import attend_last, scaled
from assay.models.inference import InferenceModel
from assay.models.matmul import moved


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
    """Counts how often these tensors were replaced by others."""

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

    def hold(rows: int, columns: int) -> list[Tensor]:
        # Zeros: a hidden position has weight 0, and 0 times NaN or infinity would be NaN.
        size = (rows, shape.key_heads, columns, shape.size)
        return [
            torch.zeros(size, dtype=shape.dtype, device=shape.device) for _ in range(shape.layers)
        ]

    return Cache(
        prompt_keys=hold(prompts, longest),
        prompt_values=hold(prompts, longest),
        own_keys=hold(prompts * slots, tokens),
        own_values=hold(prompts * slots, tokens),
        prompt_lengths_U=torch.zeros(prompts, dtype=torch.long, device=shape.device),
        slots=slots,
    )


WORTH_READING = 2
"""Reading up to this many times the positions in use costs no more than copying those first."""


def copied_in_part(held: Tensor) -> bool:
    """Whether a product with some positions of a cache copies them.

    oneDNN, where bfloat16 goes on a CPU, takes whole tensors only; torch copies a part for it in
    the order of the transposed view, which takes several times as long as the product.
    """
    return held.is_cpu and held.dtype == torch.bfloat16


def positions_read(held: Tensor, wanted: int) -> int:
    """How many positions of a cache to read for the first `wanted`; the others are to be hidden."""
    whole = held.shape[2]
    return whole if copied_in_part(held) and whole <= WORTH_READING * wanted else wanted


def first_positions(held: Tensor, count: int) -> Tensor:
    """The first positions of a cache, as products take them."""
    part = held[:, :, :count]
    return part.contiguous() if copied_in_part(held) else part


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
        output = value.new_empty(tokens, heads, size).transpose(0, 1)
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
    """Positions that are read of each prompt: those of the longest, or more that are hidden."""
    longest_own: int
    """The same of each completion, once the new tokens are in."""
    unseen_U11P: Tensor | None
    """Added to scores: hides prompt positions that hold nothing; None where there are none."""
    unseen_B11C: Tensor | None
    """The same for completion positions."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See `AttentionPlan.attend`; B is 1 and T = A. Writes the tokens' keys and values."""
        cache = self.cache
        own_keys, own_values = cache.own_keys[layer], cache.own_values[layer]
        for held, new in ((own_keys, key), (own_values, value)):
            rows_ND = new[0].transpose(0, 1).reshape(-1, held.shape[-1])
            # `flatten` gives a view here, so this writes into the cache.
            held.flatten(0, 2).index_copy_(0, self.places_N, rows_ND)
        # Zeros at finished slots keep the shape, so that one batched product serves all prompts.
        queries = scaled(query[0], scale, value.dtype).transpose(0, 1)
        rows = self._spread(queries).unflatten(1, (key.shape[1], -1))
        scores, longest = self._scores(layer, rows), self.longest_prompt
        weights = torch.softmax(scores, dim=-1)
        values = first_positions(cache.prompt_values[layer], longest)
        of_prompt = weights[..., :longest].flatten(2, 3) @ values
        of_own = self._by_row(weights[..., longest:]) @ first_positions(
            own_values, self.longest_own
        )
        seen = of_own.add_(self._by_row(self._by_member(of_prompt))).flatten(1, 2)
        if len(seen) > len(self.rows_A):
            seen = seen[self.rows_A]
        return seen.transpose(0, 1)[None]

    def _scores(self, layer: int, rows: Tensor) -> Tensor:
        """Of rows (B, J, R, D) over prompt and completion: (U, J, n, R, P + C).

        All rows of a prompt meet its keys in one product.
        """
        prompt_keys = first_positions(self.cache.prompt_keys[layer], self.longest_prompt)
        own_keys = first_positions(self.cache.own_keys[layer], self.longest_own)
        to_prompt = self._by_prompt(rows).flatten(2, 3) @ prompt_keys.transpose(2, 3)
        to_own = rows @ own_keys.transpose(2, 3)
        if self.unseen_U11P is not None:
            to_prompt += self.unseen_U11P
        if self.unseen_B11C is not None:
            to_own += self.unseen_B11C
        return torch.cat([self._by_member(to_prompt), self._by_prompt(to_own)], dim=-1)

    @cached_property
    def places_N(self) -> Tensor:
        """Where the new tokens (A * J) go in a layer's completions, flattened but for D."""
        _, heads, columns, _ = self.cache.own_keys[0].shape
        heads_J = torch.arange(heads, device=self.rows_A.device)
        rows_AJ = self.rows_A[:, None] * heads + heads_J
        return (rows_AJ * columns + self.lengths_A[:, None]).flatten()

    def _spread(self, rows_A: Tensor) -> Tensor:
        """Alive rows at their slots, zeros elsewhere."""
        slots = len(self.cache.own_keys[0])
        if len(rows_A) == slots:
            return rows_A
        return rows_A.new_zeros(slots, *rows_A.shape[1:]).index_copy_(0, self.rows_A, rows_A)

    def _by_prompt(self, per_row: Tensor) -> Tensor:
        """(B, J, R, ...) as (U, J, n, R, ...)."""
        return per_row.unflatten(0, (-1, self.cache.slots)).transpose(1, 2)

    def _by_row(self, per_prompt: Tensor) -> Tensor:
        """Undo `_by_prompt`."""
        return per_prompt.transpose(1, 2).flatten(0, 1)

    def _by_member(self, rows: Tensor) -> Tensor:
        """(U, J, n * R, ...) as (U, J, n, R, ...)."""
        return rows.unflatten(2, (self.cache.slots, -1))


@dataclass
class Drawing:
    """Completions under way, by row."""

    turn_B: np.ndarray
    """The caller's turn in each row; -1 where there is none or it has finished."""
    states_B: np.ndarray
    drawn_B: np.ndarray
    """Tokens drawn so far; all but the last are in the cache."""
    tokens_BC: np.ndarray
    logps_BC: np.ndarray
    entropies_BC: np.ndarray
    variances_BC: np.ndarray

    @property
    def alive_A(self) -> np.ndarray:
        """The rows that are still going, ascending."""
        return np.flatnonzero(self.turn_B >= 0)

    def keep_rows(self, rows: np.ndarray, turns: np.ndarray) -> None:
        """Keep only these rows, now with these turns in them."""
        self.turn_B = turns
        for name in (
            "states_B",
            "drawn_B",
            "tokens_BC",
            "logps_BC",
            "entropies_BC",
            "variances_BC",
        ):
            setattr(self, name, getattr(self, name)[rows])


def nothing_drawn(rows: int, tokens: int) -> dict[str, np.ndarray]:
    """The fields of a `Drawing` without turns."""
    return {
        "turn_B": np.full(rows, -1),
        "states_B": np.zeros(rows, dtype=np.uint64),
        "drawn_B": np.zeros(rows, dtype=np.int64),
        "tokens_BC": np.zeros((rows, tokens), dtype=np.int64),
        "logps_BC": np.zeros((rows, tokens)),
        "entropies_BC": np.zeros((rows, tokens), dtype=np.float32),
        "variances_BC": np.zeros((rows, tokens), dtype=np.float32),
    }


@dataclass(kw_only=True)
class RunningRows(Drawing):
    """Completions under way, by row slot r = prompt slot * n + number within the prompt."""

    cache: Cache
    contexts: list[tuple[int, ...]]
    """By prompt slot."""

    def keep(self, prompts: np.ndarray, rows: np.ndarray, turns: np.ndarray, slots: int) -> None:
        """Keep only these prompt slots and row slots, now with these turns in them."""
        device = self.cache.prompt_lengths_U.device
        kept, stays = (moved(torch.from_numpy(x), device) for x in (prompts, rows))
        self.cache.keep(kept, stays, slots)
        self.contexts = [self.contexts[u] for u in prompts]
        self.keep_rows(rows, turns)

    @property
    def fed_B(self) -> np.ndarray:
        """Tokens of each row that are in the cache: all but the last drawn."""
        return self.drawn_B - 1


BLOCK = 16
"""Tokens of one block."""
BUDGET_BYTES = 1 << 30

Place = tuple[int, tuple[int, ...]]
"""The number of the block before (0 for none) and a block's tokens."""


@dataclass
class PrefixStore:
    """Blocks of keys and values (L, 2, J, BLOCK, D), L layers, by the tokens up to them."""

    budget: int = BUDGET_BYTES
    used: int = 0
    blocks: OrderedDict[Place, tuple[int, Tensor]] = field(default_factory=OrderedDict)
    made: int = 0

    def find(self, tokens: Sequence[int]) -> list[Tensor]:
        """The stored blocks that `tokens` begins with, now the most recently used ones."""
        path = list(self._walk(tokens))
        # A block is of no use without those before it, so they must outlive it.
        for place in reversed(path):
            self.blocks.move_to_end(place)
        return [self.blocks[place][1] for place in path]

    def count(self, tokens: Sequence[int]) -> int:
        """How many blocks of `tokens` are stored; their use is not noted."""
        return sum(1 for _ in self._walk(tokens))

    def add(self, tokens: Sequence[int], keys_values: Tensor, begin: int = 0) -> None:
        """Store the whole blocks of `tokens`, whose keys and values from `begin` on, up to where
        all are stored, are (L, 2, J, T, D)."""
        number, path = 0, []
        for first, block in whole_blocks(tokens):
            place = (number, block)
            if place not in self.blocks:
                self.made += 1
                # A copy: a slice would keep the whole tensor in memory.
                piece = keys_values[..., first - begin : first - begin + BLOCK, :].clone()
                self.blocks[place] = (self.made, piece)
                self.used += piece.nbytes
            number = self.blocks[place][0]
            path.append(place)
        for place in reversed(path):
            self.blocks.move_to_end(place)
        while self.used > self.budget:
            _, (_, piece) = self.blocks.popitem(last=False)
            self.used -= piece.nbytes

    def _walk(self, tokens: Sequence[int]) -> Iterator[Place]:
        number = 0
        for _, block in whole_blocks(tokens):
            place = (number, block)
            if place not in self.blocks:
                return
            yield place
            number = self.blocks[place][0]


def most_bytes(token_bytes: int, tokens: int) -> int:
    """What a store takes at most, where contexts have `tokens` in all."""
    return min(BUDGET_BYTES, token_bytes * tokens)


def whole_blocks(tokens: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The index of the first token, and the tokens, of every whole block."""
    for first in range(0, len(tokens) - BLOCK + 1, BLOCK):
        yield first, tuple(tokens[first : first + BLOCK])


def joined(blocks: Sequence[Tensor]) -> Tensor:
    """Keys and values (L, 2, J, T, D) of consecutive blocks."""
    return torch.cat(list(blocks), dim=3)


Placed = tuple[int, tuple[int, ...]]
"""A prompt slot and the tokens that belong into it."""


@dataclass
class CachedPrompts:
    """The contexts of one call and what is known of them."""

    model: InferenceModel
    contexts: Sequence[tuple[int, ...]]
    conversations: PrefixStore | None
    """Keeps finished turns for the next call."""
    prefilled: int = 0
    """Tokens computed so far."""
    store: PrefixStore = field(init=False)
    shared: dict[Sequence[int], int] = field(init=False)

    def __post_init__(self) -> None:
        """Find what the contexts share."""
        self.store = PrefixStore() if self.conversations is None else self.conversations
        numbers: dict[Place, int] = {}
        users: dict[int, int] = {}
        # The last token of a context is never shared: its logits give the first draw.
        paths: dict[Sequence[int], list[int]] = {}
        for context in dict.fromkeys(self.contexts):
            number, paths[context] = 0, []
            for _, block in whole_blocks(context[:-1]):
                number = numbers.setdefault((number, block), len(numbers) + 1)
                users[number] = users.get(number, 0) + 1
                paths[context].append(number)
        self.shared = {
            context: BLOCK * sum(users[number] > 1 for number in path)
            for context, path in paths.items()
        }

    def remember(self, cache: Cache, row: int, turn: Turn) -> None:
        """Keep a finished turn's keys and values, where later turns extend it."""
        if (store := self.conversations) is None:
            return
        slot, context = row // cache.slots, tokens_of(turn.context)
        length, tokens = len(context), context + turn.actions[:-1]
        begin = store.count(tokens) * BLOCK
        if begin + BLOCK > len(tokens):
            return  # all whole blocks are stored
        of_prompt = slice(begin, max(begin, length))
        of_own = slice(max(begin - length, 0), len(tokens) - length)
        keys = zip(cache.prompt_keys, cache.own_keys, strict=True)
        values = zip(cache.prompt_values, cache.own_values, strict=True)
        pieces = [
            torch.cat([prompt[slot, :, of_prompt], own[row, :, of_own]], dim=1)
            for layer in zip(keys, values, strict=True)
            for prompt, own in layer
        ]
        store.add(tokens, torch.stack(pieces).unflatten(0, (-1, 2)), begin)


def cache_shape(model: InferenceModel) -> CacheShape:
    """What the model's cache holds per layer."""
    return CacheShape(len(model.layers), model.key_heads, model.size, model.dtype, model.device)


def prefill(prompts: CachedPrompts, cache: Cache, placed: Sequence[Placed]) -> Tensor:
    """Compute whole contexts into their slots; logits (K, V) after each, in order."""
    store_shared(prompts, [context for _, context in placed])
    return compute(prompts, cache, placed, logits=True)


def store_shared(prompts: CachedPrompts, contexts: Sequence[tuple[int, ...]]) -> None:
    """Compute what these contexts share with others and what is not stored yet.

    Of prefixes that need the same missing block, the shortest is computed first and stored for the
    next round. Prefixes without a common missing block are computed together in one pass.
    """
    wanted = {context[: prompts.shared[context]] for context in contexts}
    finished: list[tuple[int, ...]] = []
    while missing := sorted(
        (prefix for prefix in wanted if prompts.store.count(prefix) * BLOCK < len(prefix)),
        key=lambda prefix: (len(prefix), prefix),
    ):
        chosen: dict[tuple[int, ...], tuple[int, ...]] = {}
        for prefix in missing:
            stored = prompts.store.count(prefix) * BLOCK
            chosen.setdefault(prefix[: stored + BLOCK], common(prefix, stored, missing))
        together = list(chosen.values())
        cache = empty_cache(
            cache_shape(prompts.model), len(together), 1, max(map(len, together)), 0
        )
        compute(prompts, cache, list(enumerate(together)), logits=False)
        for slot, prefix in enumerate(together):
            prompts.store.add(prefix, held(cache, slot, len(prefix)))
        finished += together
        # A full store drops blocks of earlier rounds. Computing those again would drop others, in
        # an endless loop: what is not stored is computed with its prompt.
        if any(prompts.store.count(prefix) * BLOCK < len(prefix) for prefix in finished):
            return


def common(
    prefix: tuple[int, ...], stored: int, others: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """What `prefix` has in common with all others that need the same next block."""
    rivals = [other for other in others if other[: stored + BLOCK] == prefix[: stored + BLOCK]]
    length = stored + BLOCK
    while length < len(prefix) and all(
        other[length : length + BLOCK] == prefix[length : length + BLOCK] for other in rivals
    ):
        length += BLOCK
    return prefix[:length]


def held(cache: Cache, slot: int, length: int) -> Tensor:
    """Keys and values (L, 2, J, T, D) of a prompt slot."""
    layers = zip(cache.prompt_keys, cache.prompt_values, strict=True)
    return torch.stack(
        [torch.stack([key[slot, :, :length], value[slot, :, :length]]) for key, value in layers]
    )


def compute(
    prompts: CachedPrompts, cache: Cache, placed: Sequence[Placed], *, logits: bool
) -> Tensor:
    """Run the tokens that no store has through the model in one pass; logits (K, V) of each last
    one if asked."""
    segments, tokens, positions = list[Segment](), list[int](), list[int]()
    for slot, context in placed:
        behind, start = copy_stored(prompts.store, cache, slot, context), len(tokens)
        tokens += context[behind:]
        positions += range(behind, len(context))
        segments.append(Segment(slot, behind, start, len(tokens)))
        cache.prompt_lengths_U[slot] = len(context)
    prompts.prefilled += len(tokens)
    ends, device = [each.stop - 1 for each in segments if logits], prompts.model.device
    return prompts.model.forward(
        torch.tensor(tokens, device=device),
        torch.tensor(positions, device=device),
        PrefillPlan(cache, segments),
        torch.tensor(ends, dtype=torch.long, device=device),
    )


def copy_stored(store: PrefixStore, cache: Cache, slot: int, context: tuple[int, ...]) -> int:
    """Copy stored blocks of a context into its slot; how many tokens they cover."""
    # The last token is always computed: its logits give the first draw.
    blocks = store.find(context[:-1])
    if not blocks:
        return 0
    known = joined(blocks)
    length = known.shape[3]
    for layer, (key, value) in enumerate(known):
        cache.prompt_keys[layer][slot, :, :length] = key
        cache.prompt_values[layer][slot, :, :length] = value
    return length
