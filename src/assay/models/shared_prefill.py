"""Computes prompts with images through a model's cache; what prompts begin with alike goes once.

Prompts are cut where they part, each piece is computed after the cache of the piece before it, and
pieces of one depth run as one batch, padded on the left. Two prompts begin alike where their tokens
and the images behind them are the same, so no piece ends inside an image. Beginnings of fewer than
LEAST_SHARED tokens are computed for each prompt. `prefix_tree` does this without Transformers'
forward, for models of text.

Suffixes: R rows, T tokens of a piece, M tokens in the cache, A axes of a position, I tokens of an
image, K last positions, D hidden size, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from assay.errors import RunFailure
from assay.models.prefix_tree import Tokens, alike, common
from assay.models.vision_language import ReadImage, VisionLanguage

LEAST_SHARED = 16
"""Tokens; a batch of its own costs more than computing fewer again."""
ROWS = 32
"""Prompts computed together."""
CACHE_BYTES = 2 << 30
"""Keys and values of the prompts computed together, unless one needs more."""


@dataclass(frozen=True)
class Reading:
    """A sequence that a model is to read."""

    tokens: Tokens
    images: tuple[ReadImage, ...]
    positions_AT: Tensor = field(repr=False)
    features: tuple[Tensor, ...] = field(repr=False)
    """What the tokens of each image are replaced by (I, D)."""
    read_from: int
    """The first place whose scores are wanted."""

    def features_between(self, first: int, stop: int) -> list[Tensor]:
        """Those of the images that begin at an image token from `first` to `stop`."""
        begins = accumulate((image.tokens for image in self.images), initial=0)
        return [f for f, at in zip(self.features, begins, strict=False) if first <= at < stop]


def reading(
    loaded: VisionLanguage,
    tokens: Tokens,
    images: Sequence[ReadImage],
    features: Sequence[Tensor],
    read_from: int,
) -> Reading:
    """A sequence with the features of its images. Raises RunFailure."""
    asked, there = sum(image.tokens for image in images), tokens.count(loaded.image_token)
    if asked != there:
        problem = f"the grids of {len(images)} images ask for {asked} image tokens"
        raise RunFailure(f"{problem}, the prompt holds {there}")
    positions_AT = loaded.family.positions(loaded.model, torch.tensor(tokens), images)
    return Reading(tokens, tuple(images), positions_AT, tuple(features), read_from)


def compared_as(loaded: VisionLanguage, each: Reading, numbers: dict[str, int]) -> Tokens:
    """The tokens, those of an image replaced by a negative number of its own."""
    images = iter([number for i in each.images for number in [-_number(i, numbers)] * i.tokens])
    return tuple(next(images) if t == loaded.image_token else t for t in each.tokens)


def _number(image: ReadImage, numbers: dict[str, int]) -> int:
    return numbers.setdefault(image.sha256, len(numbers) + 1)


@dataclass(frozen=True)
class Piece:
    """Tokens that the sequences from `first` to `stop` have in common."""

    first: int
    stop: int
    start: int
    end: int
    parent: int = 0
    """The row of the piece before it."""


@dataclass
class Rows:
    """Sequences under way in a batch: their cache, and how their next tokens are numbered."""

    loaded: VisionLanguage
    cache: DynamicCache
    mask_RM: Tensor
    """0 where a row holds no token."""
    next_R: Tensor
    """The position of the next token."""

    def chosen(self, rows: Sequence[int]) -> "Rows":
        """These rows, each as often as it is named; the former ones stay as they are."""
        at_R = torch.tensor(rows, device=self.mask_RM.device)
        layers: list[Any] = self.cache.layers
        kept = [(layer.keys[at_R], layer.values[at_R]) for layer in layers]
        return Rows(self.loaded, DynamicCache(kept), self.mask_RM[at_R], self.next_R[at_R])

    def feed(self, tokens_R: Tensor) -> Tensor:
        """Append a token to every row; returns the scores (R, V) after it."""
        model = self.loaded.model
        embedded_R1D = model.get_input_embeddings()(tokens_R[:, None])
        positions_AR1 = self.next_R[None, :, None].expand(self.loaded.family.axes, -1, 1)
        mask_R1 = self.mask_RM.new_ones(len(tokens_R), 1)
        self.next_R = self.next_R + 1
        return self._forward(embedded_R1D, mask_R1, positions_AR1, 1)[:, -1]

    def _forward(
        self, embedded_RTD: Tensor, mask_RT: Tensor, positions_ART: Tensor, keep: int
    ) -> Tensor:
        self.mask_RM = torch.cat([self.mask_RM, mask_RT], dim=1)
        with torch.no_grad():
            return self.loaded.model(
                inputs_embeds=embedded_RTD,
                attention_mask=self.mask_RM,
                position_ids=positions_ART if len(positions_ART) > 1 else positions_ART[0],
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=keep,
                return_dict=True,
            ).logits

    def read(self, pieces: Sequence[Piece], readings: Sequence[Reading], keep: int) -> Tensor:
        """Append a piece to every row; returns the scores (R, K, V) of the last places."""
        device = self.mask_RM.device
        longest = max(piece.end - piece.start for piece in pieces)
        found = [self._embedded(readings[p.first], p) for p in pieces]
        embedded_RTD = torch.stack([left(e.T, longest).T for e in found])
        mask_RT = torch.stack(
            [left(torch.ones(p.end - p.start, dtype=torch.long), longest) for p in pieces]
        )
        positions_ART = torch.stack(
            [left(readings[p.first].positions_AT[:, p.start : p.end], longest) for p in pieces], 1
        )
        self.next_R = torch.tensor(
            [int(readings[p.first].positions_AT[:, : p.end].max()) + 1 for p in pieces],
            device=device,
        )
        return self._forward(embedded_RTD, mask_RT.to(device), positions_ART.to(device), keep)

    def _embedded(self, each: Reading, piece: Piece) -> Tensor:
        """The piece's tokens (T, D), those of images replaced by their features."""
        tokens = each.tokens[piece.start : piece.end]
        tokens_T = torch.tensor(tokens, device=self.mask_RM.device)
        embedded_TD = self.loaded.model.get_input_embeddings()(tokens_T).detach()
        if shown := tokens.count(self.loaded.image_token):
            before = each.tokens[: piece.start].count(self.loaded.image_token)
            here_ID = torch.cat(each.features_between(before, before + shown))
            embedded_TD[tokens_T == self.loaded.image_token] = here_ID.to(embedded_TD)
        return embedded_TD


