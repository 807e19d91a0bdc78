"""Arms of several seeds: the seed is a level of its own."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from assay.errors import InputError
from assay.judge.arms import as_repeats, compare_arms
from assay.judge.scores import Array, ItemScores
from assay.judge.verdict import Comparison
from tests.few import few
from tests.judge.simulated import item_ids, single_pass

ITEMS = 150
Judge = Callable[[Sequence[ItemScores], Sequence[ItemScores]], Comparison]


def arm(rng: np.random.Generator, chances: Array, seeds: int, seed_spread: float, lift: float = 0):
    """Runs of one method: every seed moves the chance of all items alike."""
    shifts = rng.normal(lift, seed_spread, seeds)
    runs = [rng.random(ITEMS) < np.clip(chances + shift, 0, 1) for shift in shifts]
    return [single_pass(np.asarray(run, float)) for run in runs]


def false_verdicts(seed_spread: float, seeds: int, judge: Judge, pairs: int = 250) -> float:
    """Share of null pairs of arms that are called different."""
    rng = np.random.default_rng(5)
    count = 0
    for _ in range(pairs):
        chances = rng.uniform(0.2, 0.8, ITEMS)
        control, other = (arm(rng, chances, seeds, seed_spread) for _ in range(2))
        count += judge(control, other).p_value < 0.05
    return count / pairs


@few("seeds, seed_spread", [(2, 0.1), (3, 0.03), (2, 0.0), (5, 0.1)], fast=1)
def test_methods_that_are_equal_are_called_different_in_few_pairs(seeds, seed_spread):
    assert false_verdicts(seed_spread, seeds, compare_arms) <= 0.07


def test_a_difference_beyond_seeds_and_items_is_found():
    rng = np.random.default_rng(6)
    chances = rng.uniform(0.2, 0.6, ITEMS)
    comparison = compare_arms(arm(rng, chances, 4, 0.02), arm(rng, chances, 4, 0.02, lift=0.25))
    assert comparison.verdict == "better"
    assert comparison.interval.low < 0.25 < comparison.interval.high


def test_with_wild_seeds_and_quiet_items_it_is_welchs_test_on_the_seeds():
    control = [single_pass([1.0] * k + [0.0] * (ITEMS - k)) for k in (20, 75, 130)]
    other = [single_pass([1.0] * k + [0.0] * (ITEMS - k)) for k in (40, 90, 149)]
    means = [[run.mean for run in runs] for runs in (other, control)]
    expected = stats.ttest_ind(*means, equal_var=False)
    assert compare_arms(control, other).p_value == pytest.approx(expected[1], abs=0.02)


def test_equal_runs_keep_an_interval():
    runs = [single_pass([1.0] * 60)] * 2
    comparison = compare_arms(runs, runs)
    assert comparison.verdict == "undecided"
    assert comparison.interval.low < -0.03 < 0.03 < comparison.interval.high


def test_one_seed_and_other_items_are_refused():
    run = single_pass([1.0, 0.0])
    with pytest.raises(InputError, match="two seeds"):
        compare_arms([run], [run, run])
    with pytest.raises(InputError):
        compare_arms([run, run], [run, single_pass([1.0, 0.0, 1.0])])


def test_items_are_matched_by_id_and_items_without_a_score_left_out():
    control = [single_pass([1.0, 0.0, 1.0, np.nan])] * 2
    other = [ItemScores(item_ids(4)[::-1], np.array([[1.0], [1.0], [0.0], [1.0]]))] * 2
    comparison = compare_arms(control, other)
    assert (comparison.items, comparison.unscored, comparison.difference) == (3, 1, 0.0)


def test_methods_of_which_one_was_asked_a_part_are_compared_on_that_part():
    rng = np.random.default_rng(4)
    control, other = (arm(rng, np.full(ITEMS, 0.5), 2, 0.02) for _ in range(2))
    kept = item_ids(ITEMS)[::3]
    some = [ItemScores(kept, run.scores[::3], part=True) for run in control]
    bare = [ItemScores(kept, run.scores[::3]) for run in (*control, *other)]
    found, expected = compare_arms(some, other), compare_arms(bare[:2], bare[2:])
    assert (found.items, found.control_only) == (len(kept), ITEMS - len(kept))
    assert (found.p_value, found.interval) == (expected.p_value, expected.interval)
    assert as_repeats(some).part, "seeds as repeats are a part as well"
    assert not as_repeats(control).part
