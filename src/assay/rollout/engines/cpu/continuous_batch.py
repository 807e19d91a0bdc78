"""Continuous batching: completions join and leave between two decoding steps.

One step draws one token for every completion whose prompt is whole, and computes a part of the
prompts that are not: a short request waits neither for a long completion nor for a long prompt.
The owner decides when a completion ends, and handles text and threads. What is drawn follows from a
completion's key and position alone, so other completions change nothing but the last bits of the
matrix products. `engine` samples whole batches faster, where prompts have groups of completions.

Completions of about the same length share a `Bucket`, one prompt slot each. A bucket's prompt slots
hold `width` tokens and its completions `OWN` more; a completion that has drawn so many is laid
behind its prompt and goes on, in a wider bucket where this one is too narrow. So no memory is held
for tokens that may never be drawn, and a long completion takes no room in the slots of short ones.

Yu et al. 2022, Orca: https://www.usenix.org/conference/osdi22/presentation/yu
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from assay.errors import RunFailure
from assay.models.inference import InferenceModel
from assay.models.matmul import moved
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.decode import Decode, decoder
from assay.rollout.engines.cpu.kv_cache import (
    BLOCK,
    Cache,
    PrefixStore,
    Running,
    Span,
    cache_shape,
    compute_spans,
    empty_cache,
    joined,
    remember,
)
from assay.rollout.token_choice import draw, key_state, uniforms

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
        entropies_BC=np.zeros((slots, 0)),
        variances_BC=np.zeros((slots, 0)),
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
        # A captured step reads the old tensors and must not be replayed.
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


ROWS = 128
"""Completions with a slot at once."""
CACHE_BYTES = 2 << 30
"""Keys and values held at once; a bucket's only completion may take more."""
FILL_TOKENS = 256
"""Prompt tokens computed in a step beside completions that are being sampled."""
FILL_ALONE = 2048
"""The same where nothing is being sampled."""


LayerKeys = Sequence[tuple[Tensor, Tensor]]
"""Keys and values (J, T, D) of a beginning of a row, by layer; empty where nothing is known."""
Part = tuple[Row, int]
"""A row and up to which token its prompt is computed next."""


@dataclass(frozen=True)
class Step:
    """What happened in one step."""

    drawn: list[tuple[Row, int, float]] = field(default_factory=list)
    """Rows with the token drawn and its log-probability, each row at most once."""
    failed: list[tuple[Row, Exception]] = field(default_factory=list)
    """Rows that could not be computed; they have left."""


