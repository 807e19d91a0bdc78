"""Importance correction: closed forms of its four modes, TRL's formula, and what micro-batches may
cut."""

import math

import pytest
import torch

from assay.rl.aggregation import Importance, beyond_bounds, importance_weights, log_ratios
from assay.rl.objectives import GrpoObjective
from tests.rl.test_objectives import Table, batch


def trl(gap_BT, mask_BT, mode: str, low: float | None, high: float):
    """TRL f2cd5771, GRPOTrainer._generate_and_score_completions."""
    gap_BT = gap_BT * mask_BT
    if mode.startswith("sequence"):
        gap_BT = gap_BT.sum(dim=-1, keepdim=True)
    ratio_BT = gap_BT.exp()
    if mode.endswith("truncate"):
        ratio_BT = ratio_BT.clamp(min=low, max=high)
    else:
        invalid_BT = (ratio_BT < (-math.inf if low is None else low)) | (ratio_BT > high)
        ratio_BT = ratio_BT.masked_fill(invalid_BT, 0.0)
    return ratio_BT.expand_as(mask_BT)


@pytest.mark.parametrize("mode", ["token", "sequence"])
@pytest.mark.parametrize("how", ["truncate", "mask"])
@pytest.mark.parametrize("low", [None, 0.7])
def test_weights_agree_with_trl(mode, how, low):
    generator = torch.Generator().manual_seed(0)
    gap_BT = torch.randn(6, 5, generator=generator) * 0.3
    mask_BT = torch.rand(6, 5, generator=generator) < 0.8
    expected_BT = trl(gap_BT, mask_BT, f"{mode}_{how}", low, 1.3)
    importance = Importance(mode, how, low, 1.3)
    episode_S = torch.arange(6).repeat_interleave(5)
    log_S = log_ratios(importance, gap_BT.flatten(), mask_BT.flatten(), episode_S)
    found_BT = importance_weights(importance, log_S).view(6, 5)
    torch.testing.assert_close(found_BT[mask_BT], expected_BT[mask_BT])
    assert beyond_bounds(importance, log_S).any()


def test_off_corrects_nothing_and_masked_tokens_have_no_policy_gradient():
    policy, packed = Table(5), batch()
    plain, sums = policy.gradient(GrpoObjective(importance=Importance(how="off")), [packed])
    unknown, _ = policy.gradient(GrpoObjective(), [packed.with_tokens(behaviour_S=None)])
    torch.testing.assert_close(plain, unknown)
    assert "importance_cut_share" not in sums
    masked = GrpoObjective(importance=Importance(how="mask", low=0.999, high=1.001))
    gradient, sums = policy.gradient(masked, [packed])
    assert (gradient == 0).all()
    assert sums["importance_cut_share"] == sums["tokens"]
