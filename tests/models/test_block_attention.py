"""Attention block by block is attention: every query sees what it should, and nothing else."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.models.attention import ROWS, attend_last, cut

LENGTHS = st.lists(st.one_of(st.integers(0, 9), st.integers(ROWS - 2, 3 * ROWS)), max_size=6)


def seen_by(lengths: tuple[int, ...]) -> Tensor:
    """Which token sees which, as the definition has it."""
    sequence_T = torch.tensor([n for n, length in enumerate(lengths) for _ in range(length)])
    return (sequence_T[:, None] == sequence_T).tril()


@given(LENGTHS)
def test_spans_cover_every_token_once_and_hide_what_it_does_not_see(lengths):
    total = sum(lengths)
    found = torch.zeros(total, total, dtype=torch.bool)
    covered = 0
    for span in cut(tuple(lengths)):
        assert span.first == covered and 0 < span.stop - span.first <= ROWS
        covered = span.stop
        visible_MN = torch.ones(span.stop - span.first, span.stop - span.seen, dtype=torch.bool)
        hidden = span.unseen_MN.shape[1]
        visible_MN[:, visible_MN.shape[1] - hidden :] = span.unseen_MN == 0
        found[span.first : span.stop, span.seen : span.stop] = visible_MN
    assert covered == total
    assert torch.equal(found, seen_by(tuple(lengths)).reshape(total, total))


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 90), (70, 70), (65, 300)])
def test_the_last_positions_see_what_plain_attention_sees(dtype, near, queries, keys):
    torch.manual_seed(0)
    query = torch.randn(6, queries, 16, dtype=dtype)
    key, value = torch.randn(2, 2, keys, 16, dtype=dtype)
    scores = query @ key.repeat_interleave(3, dim=0).transpose(1, 2) * 0.3
    hidden = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    plain = weights @ value.repeat_interleave(3, dim=0)
    torch.testing.assert_close(attend_last(query, key, value, 0.3), plain, atol=near, rtol=near)


def test_bfloat16_is_as_near_as_its_rounding():
    torch.manual_seed(0)
    query, (key, value) = torch.randn(6, 200, 64), torch.randn(2, 2, 200, 64)
    exact = attend_last(query, key, value, 0.125)
    rounded = attend_last(query, key.bfloat16(), value.bfloat16(), 0.125)
    assert rounded.dtype == torch.bfloat16
    assert ((rounded.float() - exact).norm() / exact.norm()).item() < 0.006
