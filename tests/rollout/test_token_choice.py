"""Draws depend on their key alone, follow the distribution, and never pick the impossible."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from assay.errors import RunFailure
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.token_choice import (
    choose,
    draw,
    draw_with_moments,
    filtered,
    key_states,
    uniforms,
)


def test_uniforms_are_uniform_and_independent_across_rows_samples_and_positions():
    states = key_states([SampleKey(1, str(row), g) for row in range(100) for g in range(20)])
    table = np.stack([uniforms(states, np.full(len(states), t)) for t in range(20)])
    assert stats.kstest(table.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(table[0], table[1])[0, 1]) < 0.08
    assert len(np.unique(table)) == table.size
    assert table.min() > 0 and table.max() < 1


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-12), (torch.float32, 2e-7)])
@given(
    weights=st.lists(st.sampled_from([0.0, 1e-30, 1e-8, 0.5, 3.0]), min_size=1, max_size=700),
    uniform=st.one_of(
        st.floats(0, 1, exclude_min=True, exclude_max=True),
        st.sampled_from([2.0**-54, 1 - 2.0**-54, 0.5]),
    ),
)
def test_choose_is_the_inverse_cdf_and_never_picks_weight_zero(dtype, rounding, weights, uniform):
    if not sum(weights):
        return
    tensor = torch.tensor([weights], dtype=dtype)
    chosen = int(choose(tensor, torch.tensor([uniform], dtype=torch.float64))[0])
    assert weights[chosen] > 0
    mass = np.cumsum(tensor[0].double().numpy())
    below = mass[chosen - 1] if chosen else 0.0
    slack = rounding * mass[-1]
    assert below - slack <= uniform * mass[-1] <= mass[chosen] + slack


def test_draws_follow_the_softmax_at_the_temperature():
    torch.manual_seed(0)
    logits = torch.randn(1, 600)
    count = 40_000
    keys = key_states([SampleKey(3, "row", i) for i in range(count)])
    uniform = torch.from_numpy(uniforms(keys, np.zeros(count)))
    tokens, logps = draw(logits.expand(count, -1), Sampling(temperature=0.6), uniform)
    expected = (logits[0] / 0.6).softmax(-1).double().numpy()
    often = expected * count > 20
    observed = np.bincount(tokens.numpy(), minlength=600)
    rest = [observed[~often].sum()], [expected[~often].sum() * count]
    found = np.concatenate([observed[often], rest[0]])
    wanted = np.concatenate([expected[often] * count, rest[1]])
    assert stats.chisquare(found, wanted * found.sum() / wanted.sum()).pvalue > 1e-3
    torch.testing.assert_close(logps, torch.from_numpy(np.log(expected)).float()[tokens])


def test_greedy_takes_the_largest_and_reports_its_log_prob_at_temperature_one():
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    tokens, logps = draw(logits, Sampling(temperature=0), torch.tensor([0.99]))
    assert tokens.tolist() == [1]
    assert logps[0] == pytest.approx(float(logits.log_softmax(-1)[0, 1]))


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.6), Sampling(0), Sampling(top_k=3), Sampling(top_p=0.7)]
)
def test_the_entropy_is_that_of_what_was_drawn_from(sampling):
    logits_BV = 3 * torch.randn(70, 600, generator=torch.Generator().manual_seed(1))
    logits_BV[:, 5] = float("-inf")  # as models mark words that nothing stands for
    _, _, entropy_B, variance_B = draw_with_moments(logits_BV, sampling, torch.full((70,), 0.5))
    kept_BV = filtered(logits_BV.double() / (sampling.temperature or 1), sampling)
    expected_B = torch.distributions.Categorical(logits=kept_BV).entropy()
    torch.testing.assert_close(entropy_B.double(), expected_B, atol=2e-5, rtol=0)
    table_BV = kept_BV.log_softmax(-1)
    deviations_BV = torch.where(kept_BV.isfinite(), table_BV + expected_B[:, None], 0.0)
    spread_B = (table_BV.exp() * deviations_BV**2).sum(-1) * bool(sampling.temperature)
    torch.testing.assert_close(variance_B.double(), spread_B, atol=1e-4, rtol=1e-4)


def test_top_k_and_top_p_keep_exactly_their_tokens():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))
    kept = lambda sampling: torch.isfinite(filtered(logits, sampling))[0].tolist()  # noqa: E731
    assert kept(Sampling(top_k=2)) == [True, True, False, False]
    assert kept(Sampling(top_p=0.8)) == [True, True, False, False]
    assert kept(Sampling(top_p=0.81)) == [True, True, True, False]
    assert kept(Sampling()) == [True] * 4


@pytest.mark.parametrize("temperature", [0.0, 1.0, 0.5, 1e-300])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_word_is_drawn_from_scores_that_are_not_finite(temperature, value):
    logits_BV = torch.zeros(3, 400)
    draw(logits_BV, Sampling(temperature), torch.full((3,), 0.5))
    logits_BV[1, 7] = value
    with pytest.raises(RunFailure):
        draw(logits_BV, Sampling(temperature), torch.full((3,), 0.5))


@pytest.mark.parametrize("temperature", [9e-4, 1e-30, 1e-45, 1e-300, 5e-324])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (3, 1.0), (0, 0.5)])
def test_a_temperature_near_0_is_greedy_and_no_failure(temperature, top_k, top_p):
    logits_BV = torch.linspace(-60, 60, 400).repeat(2, 1)
    logits_BV[1] = logits_BV[1].flip(0) * 1e30
    sampling = Sampling(temperature, top_p=top_p, top_k=top_k)
    tokens_B, logps_B = draw(logits_BV, sampling, torch.tensor([0.01, 0.99]))
    assert tokens_B.tolist() == [399, 0] and logps_B.tolist() == [0, 0]


@pytest.mark.parametrize("temperature", [1e-3, 100.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (10**12, 1.0), (0, 1e-300), (2**63 - 1, 1)])
def test_the_extremes_that_may_be_written_draw_words_with_their_log_prob(temperature, top_k, top_p):
    logits_BV = torch.linspace(-60, 60, 400).repeat(2, 1)
    sampling = Sampling(temperature, top_p=top_p, top_k=top_k)
    tokens_B, logps_B = draw(logits_BV, sampling, torch.tensor([0.01, 0.99]))
    kept_BV = filtered((logits_BV / temperature).double(), sampling).log_softmax(dim=-1)
    expected_B = kept_BV.gather(1, tokens_B[:, None])[:, 0]
    torch.testing.assert_close(logps_B.double(), expected_B, atol=1e-4, rtol=1e-4)
