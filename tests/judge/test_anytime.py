"""A comparison may be looked at as often as wanted: its level holds for all looks together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from assay.compare.sequential import compare_anytime, counted_units, items_to_stop
from assay.judge.paired import compare
from assay.judge.scores import Array, ItemScores, ItemsDifferError
from tests.few import few
from tests.judge.simulated import item_ids, single_pass

NEEDED = np.log(20)
LOOKS = range(20, 401, 20)


def ever_rejected(totals_C: Array, sizes_C: Array, width: float = 1.0) -> bool:
    """Whether the test rejects at one of the looks."""
    return any(
        counted_units(totals_C[:n], sizes_C[:n], width).log_capital(0.0) >= NEEDED for n in LOOKS
    )


def changed(rng: np.random.Generator, difference: float = 0.0) -> tuple[Array, Array]:
    chances = [0.15 + difference / 2, 0.15 - difference / 2, 0.7]
    return rng.choice([1.0, -1.0, 0.0], LOOKS[-1], p=chances), np.ones(LOOKS[-1])


def graded(rng: np.random.Generator, difference: float = 0.0) -> tuple[Array, Array]:
    first, last = rng.beta(1, 1, (2, LOOKS[-1]))
    return np.round(last - first, 1) * (1 - difference) + difference, np.ones(LOOKS[-1])


def lopsided(rng: np.random.Generator, difference: float = 0.0) -> tuple[Array, Array]:
    """Rare large losses beside small gains: a t test of few errs."""
    rare = rng.random(LOOKS[-1]) < 0.05
    return np.where(rare, -0.95, 0.05) + difference, np.ones(LOOKS[-1])


def clustered(rng: np.random.Generator, difference: float = 0.0) -> tuple[Array, Array]:
    sizes = rng.integers(1, 9, LOOKS[-1]).astype(float)
    return (rng.choice([-0.5, 0.5], LOOKS[-1]) + difference) * sizes, sizes


@few("draw", [clustered, lopsided, changed, graded], fast=1)
def test_twenty_looks_at_equal_runs_reject_in_at_most_5_percent(draw):
    """A test at 5 % that is looked at 20 times rejects in 25 %."""
    rng = np.random.default_rng(1)
    rejected = [ever_rejected(*draw(rng)) for _ in range(300)]
    assert np.mean(rejected) < 0.05


@pytest.mark.parametrize("draw", [changed, graded, clustered])
def test_a_large_difference_is_seen_at_an_early_look(draw):
    rng = np.random.default_rng(2)
    totals, sizes = draw(rng, 0.25)
    assert counted_units(totals[:200], sizes[:200], 1.0).log_capital(0.0) > NEEDED


def test_the_capital_is_the_integral_over_all_bets():
    """Of 0/1 items by numerical integration: gains win a share of the capital, losses lose it."""
    gained, lost, same = 14, 5, 30
    totals = np.array([1.0] * gained + [-1.0] * lost + [0.0] * same)
    expected, _ = quad(
        lambda u: 0.5 * (1 + u * abs(u)) ** gained * (1 - u * abs(u)) ** lost, -1, 1, epsabs=1e-12
    )
    found = counted_units(totals, np.ones(len(totals)), 1.0).log_capital(0.0)
    assert found == pytest.approx(np.log(expected), abs=1e-9)


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3), st.floats(-0.8, 0.8))
def test_the_expected_capital_never_grows_at_the_true_mean(gained, lost, same, mean):
    """One more unit whose mean is the hypothesis: the capital's expectation stays."""
    before = [1.0] * gained + [-1.0] * lost + [0.0] * same + [0.5]
    chance = (1 + mean) / 2

    def capital(*more: float) -> float:
        totals = np.array([*before, *more])
        return float(np.exp(counted_units(totals, np.ones(len(totals)), 1.0).log_capital(mean)))

    expected = chance * capital(1.0) + (1 - chance) * capital(-1.0)
    assert expected == pytest.approx(capital(), rel=1e-9)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_interval_and_p_value_agree_and_swapping_turns_the_sign(pairs):
    control, run = (single_pass([float(v) for v in column]) for column in zip(*pairs, strict=True))
    found, turned = compare_anytime(control, run), compare_anytime(run, control)
    assert (found.p_value < 0.05) == (found.interval.low > 0 or found.interval.high < 0)
    assert found.interval.low <= found.difference <= found.interval.high
    assert turned.interval.low == pytest.approx(-found.interval.high, abs=1e-6)
    assert turned.p_value == pytest.approx(found.p_value)
    assert found.p_value >= compare(control, run).p_value * 0.999


def test_the_interval_holds_the_true_difference_at_all_looks_together():
    rng, missed = np.random.default_rng(4), 0
    for _ in range(100):
        totals, sizes = changed(rng, 0.1)
        units = [counted_units(totals[:n], sizes[:n], 1.0) for n in LOOKS]
        missed += any(each.log_capital(0.1) >= NEEDED for each in units)
    assert missed <= 5


def test_missing_scores_count_at_their_worst():
    control = single_pass([0.0] * 40)
    run = single_pass([1.0] * 14 + [np.nan] * 16 + [0.0] * 10)
    assert compare_anytime(control, single_pass([1.0] * 14 + [0.0] * 26)).verdict == "better"
    held = compare_anytime(single_pass([1.0] * 14 + [0.0] * 26), run)
    assert held.verdict == "undecided"


def test_the_items_to_stop_are_where_the_test_rejects():
    totals = np.array(([1.0] * 3 + [-1.0] * 1 + [0.0] * 6) * 5)
    units = counted_units(totals, np.ones(50), 1.0)
    needed = items_to_stop(units)
    assert needed is not None
    assert units.log_capital(0.0, needed / 50) >= NEEDED - 1e-6
    assert units.log_capital(0.0, (needed - 2) / 50) < NEEDED
    even = counted_units(np.array([1.0, -1.0] * 20), np.ones(40), 1.0)
    assert items_to_stop(even) is None


def test_scores_of_another_scale_are_judged_in_their_own_width():
    """Ten times the scores and the scale: the same p-value, ten times the interval."""
    rng = np.random.default_rng(6)
    first, last = rng.uniform(0, 1, 80), rng.uniform(0.2, 1, 80)

    def scores(values: Array, scale: float) -> ItemScores:
        return ItemScores(item_ids(80), scale * values[:, None], None, (0.0, scale))

    plain = compare_anytime(scores(first, 1.0), scores(last, 1.0))
    wide = compare_anytime(scores(first, 10.0), scores(last, 10.0))
    assert wide.p_value == pytest.approx(plain.p_value)
    assert wide.interval.low == pytest.approx(10 * plain.interval.low, abs=1e-6)
    assert not wide.interval.share


def test_other_items_are_refused():
    with pytest.raises(ItemsDifferError):
        compare_anytime(single_pass([0.0, 1.0]), single_pass([0.0, 1.0, 1.0]))
