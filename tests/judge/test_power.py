"""The planner: what it predicts is what simulated pairs show."""

import numpy as np
import pytest
from scipy.stats import multinomial

from assay.judge.paired import compare
from assay.judge.power import (
    detectable_from_interval,
    items_needed,
    minimum_detectable_difference,
    predicted_power,
)
from assay.judge.sample_size import Design, given_discordance, plan
from assay.judge.significance import mid_p_mcnemar
from tests.judge.simulated import discordant_pairs, single_pass


def rejected_share(items: int, discordance: float, difference: float) -> float:
    rng = np.random.default_rng(items)
    share = max(discordance, difference)
    return float(np.mean(mid_p_mcnemar(*discordant_pairs(rng, items, share, difference)) < 0.05))


def test_power_is_the_sum_over_all_tables():
    items, discordance, difference = 12, 0.6, 0.3
    gaining, losing = 0.45, 0.15
    total = sum(
        multinomial.pmf([g, k, items - g - k], items, [gaining, losing, 1 - discordance])
        for g in range(items + 1)
        for k in range(items + 1 - g)
        if mid_p_mcnemar(g, k) < 0.05
    )
    assert predicted_power(items, discordance, difference) == pytest.approx(total, abs=1e-10)


@pytest.mark.parametrize(("items", "discordance"), [(100, 0.3), (400, 0.1), (75, 0.0), (1000, 0.2)])
def test_the_detectable_difference_is_detected_in_80_percent_of_pairs(items, discordance):
    difference = minimum_detectable_difference(items, discordance)
    assert difference is not None
    assert rejected_share(items, discordance, difference) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(("discordance", "difference"), [(0.2, 0.05), (0.1, 0.02), (0.05, 0.05)])
def test_the_items_needed_give_80_percent_and_half_of_them_do_not(discordance, difference):
    items = items_needed(discordance, difference)
    assert items is not None
    assert rejected_share(items, discordance, difference) == pytest.approx(0.8, abs=0.05)
    assert rejected_share(items // 2, discordance, difference) < 0.7


def test_no_difference_beyond_the_scale_is_promised():
    assert detectable_from_interval(0.69, most=1.0) == pytest.approx(0.986, abs=0.001)
    assert detectable_from_interval(0.71, most=1.0) is None


def test_the_normal_approximation_agrees_where_it_takes_over():
    items = items_needed(0.2, 0.0125)
    assert items is not None and items > 10_000
    assert predicted_power(items, 0.2, 0.0125) == pytest.approx(0.8, abs=0.005)


def test_a_difference_is_resolved_where_there_are_the_items_that_it_needs():
    """N / N*: 1 where the items there are show the difference seen in 80 % of experiments."""
    few, enough = (
        compare(single_pass([0] * 10 * n), single_pass(([1] * 3 + [0] * 7) * n)) for n in (1, 4)
    )
    for found in (few, enough):
        needed = found.items_needed
        assert needed and found.resolution == found.items / needed
        assert predicted_power(needed, 0.3, 0.3) >= 0.8 > predicted_power(needed - 1, 0.3, 0.3)
    assert few.resolution < 1 < enough.resolution
    assert compare(single_pass([0, 1]), single_pass([0, 1])).resolution is None
    designs = plan(given_discordance(0.3), 0.1, (Design(100), Design(0))).designs
    assert designs[0].resolution == 100 / designs[1].design.items and designs[1].resolution == 1
