"""What answers without a score may do to a verdict: nothing in its favour."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.paired import compare, with_missing_at
from assay.judge.scores import ItemScores
from assay.judge.selection import promote
from tests.few import few
from tests.judge.simulated import item_ids, judge_family, single_pass, without_plans

RUNS = 80


def equal_arms(
    rng: np.random.Generator, items: int, repeats: int, unscored: float
) -> tuple[ItemScores, ItemScores]:
    """Two runs of one chance, of which the second leaves a share of its answers unscored, all of
    them failures."""
    first, second = (rng.random((2, items, repeats)) < 0.5).astype(float)
    failures = np.argwhere(second == 0)
    gone = rng.permutation(failures)[: round(unscored * second.size)]
    second[tuple(gone.T)] = np.nan
    ids = item_ids(items)
    return ItemScores(ids, first), ItemScores(ids, second)


@few(
    "unscored, repeats, items",
    [(0.04, 1, 400), (0.14, 3, 100), (0.04, 3, 100), (0.14, 1, 400)],
    fast=1,
)
def test_a_run_that_leaves_failures_unscored_is_not_called_better(unscored, repeats, items):
    rng = np.random.default_rng(17)
    pairs = [equal_arms(rng, items, repeats, unscored) for _ in range(RUNS)]
    with without_plans():
        found = [compare(control, other) for control, other in pairs]
    naive = np.mean([c.p_value < 0.05 and c.difference > 0 for c in found])
    assert naive > (0.3 if unscored > 0.1 else 0.03), "scores alone would call it better"
    # The nominal 2.5 % of two equal runs, as far as so few pairs can tell.
    assert np.mean([c.verdict == "better" for c in found]) <= 0.045


def test_no_pattern_of_missing_scores_can_make_a_verdict_that_the_full_scores_refute():
    """All ways to fill are tried: none is less significant than the worst case."""
    rng = np.random.default_rng(3)
    for _ in range(6):
        tables = [rng.integers(0, 2, (12, 1)).astype(float) for _ in range(2)]
        for table in tables:
            table[rng.permutation(12)[:2]] = np.nan
        control, other = (ItemScores(item_ids(12), table) for table in tables)
        found = compare(control, other)
        worst = found.worst_case
        assert worst is not None
        for values in product((0.0, 1.0), repeat=4):
            whole = []
            for run, chosen in ((control, values[:2]), (other, values[2:])):
                table = run.scores.copy()
                table[np.isnan(table)] = chosen
                whole.append(ItemScores(run.item_ids, table))
            case = compare(*whole)
            sign = -1 if found.difference < 0 else 1
            assert sign * case.difference >= sign * worst.difference
            if sign * worst.difference > 0:
                assert case.p_value <= worst.p_value


@given(st.integers(0, 10_000), st.sampled_from([1, 3]), st.floats(-1, 0), st.floats(1, 2))
def test_the_worst_case_is_that_of_scores_filled_by_hand(seed, repeats, low, high):
    rng = np.random.default_rng(seed)
    tables = rng.uniform(low, high, (2, 15, repeats))
    tables[rng.random(tables.shape) < 0.1] = np.nan
    control, other = (ItemScores(item_ids(15), t, bounds=(low, high)) for t in tables)
    found = compare(control, other)
    if found.lowest is None or found.highest is None:
        assert control.missing + other.missing == 0
        return
    by_hand = [
        compare(with_missing_at(control, high), with_missing_at(other, low)),
        compare(with_missing_at(control, low), with_missing_at(other, high)),
    ]
    for filled, whole in zip((found.lowest, found.highest), by_hand, strict=True):
        assert filled.difference == whole.difference
        assert filled.interval == whole.interval
        assert (filled.p_value, filled.score) == (whole.p_value, whole.score)
        assert whole.lowest is None
    assert found.worst_case is (found.highest if found.difference < 0 else found.lowest)


GAPS = [1.0] * 40 + [np.nan] * 60
"""All that was scored is right."""
HALF = [1.0, 0.0] * 50
GOOD = [1.0] * 90 + [0.0] * 10


def test_a_family_is_corrected_in_the_worst_case_as_well():
    half = single_pass(HALF)
    found = judge_family(half, {"gaps": single_pass(GAPS), "good": single_pass(GOOD)})
    assert (found["gaps"].verdict, found["good"].verdict) == ("undecided", "better")
    assert found["gaps"].adjusted_p < 0.05
    nearly = [1.0] * 61 + [0.0] * 38 + [np.nan]
    control = single_pass([1.0] * 50 + [0.0] * 50)
    alone = judge_family(control, {"a": single_pass(nearly)})["a"]
    many = {f"null{i}": control for i in range(40)}
    among = judge_family(control, {"a": single_pass(nearly), **many})["a"]
    assert alone.worst_case is not None and among.worst_case is not None
    assert among.worst_case.adjusted_p == pytest.approx(41 * alone.worst_case.p_value)
    assert among.worst_case.interval.level == pytest.approx(1 - 0.05 / 41)


def test_a_checkpoint_is_not_promoted_by_what_it_has_no_score_for():
    start = single_pass(HALF)
    assert promote(start, {5: single_pass(GAPS)}).step is None
    promotion = promote(start, {5: single_pass(GAPS), 10: single_pass(GOOD)})
    assert (promotion.step, promotion.favourite) == (10, 10)
    # Two that are better in any case: the one whose failures are scored is not passed over.
    silent = [1.0] * 85 + [np.nan] * 15
    assert promote(start, {5: single_pass(silent), 10: single_pass(GOOD)}).step == 10
