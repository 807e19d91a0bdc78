"""The stated minimum detectable difference of means and of two binomials has 80 % power."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special
from statsmodels.stats.power import TTestPower

from assay.judge.binomial import compare_counts, score_test
from assay.judge.cluster_robust import cluster_means, p_value
from assay.judge.paired import compare
from assay.judge.power import DesignPrecision, smallest_seen, times_needed
from assay.judge.scores import Array, ItemScores, cluster_totals
from tests.english import explain
from tests.few import few
from tests.judge.simulated import item_ids, single_pass

Draw = Callable[[np.random.Generator, float, int], Array]
"""I x data sets of differences with a true mean."""
PILOTS, AGAIN = 120, 200


def power_of_stated(draw: Draw, clusters: tuple[str, ...] | None = None) -> float:
    """Share of new experiments that reject at the difference that a pilot of the same kind stated;
    of pilots that state one."""
    rng = np.random.default_rng(3)
    rejected = []
    for differences_I in draw(rng, 0.0, PILOTS).T:
        stated = stated_for(differences_I, clusters)
        if stated is not None:
            again = draw(rng, stated, AGAIN)
            totals_C, sizes_C = cluster_totals(again, clusters)
            found = cluster_means(totals_C, sizes_C, (-1.0, 1.0))
            rejected.append(float((p_value(found) < 0.05).mean()))
    assert len(rejected) > PILOTS / 4
    return float(np.mean(rejected))


def stated_for(differences_I: Array, clusters: tuple[str, ...] | None) -> float | None:
    ids, split = item_ids(len(differences_I)), (-differences_I, differences_I)
    low, high = (ItemScores(ids, np.maximum(v, 0.0)[:, None], clusters) for v in split)
    return compare(low, high).minimum_detectable_difference


@few("sizes", [(20, 3, 3, 3, 3), (10,) * 6, (30, 10, 5, 2, 1, 1)], fast=1)
def test_power_at_the_stated_difference_of_few_clusters_is_80_percent_or_more(sizes):
    clusters = tuple(f"source-{c}" for c, size in enumerate(sizes) for _ in range(size))

    def draw(rng: np.random.Generator, mean: float, sets: int) -> Array:
        shared = np.repeat(rng.normal(0, 0.03, (len(sizes), sets)), sizes, axis=0)
        return mean + shared + rng.normal(0, 0.02, shared.shape)

    assert 0.77 < power_of_stated(draw, clusters) < 0.92


@few("items, repeats", [(6, 4), (12, 16), (8, 4), (8, 16), (10, 2), (15, 4)], fast=1)
def test_power_at_the_stated_difference_of_few_repeated_answers_is_80_percent_or_more(
    items, repeats
):
    """Items of few steps are often alike, and then the limits are wider than Student's."""

    def draw(rng: np.random.Generator, mean: float, sets: int) -> Array:
        first, last = (
            rng.binomial(repeats, 0.5 + end * mean / 2, (items, sets)) / repeats for end in (-1, 1)
        )
        return last - first

    assert power_of_stated(draw) > 0.77


@few("items", [5, 15, 8, 12, 40], fast=1)
def test_the_mean_power_by_statsmodels_over_possible_pilots_is_80_percent(items):
    """Of pilots whose standard deviations are the quantiles of their distribution."""
    shares = (np.arange(200) + 0.5) / 200
    deviations = np.sqrt(special.chdtri(items - 1, shares) / (items - 1))
    powers = []
    for deviation in deviations:
        stated = smallest_seen(DesignPrecision(deviation / items**0.5, items - 1, width=100.0))
        # Its noncentral t is not a number where the power is 1 within rounding.
        powers.append(np.nan_to_num(TTestPower().power(stated, items, 0.05), nan=1.0))
    assert np.mean(powers) == pytest.approx(0.8, abs=0.005)


def test_the_items_needed_are_those_of_statsmodels():
    found = times_needed(DesignPrecision(1 / 2500**0.5, 2499, width=100.0), 0.03)
    expected = TTestPower().solve_power(0.03, None, 0.05, 0.8)
    assert found is not None
    assert 2500 * found == pytest.approx(expected, rel=0.01)


def test_where_no_difference_on_the_scale_is_seen_none_is_stated():
    """Six items of scores 0, 0.5 and 1 that go both ways: 129 points were once stated."""
    control, run = single_pass([0, 1, 0.5, 1, 0, 0.5]), single_pass([1, 0, 1, 0, 0.5, 1])
    found = compare(control, run)
    assert found.minimum_detectable_difference is None
    assert "no difference is detectable" in explain(found)
    assert found.items_needed is not None and found.items_needed > 100


@pytest.mark.parametrize(("items", "score"), [(8, 0.25), (10, 0.2), (15, 0.8), (40, 0.5)])
def test_the_stated_difference_of_two_counts_is_seen_in_80_percent(items, score):
    stated = compare_counts(
        score * items, items, score * items, items
    ).minimum_detectable_difference
    assert stated is not None
    rng = np.random.default_rng(0)
    toward = 1 if score < 0.5 else -1
    before, after = (rng.binomial(items, p, 3000) for p in (score, score + toward * stated))
    rejected = [score_test(b, items, a, items) < 0.05 for b, a in zip(before, after, strict=True)]
    assert np.mean(rejected) == pytest.approx(0.8, abs=0.025)