@dataclass
class ContinuousBatch:
    """Completions under way and those that wait for a slot."""

    model: InferenceModel
    store: PrefixStore = field(default_factory=PrefixStore)
    """Keys of completions that left, for prompts that begin like them."""
    waiting: list[Row] = field(default_factory=list)
    """In the order of their coming."""
    buckets: dict[int, Bucket] = field(default_factory=dict)

    def join(self, context: Sequence[int], key: SampleKey, sampling: Sampling) -> Row:
        """Queue a completion of a non-empty context; the owner enforces `max_tokens`."""
        row = Row(list(context), len(context), np.uint64(key_state(key)), sampling)
        self.waiting.append(row)
        return row

    def leave(self, row: Row) -> None:
        """Forget a completion, whether it waits or is under way; its slot is free at once."""
        if row.waits:
            self.waiting = [other for other in self.waiting if other is not row]
            return
        bucket = self.buckets[row.width]
        if row.known:
            known = row.tokens[: row.known]
            remember(
                self.store, bucket.cache, row.slot, row.slot, min(row.known, row.prompt), known
            )
        self._free(row)

    def clear(self) -> None:
        """Forget all completions and everything that is kept."""
        self.waiting, self.buckets, self.store = [], {}, PrefixStore()

    @property
    def rows(self) -> list[Row]:
        """The rows that have a slot."""
        return [row for bucket in self.buckets.values() for row in bucket.rows.values()]

    def step(self) -> Step:
        """Draw one token for every row whose prompt is whole; compute a part of the others."""
        step = Step()
        with torch.no_grad():
            self._move(step)
            for bucket in list(self.buckets.values()):
                self._decode(bucket, step)
            self._admit(step)
            for bucket, parts in self._parts(FILL_TOKENS if step.drawn else FILL_ALONE):
                self._fill(bucket, parts, step)
        return step

    def _fail(self, rows: Iterable[Row], error: Exception, step: Step) -> None:
        for row in rows:
            self._free(row)
            step.failed.append((row, error))

    def _free(self, row: Row) -> None:
        bucket = self.buckets[row.width]
        bucket.leave(row)
        if not bucket.rows:
            del self.buckets[bucket.width]

    def _move(self, step: Step) -> None:
        """Lay what full rows drew behind their prompts, in a wider bucket where they need one."""
        for row in self.rows:
            bucket, width = self.buckets[row.width], width_for(len(row.tokens))
            if not bucket.full(row):
                continue
            if width == row.width:
                bucket.lay_behind(row)
                continue
            known = list(bucket.held(row, row.known))
            self._free(row)
            if self._fits(width):
                self._place(row, known, step)
            else:
                # First in the queue again: its keys are computed anew once there is room.
                self.waiting.insert(0, row)

    def _decode(self, bucket: Bucket, step: Step) -> None:
        rows = bucket.sampled
        if not rows:
            return
        try:
            logits_AV = bucket.decode(bucket.running)
        except Exception as error:
            self._fail(rows, error, step)
            return
        self._draw(bucket, rows, logits_AV, step)

    def _admit(self, step: Step) -> None:
        """Give slots to waiting rows that fit, unless what they share is just being computed."""
        # Once a row of a width does not fit, later rows of that width wait too: none overtakes.
        full: set[int] = set()
        for row in list(self.waiting):
            width = width_for(len(row.tokens))
            if width in full or not self._fits(width):
                full.add(width)
                continue
            known = self._known(row)
            if known is not None:
                self.waiting = [other for other in self.waiting if other is not row]
                self._place(row, known, step)

    def _fits(self, width: int) -> bool:
        """Whether a row may get a slot of this width; an empty bucket takes one in any case.

        So no row waits for completions of another length to end.
        """
        if width not in self.buckets:
            return True
        slots = [*(row.width for row in self.rows), width]
        used = sum(each + OWN for each in slots) * cache_shape(self.model).token_bytes
        return len(slots) <= ROWS and used <= CACHE_BYTES

    def _place(self, row: Row, known: LayerKeys, step: Step) -> None:
        width = width_for(len(row.tokens))
        try:
            bucket = self.buckets.get(width) or Bucket(self.model, width)
            bucket.take(row, known)
        except Exception as error:  # no memory: this row fails, the others go on
            step.failed.append((row, error))
            return
        self.buckets[width] = bucket

    def _known(self, row: Row) -> LayerKeys | None:
        """Keys of a prompt that are known already; None where another row is computing more of it.

        The last token is never among them: its logits are needed for the first draw.
        """
        most = len(row.tokens) - 1
        shared = [(common(row.tokens, other.tokens, most), other) for other in self.rows]
        best = max(shared, key=lambda pair: min(pair[0], pair[1].known), default=(0, None))
        length = 0 if best[1] is None else min(best[0], best[1].known)
        stored = BLOCK * self.store.count(row.tokens[:most])
        coming = max((min(count, other.prompt) for count, other in shared), default=0)
        if coming >= max(length, stored) + BLOCK:
            return None  # worth waiting for: at least a block is being computed already
        if stored > length:
            return [(layer[0], layer[1]) for layer in joined(self.store.find(row.tokens[:most]))]
        if best[1] is None or not length:
            return []
        return list(self.buckets[best[1].width].held(best[1], length))

    def _parts(self, budget: int) -> list[tuple[Bucket, list[Part]]]:
        """Shares of the budget for all rows that are being filled, by bucket."""
        filling = [row for row in self.rows if row.filling]
        # Shortest rest first: short prompts do not wait for long ones and leave them their surplus.
        filling.sort(key=lambda row: row.prompt - row.filled)
        parts: dict[int, list[Part]] = {}
        for number, row in enumerate(filling):
            share = max(1, budget // (len(filling) - number))
            stop = min(row.prompt, row.filled + share)
            budget -= stop - row.filled
            parts.setdefault(row.width, []).append((row, stop))
        return [(self.buckets[width], found) for width, found in parts.items()]

    def _fill(self, bucket: Bucket, parts: Sequence[Part], step: Step) -> None:
        """Compute parts of prompts; where that fails, each alone: none fails for another."""
        spans = [
            Span(row.slot, row.tokens, row.filled, stop, stop == row.prompt) for row, stop in parts
        ]
        try:
            logits_AV = compute_spans(self.model, bucket.cache, spans)
        except Exception as error:
            if len(parts) == 1:
                self._fail([parts[0][0]], error, step)
                return
            for part in parts:
                self._fill(bucket, [part], step)
            return
        for row, stop in parts:
            row.filled = stop
        self._draw(bucket, [row for row, _ in parts if not row.filling], logits_AV, step)

    def _draw(self, bucket: Bucket, rows: Sequence[Row], logits_AV: Tensor, step: Step) -> None:
        """The next token of each row, rows of equal settings together."""
        if not rows:
            return
        # One NaN makes the maximum of its row NaN.
        sound_A = logits_AV.amax(dim=-1).isfinite().tolist()
        groups: dict[tuple[float, float, int, float], list[int]] = {}
        for number, row in enumerate(rows):
            one = row.sampling
            if sound_A[number]:
                kind = (one.temperature, one.top_p, one.top_k, one.min_p)
                groups.setdefault(kind, []).append(number)
        for members in groups.values():
            group = [rows[number] for number in members]
            states = np.array([row.state for row in group], dtype=np.uint64)
            at = np.array([row.drawn for row in group])
            uniform_A = moved(torch.from_numpy(uniforms(states, at)), self.model.device)
            token_A, logp_A = draw(logits_AV[members], group[0].sampling, uniform_A)
            for row, token, logp in zip(group, token_A.tolist(), logp_A.tolist(), strict=True):
                bucket.drew(row, token)
                step.drawn.append((row, token, logp))
        broken = [row for row, sound in zip(rows, sound_A, strict=True) if not sound]
        self._fail(broken, RunFailure("the model's scores are not numbers"), step)


def common(one: Sequence[int], other: Sequence[int], most: int) -> int:
    """How many tokens both begin with, at most `most`."""
    low, high = 0, min(most, len(one), len(other))
    # one[:low] is equal, one[:high] may be. Comparing slices is faster than comparing tokens.
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
