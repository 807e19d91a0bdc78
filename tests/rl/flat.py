"""Builds flat batches of episodes for tests, by hand and by hypothesis."""

from collections.abc import Sequence

import torch
from hypothesis import strategies as st

from assay.rl.advantages import AdvantageInput

# Rewards as they occur: whole numbers and tenths, whose float sums are not exact.
REWARDS = st.integers(-20, 20).map(lambda tenths: tenths / 10)
GROUPS = st.lists(REWARDS, min_size=2, max_size=6)


def batch_of(groups: Sequence[Sequence[float]], length: int = 2) -> AdvantageInput:
    """Groups of rewards, each episode `length` trained tokens long."""
    rewards = [reward for group in groups for reward in group]
    index = [g for g, group in enumerate(groups) for _ in group]
    episode_S = torch.arange(len(rewards)).repeat_interleave(length)
    return AdvantageInput(
        rewards_E=torch.tensor(rewards, dtype=torch.float64),
        group_E=torch.tensor(index),
        episode_S=episode_S,
        mask_S=torch.ones(len(episode_S), dtype=torch.bool),
    )
