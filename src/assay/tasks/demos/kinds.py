"""The kinds of selectors, by name, and how one is made.

`model = "selector:pointer"` is made by `MAKERS["pointer"]`. Weights begin as the seed says. Nothing
is trained or loaded here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from assay.tasks.demos.bi_encoder import BiEncoderSelector
from assay.tasks.demos.lever import LeverSelector
from assay.tasks.demos.pointer import BACKBONE, PointerSelector
from assay.tasks.demos.untrained import SimilaritySelector, UniformSelector


@dataclass(frozen=True, slots=True)
class SelectorSizes:
    """What a selector is made from."""

    width: int
    """Of the features."""
    hidden: int
    dropout: float
    temperature: float
    gate: bool
    vocabulary: int
    """Demonstrations that a Lever-LM has words for."""


def make_pointer(sizes: SelectorSizes) -> nn.Module:
    """The pointer selector."""
    return PointerSelector(
        sizes.width,
        hidden=sizes.hidden,
        dropout=sizes.dropout,
        temperature=sizes.temperature,
        gate=sizes.gate,
    )


def make_bi_encoder(sizes: SelectorSizes) -> nn.Module:
    """The bi-encoder."""
    return BiEncoderSelector(sizes.width, dropout=sizes.dropout, temperature=sizes.temperature)


def make_lever(sizes: SelectorSizes) -> nn.Module:
    """The Lever-LM."""
    return LeverSelector(sizes.width, vocabulary=sizes.vocabulary, dropout=sizes.dropout)


MAKERS: Mapping[str, Callable[[SelectorSizes], nn.Module]] = {
    "pointer": make_pointer,
    "bi_encoder": make_bi_encoder,
    "lever": make_lever,
    "random": lambda sizes: UniformSelector(),
    "similarity": lambda sizes: SimilaritySelector(sizes.temperature),
}
DROPOUT: Mapping[str, float] = {"lever": 0.1}
"""The dropout of a kind where none is set."""
USUAL_DROPOUT = 0.5
"""That of the others."""
NAMED_PATTERNS: Mapping[str, Mapping[str, tuple[str, ...]]] = {"pointer": {"backbone": BACKBONE}}
"""Names for lists of patterns of weights to freeze, by kind of selector."""


def make_selector(kind: str, sizes: SelectorSizes, seed: int) -> nn.Module:
    """A selector with fresh weights: the same for the same seed. The caller's random state stays
    as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MAKERS[kind](sizes)
