"""Scores over a prefix tree are the model's own, and shared beginnings are computed once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import PreTrainedModel

import assay.models.prefix_tree as prefix_tree
from assay.models.inference import inference_model
from assay.models.prefix_tree import Scored, answer_logps
from tests.models.test_scoring import plain_scores
from tests.tiny import FAMILIES, tiny_model

Pair = tuple[tuple[int, ...], tuple[int, ...]]
few = st.integers(0, 2)
"""Three words, so that sequences begin alike and branch at every depth."""
pair = st.tuples(
    st.lists(few, min_size=1, max_size=12).map(tuple),
    st.lists(few, min_size=0, max_size=5).map(tuple),
)


def fed(pairs: list[Pair]) -> int:
    """The tokens that must be computed: distinct beginnings of what is fed to the model."""
    sequences = [context + answer[:-1] for context, answer in pairs if answer]
    return len({s[: end + 1] for s in sequences for end in range(len(s))})


def scores(pairs: list[Pair], model: nn.Module, dtype: torch.dtype = torch.float32) -> Scored:
    contexts, answers = [context for context, _ in pairs], [answer for _, answer in pairs]
    return answer_logps(inference_model(model, dtype), contexts, answers)


def largest_gap(model: PreTrainedModel, pairs: list[Pair]) -> float:
    gaps = [0.0]
    for pair, logps in zip(pairs, scores(pairs, model).logps, strict=True):
        expected, _ = plain_scores(model, [pair], 1.0)
        assert len(logps) == len(expected)
        gaps += (torch.tensor(logps) - expected).abs().tolist()
    return max(gaps)


@given(pairs=st.lists(pair, min_size=1, max_size=12))
def test_scores_are_those_of_a_forward_per_pair(pairs):
    assert largest_gap(tiny_model(), pairs) < 2e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_long_contexts(family):
    begin = tuple(range(5, 155))
    pairs: list[Pair] = [
        ((*begin, *(n % 3, n), 7), tuple(range(n, n + 1 + n % 4))) for n in range(3, 40)
    ]
    assert largest_gap(tiny_model(family), pairs) < 5e-5


@given(pairs=st.lists(pair, min_size=1, max_size=12))
def test_only_distinct_beginnings_are_computed(pairs):
    assert scores(pairs, tiny_model()).computed == fed(pairs)


def test_rows_that_are_too_long_are_split_without_a_difference(monkeypatch):
    pairs: list[Pair] = [((1, 2, n), (4, n, 6)) for n in range(12)]
    whole = scores(pairs, tiny_model())
    monkeypatch.setattr(prefix_tree, "PACK_TOKENS", 10)
    monkeypatch.setattr(prefix_tree, "CHUNK_BYTES", 3 * 300 * 4)
    split = scores(pairs, tiny_model())
    assert split.computed > whole.computed
    for one, other in zip(whole.logps, split.logps, strict=True):
        assert one == pytest.approx(other, abs=2e-5)