def left(values: Tensor, length: int) -> Tensor:
    """The values with zeros before them, along the last dimension."""
    return torch.nn.functional.pad(values, (length - values.shape[-1], 0))


@dataclass(frozen=True)
class Reached:
    """A batch of pieces that was computed."""

    pieces: tuple[Piece, ...]
    logits_RKV: Tensor
    """Scores after the last places of each piece, right-aligned."""
    rows: Rows
    done: tuple[tuple[int, int], ...]
    """(sequence, row) of those that end here."""
    computed: int
    """Tokens that went through the layers."""


def prefill(
    loaded: VisionLanguage, readings: Sequence[Reading]
) -> Iterator[tuple[list[int], Reached]]:
    """Read distinct sequences. Yields the callers' numbers of a batch's sequences in the order that
    its pieces count them by, with each batch of pieces.
    """
    numbers: dict[str, int] = {}
    keys = [compared_as(loaded, each, numbers) for each in readings]
    order = sorted(range(len(readings)), key=lambda n: keys[n])
    for batch in batches(loaded, readings, order):
        for reached in read_batch(loaded, [keys[n] for n in batch], [readings[n] for n in batch]):
            yield batch, reached


def batches(
    loaded: VisionLanguage, readings: Sequence[Reading], order: Sequence[int]
) -> Iterator[list[int]]:
    """Neighbours in an order, as many as are held at once."""
    batch: list[int] = []
    longest = 0
    for n in order:
        longest = max(longest, len(readings[n].tokens))
        full = len(batch) == ROWS or (len(batch) + 1) * longest * loaded.token_bytes > CACHE_BYTES
        if batch and full:
            yield batch
            batch, longest = [], len(readings[n].tokens)
        batch.append(n)
    if batch:
        yield batch


def read_batch(
    loaded: VisionLanguage, keys: Sequence[Tokens], readings: Sequence[Reading]
) -> Iterator[Reached]:
    """Compute sorted sequences, depth by depth."""
    device = loaded.model.device
    pieces = [Piece(*found) for found in pieces_of(keys, 0, len(keys), 0)]
    empty = torch.zeros(1, dtype=torch.long, device=device)
    rows = Rows(loaded, DynamicCache(), empty[:, None][:, :0], empty)
    first = True
    while pieces:
        parents = [piece.parent for piece in pieces]
        rows = begun(rows, len(pieces)) if first else rows.chosen(parents)
        first = False
        keep = max(wanted(piece, readings) for piece in pieces)
        logits_RKV = rows.read(pieces, readings, max(keep, 1))
        ends = [(p.first, row) for row, p in enumerate(pieces) if len(keys[p.first]) == p.end]
        computed = sum(piece.end - piece.start for piece in pieces)
        yield Reached(tuple(pieces), logits_RKV, rows, tuple(ends), computed)
        pieces = [
            Piece(*found, row)
            for row, p in enumerate(pieces)
            for found in pieces_of(keys, p.first + (len(keys[p.first]) == p.end), p.stop, p.end)
        ]


def begun(rows: Rows, count: int) -> Rows:
    """Rows before their first token."""
    at = rows.mask_RM.expand(count, 0), rows.next_R.expand(count)
    return Rows(rows.loaded, DynamicCache(), *at)


def wanted(piece: Piece, readings: Sequence[Reading]) -> int:
    """How many of a piece's last places some sequence wants the scores of."""
    least = min(readings[n].read_from for n in range(piece.first, piece.stop))
    return max(piece.end - max(piece.start, least), 0)


def pieces_of(
    keys: Sequence[Tokens], first: int, stop: int, start: int, depth: int | None = None
) -> Iterator[tuple[int, int, int, int]]:
    """(first, stop, start, end) of the pieces that follow `start`, of sorted sequences that are
    alike up to `depth`."""
    depth = start if depth is None else depth
    for low, high in alike(keys, first, stop, depth):
        shared = common(keys[low], keys[high - 1])
        if high - low == 1 or shared - start >= LEAST_SHARED:
            yield low, high, start, shared
            continue
        if len(keys[low]) == shared:
            yield low, low + 1, start, shared
            low += 1
        yield from pieces_of(keys, low, high, start, shared)
