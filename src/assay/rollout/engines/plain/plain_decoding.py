"""Decodes a batch token by token with Transformers' own forward and cache.

How a model can be decoded is tried on a few tokens, not looked up: whether its cache gives what the
whole sequence gives, and whether rows of different lengths may be padded on the left. Where the
cache does not, every token is computed from the whole sequence; where padding does not, only
contexts of one length run together. Tokens are drawn in `plain_sampler` and `plain_batch`.

R rows, T tokens, V vocabulary.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache

from assay.models.plain_forward import alike, logits_from, probe_tokens

CACHES = ("past_key_values", "cache_params")
"""Names under which models take and return a cache that rows can be chosen from."""


@dataclass(frozen=True)
class Way:
    """How a model can be decoded."""

    cached: bool
    """Earlier tokens are kept in a cache; else all are computed anew for each token."""
    padded: bool
    """Rows of different lengths run together."""


@dataclass
class Decoding:
    """Rows under way: their tokens, and what the model keeps of them."""

    causal: Any
    cached: bool
    ids_RT: Tensor
    mask_RT: Tensor
    """0 where a row is padded on the left."""
    kept: dict[str, Any] = field(default_factory=dict)
    """The cache by the name that the model takes it under; empty before the first step."""

    def logits(self) -> Tensor:
        """Scores (R, V) after the last token of each row; computes what is not kept yet."""
        if not self.cached:
            return logits_from(self.causal, self.ids_RT, self._mask(), self.ids_RT.shape[1] - 1)[
                :, -1
            ]
        first = not self.kept
        given = self._options() | (self.kept or fresh_cache(self.causal))
        inputs = self.causal.prepare_inputs_for_generation(
            self.ids_RT,
            next_sequence_length=None if first else 1,
            is_first_iteration=first,
            **given,
        )
        found = self.causal(**inputs, return_dict=True)
        self.kept = {name: found[name] for name in CACHES if found.get(name) is not None}
        return found.logits[:, -1]

    def _mask(self) -> Tensor | None:
        return None if bool(self.mask_RT.all()) else self.mask_RT

    def _options(self) -> dict[str, Any]:
        takes = inspect.signature(self.causal.forward).parameters
        given: dict[str, Any] = {"use_cache": True, "attention_mask": self._mask()}
        if "position_ids" in takes:
            given["position_ids"] = (self.mask_RT.cumsum(dim=-1) - 1).clamp(min=0)
        if "logits_to_keep" in takes:
            given["logits_to_keep"] = 1
        return given

    def feed(self, tokens_R: Tensor) -> None:
        """Append a token to every row."""
        self.ids_RT = torch.cat([self.ids_RT, tokens_R[:, None]], dim=1)
        self.mask_RT = torch.cat([self.mask_RT, self.mask_RT.new_ones(len(tokens_R), 1)], dim=1)

    def select(self, rows_R: Tensor) -> None:
        """Go on with these rows, each as often as it is named."""
        self.ids_RT, self.mask_RT = self.ids_RT[rows_R], self.mask_RT[rows_R]
        for cache in self.kept.values():
            cache.reorder_cache(rows_R)


def fresh_cache(causal: Any) -> dict[str, Any]:
    """An empty cache, where the model takes Transformers' default one; else it makes its own."""
    takes = "past_key_values" in inspect.signature(causal.forward).parameters
    if not (takes and causal._supports_default_dynamic_cache()):
        return {}
    return {"past_key_values": DynamicCache(config=causal.config.get_text_config(decoder=True))}


def decoding(causal: Any, way: Way, contexts: Sequence[Sequence[int]]) -> Decoding:
    """A row for each context, padded on the left to the longest."""
    longest = max(map(len, contexts))
    ids = [[*[0] * (longest - len(context)), *context] for context in contexts]
    mask = [[0] * (longest - len(context)) + [1] * len(context) for context in contexts]
    device = causal.device
    return Decoding(
        causal, way.cached, torch.tensor(ids, device=device), torch.tensor(mask, device=device)
    )


def way_of(causal: Any) -> Way:
    """Try a model in its own type, without autocast; its forward is known to work."""
    long, short = probe_tokens(causal, 9).tolist(), probe_tokens(causal, 5).tolist()
    with torch.no_grad():
        cached = works(causal, Way(True, False), [short, long[-5:]])
        padded = works(causal, Way(cached, True), [short, long])
    return Way(cached, padded)


def works(causal: Any, way: Way, contexts: Sequence[list[int]]) -> bool:
    """Whether a way gives what each whole sequence gives; it does not where the forward fails."""
    try:
        return (not way.cached or keeps_rows(causal)) and steps_alike(causal, way, contexts)
    except Exception:
        # Then rows go another way, in the end each whole and alone, which is known to work.
        return False


def keeps_rows(causal: Any) -> bool:
    """Whether the model returns a cache from which rows can be chosen."""
    trial = decoding(causal, Way(True, False), [probe_tokens(causal, 5).tolist()])
    trial.logits()
    return bool(trial.kept) and all(isinstance(cache, Cache) for cache in trial.kept.values())


def steps_alike(causal: Any, way: Way, contexts: Sequence[list[int]]) -> bool:
    """Whether two steps, rows exchanged in between, give what each whole sequence gives alone."""
    trial = decoding(causal, way, contexts)
    rows = list(contexts)
    for fed in probe_tokens(causal, 2).tolist():
        found = trial.logits()
        for row, logits_V in zip(rows, found, strict=True):
            ids_1T = torch.tensor([row], device=causal.device)
            if not alike(logits_V, logits_from(causal, ids_1T, None, len(row) - 1)[0, -1]):
                return False
        trial.select(torch.arange(len(rows) - 1, -1, -1, device=causal.device))
        trial.feed(torch.full((len(rows),), fed, device=causal.device))
        rows = [[*row, fed] for row in reversed(rows)]
    return True
