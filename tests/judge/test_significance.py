"""The paired tests against other people's code, and their error rates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar

from assay.judge.significance import mid_p_mcnemar
from tests.judge.simulated import discordant_pairs


@given(st.integers(0, 80), st.integers(0, 80))
def test_mid_p_is_the_exact_test_of_statsmodels_less_the_observed_table(gained, lost):
    exact = vars(mcnemar([[5, gained], [lost, 5]], exact=True))["pvalue"]
    observed = stats.binom.pmf(gained, gained + lost, 0.5)
    expected = 1.0 if gained == lost else exact - observed
    assert mid_p_mcnemar(gained, lost) == pytest.approx(expected, abs=1e-12)


def test_mid_p_gives_the_published_value():
    # Fagerland, Lydersen, Laake 2014 and R's contingencytables: 6 against 16 of 161 pairs.
    assert mid_p_mcnemar(6, 16) == pytest.approx(0.034690, abs=1e-6)


def test_mid_p_calls_few_null_pairs_different():
    rng = np.random.default_rng(1)
    for chance in (0.05, 0.2, 0.5, 0.8, 0.95):
        p_values = mid_p_mcnemar(*discordant_pairs(rng, 100, 2 * chance * (1 - chance), 0.0))
        assert np.mean(p_values < 0.05) <= 0.07
