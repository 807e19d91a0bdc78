"""Means of clustered items: other people's variances, and coverage where clusters are few."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, stats
from statsmodels.regression.linear_model import OLS

from assay.judge.cluster_robust import (
    ClusterMeans,
    cluster_means,
    difference_limits,
    item_mean,
    p_value,
    score_limits,
)
from assay.judge.intervals import wilson
from assay.judge.scores import Array
from tests.judge.simulated import PAIRS

ONE_SIDED, TWO_SIDED = (0.0, 1.0), (-1.0, 1.0)


def drawn(
    seed: int, sizes: list[int], bounds: tuple[float, float] = TWO_SIDED
) -> tuple[Array, tuple[str, ...], ClusterMeans]:
    """Correlated values of items in clusters of these sizes, and their mean."""
    rng = np.random.default_rng(seed)
    values = np.concatenate([rng.normal(0.1 * rng.normal(), 0.1, size) for size in sizes])
    clusters = tuple(f"c{i:02d}" for i, size in enumerate(sizes) for _ in range(size))
    return values, clusters, item_mean(values, clusters, bounds)


def by_matrices(values: Array, clusters: tuple[str, ...]) -> tuple[float, float]:
    """CR2's variance and the Bell-McCaffrey degrees of freedom, as Pustejovsky and Tipton (2018,
    Journal of Business and Economic Statistics 36:672) write them for any regression."""
    design = np.ones((len(values), 1))
    bread = linalg.inv(design.T @ design)
    hat = design @ bread @ design.T
    residuals = values - hat @ values
    meat, columns = 0.0, []
    for name in sorted(set(clusters)):
        mine = np.array([c == name for c in clusters])
        half = linalg.inv(np.asarray(linalg.sqrtm(np.eye(mine.sum()) - hat[np.ix_(mine, mine)])))
        meat += float((design[mine].T @ half @ residuals[mine])[0]) ** 2
        columns.append(((np.eye(len(values)) - hat)[:, mine] @ half @ design[mine] @ bread)[:, 0])
    spread = np.array(columns) @ np.array(columns).T
    return float(meat * bread[0, 0] ** 2), np.trace(spread) ** 2 / (spread**2).sum()


@pytest.mark.parametrize("sizes", [[1, 2], [3, 3, 3, 3], [1, 5, 9, 2, 30, 4, 4]])
def test_variance_and_degrees_of_freedom_are_cr2s_of_a_regression_on_a_constant(sizes):
    values, clusters, means = drawn(1, sizes)
    variance, degrees = by_matrices(values, clusters)
    assert means.mean == pytest.approx(values.mean())
    assert means.standard_error**2 == pytest.approx(variance)
    assert means.degrees == pytest.approx(degrees)


def test_equal_clusters_have_the_variance_and_the_interval_of_statsmodels():
    values, clusters, means = drawn(2, [4] * 9)
    fit = OLS(values, np.ones(36)).fit(
        cov_type="cluster", cov_kwds={"groups": np.unique(clusters, return_inverse=True)[1]}
    )
    assert means.standard_error == pytest.approx(fit.bse[0])
    assert means.degrees == pytest.approx(8)
    reach = stats.t.ppf(0.975, 8) * fit.bse[0]
    expected = (fit.params[0] - reach, fit.params[0] + reach)
    assert difference_limits(means) == pytest.approx(expected)


def test_items_without_clusters_get_scipys_t_test():
    values = np.random.default_rng(3).normal(0.1, 0.2, 40)
    found, expected = item_mean(values, None, TWO_SIDED), stats.ttest_1samp(values, 0)
    assert p_value(found) == pytest.approx(expected[1])
    assert difference_limits(found) == pytest.approx(tuple(expected.confidence_interval()))


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=2, max_size=40))
def test_the_p_value_is_where_the_interval_meets_zero(values):
    means = item_mean(np.array(values), tuple(f"c{i // 2}" for i in range(len(values))), TWO_SIDED)
    p = float(p_value(means))
    if means.mean == 0 or means.clusters == 1:
        assert p == 1
        return
    for level, holds in ((1 - p * 0.98, True), (1 - p * 1.02, False)):
        if 0 < level < 1:
            low, high = difference_limits(means, level)
            assert (low <= 0 <= high) == holds


def test_a_score_of_clusters_of_one_is_wilsons_but_for_students_quantile():
    ones = (np.arange(400) < 300).astype(float)
    low, high = score_limits(item_mean(ones, None, ONE_SIDED))
    expected = wilson(300, 400)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=5e-4)


def test_one_cluster_says_nothing():
    means = item_mean(np.array([0.3, 0.4]), ("a", "a"), TWO_SIDED)
    assert difference_limits(means) == score_limits(means) == (-1, 1)
    assert p_value(means) == 1


def test_a_constant_gain_in_a_few_clusters_is_no_proof_and_in_many_it_is():
    # Nothing varied, so the variance is 0: the limits reach as far as one exception would.
    few, many = (item_mean(np.full(n, 0.2), None, TWO_SIDED) for n in (6, 60))
    assert difference_limits(few)[0] < 0 and p_value(few) > 0.05
    assert difference_limits(many)[0] > 0 and p_value(many) < 0.05


def unequal(rng: np.random.Generator, count: int) -> Array:
    """Cluster sizes of 1 to 60 items, a few clusters much larger than the others."""
    return np.round(np.exp(rng.normal(1.5, 0.8, count))).clip(1, 60)


def simulated(kind: str, rng: np.random.Generator, sizes: Array) -> tuple[Array, float]:
    """Sums of clusters x PAIRS, and the mean of a cluster drawn at random."""
    shape, items = (len(sizes), PAIRS), sizes[:, None]
    if kind == "soft":
        own = rng.normal(0, 0.15, shape) * np.sqrt(items)
        return items * (0.5 + rng.normal(0, 0.1, shape)) + own, 0.5
    mean = {"0/1": 0.5, "easy": 0.9}[kind]
    chance = rng.beta(4 * mean, 4 - 4 * mean, shape)
    return rng.binomial(items.astype(int), chance).astype(float), mean


@pytest.mark.parametrize("count", [5, 10, 20, 30])
@pytest.mark.parametrize("kind", ["0/1", "soft", "easy"])
def test_intervals_cover_in_95_percent_where_clusters_are_few_and_unequal(kind, count):
    rng, scores, differences = np.random.default_rng(6), [], []
    for _ in range(4):
        sizes = unequal(rng, count)
        totals, mean = simulated(kind, rng, sizes)
        means = cluster_means(totals, sizes, ONE_SIDED)
        limits = (score_limits(means), difference_limits(means))
        for kept, (low, high) in zip((scores, differences), limits, strict=True):
            kept.append(np.mean((low <= mean) & (mean <= high)))
    assert np.mean(scores) >= 0.935
    assert np.mean(differences) >= 0.93
    if count >= 10 and kind != "easy":
        assert np.mean(scores) <= 0.97
