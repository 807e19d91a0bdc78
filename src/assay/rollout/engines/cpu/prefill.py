"""Computes prompts: only tokens that are not stored, and prefixes shared by several prompts once.

Shared blocks are computed first and kept for the call; a `PrefixStore` of earlier turns is copied
into place. The store is a radix tree over blocks of tokens: a block is found under the blocks
before it, compared token by token, and past a memory budget the least recently used are dropped.
Its keys and values hold for one set of weights: the owner makes a new store when they change.
Nothing is sampled here.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.data.episode import Turn, tokens_of
from assay.models.inference import InferenceModel
from assay.rollout.engines.cpu.kv_cache import Cache, CacheShape, PrefillPlan, Segment, empty_cache

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

    def add(self, tokens: Sequence[int], keys_values: Tensor) -> None:
        """Store the whole blocks of `tokens`, whose keys and values are (L, 2, J, T, D)."""
        number, path = 0, []
        for first, block in whole_blocks(tokens):
            place = (number, block)
            if place not in self.blocks:
                self.made += 1
                # A copy: a slice would keep the whole tensor in memory.
                piece = keys_values[..., first : first + BLOCK, :].clone()
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


def shared_prefixes(contexts: Iterable[Sequence[int]]) -> dict[Sequence[int], int]:
    """For each distinct context, how many tokens of it are whole blocks that another begins with.

    The last token of a context is never among them: its logits give the first draw.
    """
    numbers: dict[Place, int] = {}
    users: dict[int, int] = {}
    paths: dict[Sequence[int], list[int]] = {}
    for context in dict.fromkeys(contexts):
        number, paths[context] = 0, []
        for _, block in whole_blocks(context[:-1]):
            number = numbers.setdefault((number, block), len(numbers) + 1)
            users[number] = users.get(number, 0) + 1
            paths[context].append(number)
    return {
        context: BLOCK * sum(users[number] > 1 for number in path)
        for context, path in paths.items()
    }


def joined(blocks: Sequence[Tensor]) -> Tensor:
    """Keys and values (L, 2, J, T, D) of consecutive blocks."""
    return torch.cat(list(blocks), dim=3)


Placed = tuple[int, tuple[int, ...]]
"""A prompt slot and the tokens that belong into it."""


@dataclass
class Prompts:
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
        self.shared = shared_prefixes(self.contexts)

    def remember(self, cache: Cache, row: int, turn: Turn) -> None:
        """Keep a finished turn's keys and values, where later turns extend it."""
        if self.conversations is None:
            return
        slot, fed = row // cache.slots, len(turn.actions) - 1
        context = tokens_of(turn.context)
        tokens = context + turn.actions[:fed]
        remember(self.conversations, cache, slot, row, len(context), tokens)


def remember(
    store: PrefixStore, cache: Cache, slot: int, row: int, length: int, tokens: Sequence[int]
) -> None:
    """Store keys and values: of `length` tokens from the prompt slot, of the rest from the row."""
    if store.count(tokens) * BLOCK + BLOCK > len(tokens):
        return  # all whole blocks are stored
    fed = len(tokens) - length
    layers = zip(
        cache.prompt_keys, cache.prompt_values, cache.own_keys, cache.own_values, strict=True
    )
    whole = torch.stack(
        [
            torch.stack(
                [
                    torch.cat([prompt[slot, :, :length], own[row, :, :fed]], dim=1)
                    for prompt, own in ((prompt_key, own_key), (prompt_value, own_value))
                ]
            )
            for prompt_key, prompt_value, own_key, own_value in layers
        ]
    )
    store.add(tokens, whole)


def cache_shape(model: InferenceModel) -> CacheShape:
    """What the model's cache holds per layer."""
    return CacheShape(len(model.layers), model.key_heads, model.size, model.dtype, model.device)


def prefill(prompts: Prompts, cache: Cache, placed: Sequence[Placed]) -> Tensor:
    """Compute whole contexts into their slots; logits (K, V) after each, in order."""
    store_shared(prompts, [context for _, context in placed])
    return compute(prompts, cache, placed, logits=True)


def store_shared(prompts: Prompts, contexts: Sequence[tuple[int, ...]]) -> None:
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


@dataclass(frozen=True)
class Span:
    """Tokens behind..stop of a context, for a prompt slot that holds those before them."""

    slot: int
    context: Sequence[int]
    behind: int
    stop: int
    asked: bool
    """Whether the logits after the last of them are wanted."""


def compute(prompts: Prompts, cache: Cache, placed: Sequence[Placed], *, logits: bool) -> Tensor:
    """Run the tokens that no store has through the model; logits of each last one if asked."""
    spans = [
        Span(slot, context, copy_stored(prompts.store, cache, slot, context), len(context), logits)
        for slot, context in placed
    ]
    prompts.prefilled += sum(span.stop - span.behind for span in spans)
    return compute_spans(prompts.model, cache, spans)


def compute_spans(model: InferenceModel, cache: Cache, spans: Sequence[Span]) -> Tensor:
    """Run spans through the model in one pass; logits (K, V) after the K that ask for them."""
    segments, tokens, positions = [], [], []
    for span in spans:
        start = len(tokens)
        tokens += span.context[span.behind : span.stop]
        positions += range(span.behind, span.stop)
        segments.append(Segment(span.slot, span.behind, start, len(tokens)))
        cache.prompt_lengths_U[span.slot] = span.stop
    ends = [s.stop - 1 for span, s in zip(spans, segments, strict=True) if span.asked]
    return model.forward(
        torch.tensor(tokens, device=model.device),
        torch.tensor(positions, device=model.device),
        PrefillPlan(cache, segments),
        torch.tensor(ends, dtype=torch.long, device=model.device),
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
