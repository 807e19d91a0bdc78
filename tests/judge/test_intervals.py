"""Intervals: published examples, other people's code, and coverage by simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from assay.judge.intervals import score_interval, tango, tango_limits, wilson
from assay.judge.scores import ItemScores
from tests.judge.simulated import item_ids, single_pass


@given(st.integers(1, 500), st.data())
def test_wilson_agrees_with_statsmodels(items: int, data: st.DataObject):
    successes = data.draw(st.integers(0, items))
    interval = wilson(successes, items)
    low, high = proportion_confint(successes, items, method="wilson")
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-12)


@pytest.mark.parametrize(
    ("gained", "lost", "items", "level", "low", "high"),
    [
        # Tango 1998, section 6: sleeping difficulties, 32 pairs.
        (9, 3, 32, 0.95, -0.027, 0.390),
        # Tango 1998, section 6: soft contact lenses, 44 pairs, one of them discordant.
        (0, 1, 44, 0.90, -0.096, None),
        # Fagerland, Lydersen, Laake 2014 and R's contingencytables: airway hyper-responsiveness.
        (1, 7, 21, 0.95, -0.517, -0.026),
        # The same sources: complete response before and after consolidation therapy.
        (6, 16, 161, 0.95, -0.1240, -0.0054),
    ],
)
def test_tango_gives_the_published_limits(gained, lost, items, level, low, high):
    interval = tango(gained, lost, items, level)
    assert interval.low == pytest.approx(low, abs=6e-4)
    if high is not None:
        assert interval.high == pytest.approx(high, abs=6e-4)


@given(st.integers(1, 2000))
def test_tango_has_the_closed_form_width_when_nothing_is_discordant(items: int):
    limit = stats.norm.ppf(0.975) ** 2 / (items + stats.norm.ppf(0.975) ** 2)
    interval = tango(0, 0, items)
    assert (interval.low, interval.high) == pytest.approx((-limit, limit), abs=1e-9)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 200))
def test_tango_limits_are_where_the_score_test_turns(gained, lost, same):
    # The statistic of Tango's equation 26, written with a numerical maximum of the likelihood.
    items = gained + lost + same
    for limit in tango_limits(np.array(float(gained)), np.array(float(lost)), items):
        grid = np.linspace(max(0, -limit), (1 - limit) / 2, 200_001)[1:-1]
        likelihood = gained * np.log(grid + limit) + lost * np.log(grid)
        likelihood += same * np.log(1 - 2 * grid - limit) if same else 0
        losing = grid[np.argmax(likelihood)]
        variance = items * (2 * losing + limit - limit**2)
        statistic = (gained - lost - items * limit) / np.sqrt(variance)
        assert abs(statistic) == pytest.approx(1.96, abs=0.02)


def test_an_interval_that_ignores_clusters_would_be_too_narrow():
    rng = np.random.default_rng(4)
    means, items = rng.random(20), 10
    scores = (rng.random((20, items)) < means[:, None]).astype(float).reshape(-1, 1)
    sources = tuple(f"source-{i // items}" for i in range(20 * items))
    clustered = ItemScores(item_ids(200), scores, sources)
    assert (
        score_interval(clustered).half_width
        > 1.4 * score_interval(single_pass(scores[:, 0])).half_width
    )


@pytest.mark.parametrize("different", [1, 4, 7])
def test_an_interval_of_few_exceptions_reaches_as_far_as_none_would(different):
    values = np.zeros(100)
    values[:different] = 0.2
    interval = score_interval(single_pass(values))
    unseen = wilson(0, 100).high
    assert interval.high >= values.mean() + unseen * (1 - values.mean()) - 1e-12
    values[:8] = 0.2
    assert score_interval(single_pass(values)).high < unseen


def test_the_interval_is_chosen_by_the_scores_and_named():
    once = single_pass([1, 0, 1, 1])
    graded = single_pass([1, 0.5, 1, 0])
    repeated = ItemScores(item_ids(4), np.array([[1, 1], [0, 1], [1, 0], [0, 0]]))
    sources = ItemScores(item_ids(4), once.scores, ("a", "a", "b", "c"))
    alone = ItemScores(item_ids(4), once.scores, ("a", "b", "c", "d"))
    assert [score_interval(s).method for s in (once, alone)] == ["Wilson", "Wilson"]
    methods = {score_interval(s).method for s in (graded, repeated, sources)}
    assert methods == {"cluster-robust Wilson"}
