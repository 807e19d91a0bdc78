"""Signal statistics: counts at both levels, equality within a tolerance, and what may drop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.rl.advantages import (
    ADVANTAGES,
    AdvantageOptions,
    groups_with_signal,
    may_drop,
    signal_stats,
)
from tests.rl.flat import GROUPS, batch_of


def test_counts_at_group_and_at_episode_level():
    rewards_E = torch.tensor([1.0, 0, 0, 0, 0, 0.5, 0.5, -1, 0.3], dtype=torch.float64)
    group_E = torch.tensor([7, 7, 7, 3, 3, 5, 5, 5, 9])
    stats = signal_stats(rewards_E, group_E)
    assert (stats.groups, stats.episodes) == (4, 9)
    assert stats.signal_groups == 2
    assert stats.signal_share == 0.5
    assert (stats.positive_groups, stats.positive_episodes) == (3, 4)
    assert stats.distinct_rewards == 5
    assert groups_with_signal(rewards_E, group_E).tolist() == [5, 7]


def test_rounding_is_not_signal_and_small_differences_are():
    group_E = torch.tensor([0, 0, 1, 1])
    rewards_E = torch.tensor([0.1 + 0.2, 0.3, 0.3, 0.3001], dtype=torch.float64)
    assert groups_with_signal(rewards_E, group_E).tolist() == [1]
    assert signal_stats(rewards_E, group_E).distinct_rewards == 2
    assert groups_with_signal(rewards_E, group_E, tolerance=0.01).tolist() == []


@given(groups=st.lists(GROUPS, min_size=1, max_size=4))
def test_groups_with_signal_are_those_with_an_advantage(groups):
    batch = batch_of(groups, length=1)
    advantage_E = ADVANTAGES["grpo"](batch, AdvantageOptions())
    moved = batch.group_E[advantage_E != 0].unique()
    assert torch.equal(groups_with_signal(batch.rewards_E, batch.group_E), moved)


@pytest.mark.parametrize("advantage", sorted(ADVANTAGES))
def test_equal_groups_may_drop_only_where_nothing_acts_on_them(advantage):
    assert may_drop(advantage=advantage) == (not ADVANTAGES[advantage].whitened)
    assert not may_drop(advantage=advantage, kl_coef=0.001)
    assert not may_drop(advantage=advantage, entropy_coef=0.001)
