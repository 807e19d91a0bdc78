"""The paired tests against other people's code, and their error rates."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar

from assay.judge.significance import mid_p_mcnemar, sampled_sign_flip, sign_flip
from tests.few import few
from tests.judge.simulated import discordant_pairs, repeated_rates


@given(st.integers(0, 80), st.integers(0, 80))
def test_mid_p_is_the_exact_test_of_statsmodels_less_the_observed_table(gained, lost):
    exact = vars(mcnemar([[5, gained], [lost, 5]], exact=True))["pvalue"]
    observed = stats.binom.pmf(gained, gained + lost, 0.5)
    expected = 1.0 if gained == lost else exact - observed
    assert mid_p_mcnemar(gained, lost) == pytest.approx(expected, abs=1e-12)


def test_mid_p_gives_the_published_value():
    # Fagerland, Lydersen, Laake 2014 and R's contingencytables: 6 against 16 of 161 pairs.
    assert mid_p_mcnemar(6, 16) == pytest.approx(0.034690, abs=1e-6)


def test_mid_p_of_no_change_is_one():
    assert mid_p_mcnemar(0, 0) == 1.0


@given(st.integers(0, 9), st.integers(0, 4), st.integers(0, 30))
def test_sign_flip_of_single_items_is_mid_p_mcnemar(gained, lost, same):
    differences = np.repeat([1.0, -1.0, 0.0], [gained, lost, same])
    assert sign_flip(differences) == pytest.approx(float(mid_p_mcnemar(gained, lost)), abs=1e-12)


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=8))
def test_exact_sign_flip_counts_every_pattern(totals):
    values = np.array(totals) / 3
    sums = [np.dot(s, totals) for s in itertools.product((-1, 1), repeat=len(totals))]
    size = abs(sum(totals))
    above = np.mean([s > size for s in sums]) + np.mean([s == size for s in sums]) / 2
    assert sign_flip(values) == pytest.approx(2 * above, abs=1e-12)


def test_sampled_sign_flip_agrees_with_scipy():
    values = np.random.default_rng(0).normal(0.12, 0.5, 60)
    other = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=20_000, rng=1
    )
    assert sign_flip(values) == pytest.approx(other.pvalue, abs=0.01)


def test_a_sampled_p_value_is_never_zero_and_never_above_one():
    assert sign_flip(np.ones(300)) == pytest.approx(1 / 10_001)
    assert sampled_sign_flip(np.zeros(20)) == 1.0


def test_mid_p_calls_few_null_pairs_different():
    rng = np.random.default_rng(1)
    for chance in (0.05, 0.2, 0.5, 0.8, 0.95):
        p_values = mid_p_mcnemar(*discordant_pairs(rng, 100, 2 * chance * (1 - chance), 0.0))
        assert np.mean(p_values < 0.05) <= 0.07


@few("clusters, answers", [(25, 4), (100, 3)], fast=1)
def test_sign_flip_calls_few_null_pairs_different(clusters, answers):
    rng = np.random.default_rng(2)
    for chance in (0.1, 0.5, 0.8):
        control, other = repeated_rates(rng, clusters, answers, chance, runs=2)
        rejected = np.mean(sampled_sign_flip(other - control) < 0.05)
        assert 0.02 <= rejected <= 0.07
