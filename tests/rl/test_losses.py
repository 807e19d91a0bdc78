"""Policy losses: closed forms where the fixtures cannot look, and properties of all of them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.rl.aggregation import aggregate, token_weights
from assay.rl.losses import LOSSES, Clip, TokenBatch

S = 12
EPISODE_S = torch.arange(S) // 4
MASK_S = torch.tensor([1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1]).bool()


def token_batch(seed: int, spread: float = 0.5) -> TokenBatch:
    """Three episodes with holes in the mask; advantages are constant inside an episode."""
    generator = torch.Generator().manual_seed(seed)
    logps_S = -torch.rand(S, generator=generator, dtype=torch.float64) * 3
    old_S = logps_S + spread * torch.randn(S, generator=generator, dtype=torch.float64)
    advantage_E = torch.randn(3, generator=generator, dtype=torch.float64)
    return TokenBatch(logps_S.requires_grad_(), old_S, advantage_E[EPISODE_S], MASK_S, EPISODE_S)


def gradient(name: str, batch: TokenBatch, weight_S: torch.Tensor, clip: Clip) -> torch.Tensor:
    loss = aggregate(weight_S, LOSSES[name](batch, clip).loss_S)
    return torch.autograd.grad(loss, batch.logps_S)[0]


@pytest.mark.parametrize("name", sorted(LOSSES))
@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_at_ratio_1_the_gradient_is_the_policy_gradient(name, seed):
    batch = token_batch(seed, spread=0.0)
    weight_S = token_weights("seq_mean_token_mean", MASK_S, EPISODE_S)
    expected_S = -weight_S * batch.advantage_S
    torch.testing.assert_close(gradient(name, batch, weight_S, Clip(dual=3.0)), expected_S)


@pytest.mark.parametrize("name", sorted(LOSSES))
@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_zero_advantage_gives_exactly_zero_loss_and_gradient(name, seed):
    batch = token_batch(seed)
    silent = TokenBatch(
        batch.logps_S, batch.old_S, torch.zeros_like(batch.advantage_S), MASK_S, EPISODE_S
    )
    assert (LOSSES[name](silent, Clip()).loss_S == 0).all()
    assert (gradient(name, silent, MASK_S.float(), Clip()) == 0).all()


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_masked_tokens_have_no_loss_no_flags_and_no_influence(name):
    batch = token_batch(3)
    wild_S = torch.where(MASK_S, batch.logps_S.detach(), 50.0).requires_grad_()
    wild = TokenBatch(wild_S, batch.old_S, batch.advantage_S, MASK_S, EPISODE_S)
    clip = Clip(0.01, 0.01)
    plain, answer = LOSSES[name](batch, clip), LOSSES[name](wild, clip)
    torch.testing.assert_close(answer.loss_S, plain.loss_S)
    for values_S in (answer.loss_S, answer.clip_low_S, answer.clip_high_S, answer.log_ratio_S):
        assert (values_S[~MASK_S] == 0).all()
    ones_S = torch.ones(S, dtype=torch.float64)
    assert (gradient(name, wild, ones_S, Clip())[~MASK_S] == 0).all()


def one_token(name: str, ratio: float, advantage: float, clip: Clip):
    logps_S = torch.tensor([math.log(ratio) - 1.0], dtype=torch.float64, requires_grad=True)
    batch = TokenBatch(
        logps_S,
        torch.tensor([-1.0], dtype=torch.float64),
        torch.tensor([advantage], dtype=torch.float64),
        torch.tensor([True]),
        torch.tensor([0]),
    )
    answer = LOSSES[name](batch, clip)
    slope = torch.autograd.grad(answer.loss_S.sum(), logps_S)[0].item()
    flags = (answer.clip_low_S, answer.clip_high_S, answer.dual_clip_S)
    return answer.loss_S.item(), slope, tuple(int(flag.item()) for flag in flags)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_hopeless_ratios_stay_finite_in_float32(name):
    logps_S = torch.tensor([-1.0], requires_grad=True)
    ones_S, first_S = torch.ones(1), torch.zeros(1, dtype=torch.long)
    batch = TokenBatch(logps_S, ones_S * -200, -ones_S, ones_S.bool(), first_S)
    loss = LOSSES[name](batch, Clip(high=500)).loss_S.sum()
    assert loss.isfinite()
    assert torch.autograd.grad(loss, logps_S)[0].isfinite().all()


def test_log_ratios_are_held_at_20_and_those_of_a_sequence_at_10():
    ratio = math.exp(25)
    assert one_token("ppo_clip", ratio, -1.0, Clip())[:2] == (pytest.approx(math.exp(20)), 0)
    assert one_token("gspo", ratio, -1.0, Clip())[:2] == (pytest.approx(math.exp(10)), 0)
    low = one_token("ppo_clip", 1 / ratio, 1.0, Clip())
    assert low[:2] == (pytest.approx(-math.exp(-20)), 0)
