"""Regression on rows whose neighbours resemble each other: what other people's code says of it."""

import numpy as np
import pytest
from scipy import linalg
from statsmodels.regression.linear_model import GLS

from assay.judge.selection import CORRELATIONS, resembling

STEPS = np.array([0.0, 1, 2, 4, 5, 6, 9, 10])
VALUES = np.random.default_rng(1).normal(size=8) + 0.3 * STEPS
DESIGN = np.stack((np.ones(8), STEPS - STEPS.mean()), 1)


def covariance(steps: np.ndarray, at: int) -> np.ndarray:
    """Of deviations at these steps, at one of the correlations."""
    return CORRELATIONS[at] ** np.abs(np.subtract.outer(steps, steps))


@pytest.mark.parametrize("at", [1, 12, 24])
def test_coefficients_at_each_correlation_are_those_of_generalised_least_squares(at):
    found = resembling(DESIGN, VALUES, np.diff(STEPS))
    fit = GLS(VALUES, DESIGN, sigma=covariance(STEPS, at)).fit()
    assert found.coefficients_KP[at] == pytest.approx(fit.params)
    expected = found.variances_K[at] * found.covariances_KPP[at]
    assert expected == pytest.approx(fit.cov_params())


@pytest.mark.parametrize("at", [1, 12, 24])
def test_a_sum_to_come_is_the_best_linear_prediction(at):
    count = 7
    steps = np.arange(len(VALUES) + count)
    whole = covariance(steps.astype(float), at)
    past, cross = whole[:8, :8], whole[8:, :8].sum(0)
    inverse = linalg.inv(past)
    ones = np.ones(8)
    weight = ones @ inverse @ ones
    mean = ones @ inverse @ VALUES / weight
    centre = count * mean + cross @ inverse @ (VALUES - mean)
    spread = whole[8:, 8:].sum() - cross @ inverse @ cross
    spread += (count - cross @ inverse @ ones) ** 2 / weight
    fitted = resembling(np.ones((8, 1)), VALUES, np.ones(7))
    found = fitted.next_sum(np.ones(1), count)
    assert found.centres_K[at] == pytest.approx(centre)
    assert found.scales_K[at] ** 2 == pytest.approx(fitted.variances_K[at] * spread)


def test_weights_are_the_likelihood_of_what_the_regression_leaves():
    """Restricted likelihood times prior, by another route: contrasts that the design leaves."""
    found = resembling(DESIGN, VALUES, np.diff(STEPS))
    contrasts = linalg.null_space(DESIGN.T).T
    logs = []
    for at in (3, 20):
        inner = contrasts @ covariance(STEPS, at) @ contrasts.T
        left = contrasts @ VALUES
        quadratic = left @ linalg.solve(inner, left)
        logs.append(-0.5 * np.linalg.slogdet(inner)[1] - 3 * np.log(quadratic))
    assert np.log(found.weights_K[3] / found.weights_K[20]) == pytest.approx(logs[0] - logs[1])


def test_half_of_the_weight_is_on_independent_steps_before_any_is_seen():
    # Two values say nothing about a correlation beside their distance.
    found = resembling(np.ones((2, 1)), np.array([0.0, 1.0]), np.ones(1))
    assert found.weights_K[0] == pytest.approx(0.5)
