"""RCE's shares and weights, its temperature, and SFT's token mean."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.rl.aggregation import rce_shares, rce_weights
from tests.rl.flat import GROUPS, batch_of


@given(groups=st.lists(GROUPS, min_size=1, max_size=4), tau=st.floats(0.01, 10))
def test_shares_sum_to_one_in_every_group_and_prefer_larger_rewards(groups, tau):
    batch = batch_of(groups)
    shares_E = rce_shares(batch.rewards_E, batch.group_E, tau)
    for g, group in enumerate(groups):
        mine = shares_E[batch.group_E == g]
        assert mine.sum().item() == pytest.approx(1)
        assert mine[group.index(max(group))] == mine.max()
        assert mine.unique().numel() <= len(set(group)), "equal rewards have equal shares"


def test_weights_are_shares_over_groups_at_trained_tokens():
    rewards_E = torch.tensor([2.0, 0, 0, 0, 0, 1.0])
    group_E = torch.tensor([4, 4, 4, 4, 4, 1])
    episode_S = torch.tensor([0, 0, 1, 5, 5])
    mask_S = torch.tensor([True, False, True, True, True])
    weight_S = rce_weights(mask_S, episode_S, rewards_E, group_E, tau=2.0)
    expected = torch.tensor([0.4046, 0, 0.1488, 1, 1]) / 2
    torch.testing.assert_close(weight_S, expected, rtol=0, atol=1e-4)
