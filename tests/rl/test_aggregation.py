"""Token weights: each mode by hand, dropped counts, and masks with holes."""

import pytest
import torch

from assay.rl.aggregation import Dropped, token_weights

MASK_S = torch.tensor([1, 1, 0, 1, 0, 0, 1]).bool()
# Episodes 0 (2 trained tokens, interleaved with others), 1 (1), 2 (none), 4 (1).
EPISODE_S = torch.tensor([0, 4, 0, 0, 2, 2, 1])


@pytest.mark.parametrize(
    ("mode", "share"),
    [("token_mean", 4 / 10), ("seq_mean_token_mean", 3 / 5), ("seq_mean_token_sum", 3 / 5)],
)
def test_dropped_tokens_stay_in_the_denominator_when_asked(mode, share):
    weight_S = token_weights(mode, MASK_S, EPISODE_S)
    kept_S = token_weights(mode, MASK_S, EPISODE_S, dropped=Dropped(tokens=6, episodes=2))
    torch.testing.assert_close(kept_S, weight_S * share)
