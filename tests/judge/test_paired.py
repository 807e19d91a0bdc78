"""Comparing two runs: the figures, the refusals, the symmetries, and the error rate of verdicts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.judge.intervals import tango
from assay.judge.paired import compare
from assay.judge.scores import ItemScores
from assay.judge.significance import mid_p_mcnemar
from tests.english import explain
from tests.judge.simulated import PAIRS, item_ids, judge_family, single_pass, without_plans

FIGURES = ("p_value", "minimum_detectable_difference", "items_needed", "unchanged", "items")


def test_single_pass_items_are_compared_by_mcnemar_and_tango():
    control = single_pass([1] * 16 + [0] * 6 + [1] * 59 + [0] * 80)
    other = single_pass([0] * 16 + [1] * 6 + [1] * 59 + [0] * 80)
    comparison = compare(control, other)
    assert comparison.interval == tango(6, 16, 161)
    assert comparison.p_value == pytest.approx(float(mid_p_mcnemar(6, 16)))
    assert comparison.adjusted_p == comparison.p_value
    assert (comparison.gained, comparison.lost, comparison.unchanged) == (6, 16, 139)
    assert comparison.difference == pytest.approx(-10 / 161)
    assert (comparison.control_score, comparison.score) == (75 / 161, 65 / 161)
    assert comparison.verdict == "worse"
    assert comparison.method == "mid-p McNemar, Tango interval"


def test_different_items_are_refused_and_one_is_named():
    one = ItemScores(("a", "b"), np.ones((2, 1)))
    other = ItemScores(("b", "c", "d"), np.ones((3, 1)))
    with pytest.raises(InputError, match=r"1 only in the control, 2 only in the other, 'a'"):
        compare(one, other)


def test_different_scales_and_different_clusters_are_refused():
    ids, scores = item_ids(2), np.ones((2, 1))
    plain = ItemScores(ids, scores)
    with pytest.raises(InputError, match="run over"):
        compare(plain, ItemScores(ids, scores, bounds=(-1.0, 1.0)))
    with pytest.raises(InputError, match="clusters"):
        compare(plain, ItemScores(ids, scores, ("s", "s")))
    with pytest.raises(InputError, match="clusters"):
        compare(ItemScores(ids, scores, ("s", "t")), ItemScores(ids, scores, ("s", "s")))


def test_items_without_a_score_in_one_run_are_left_out_and_counted():
    nan = np.nan
    control = single_pass([1, 0, nan, 1])
    other = single_pass([1, 1, 1, nan])
    comparison = compare(control, other)
    assert (comparison.items, comparison.unscored) == (2, 2)
    assert comparison.difference == 0.5
    with pytest.raises(InputError, match="both runs"):
        compare(single_pass([nan, 1]), single_pass([1, nan]))


def test_means_that_cancel_are_no_difference_whatever_rounding_leaves():
    passes = np.array([[1, 0, 0]] * 10 + [[1, 1, 0]] * 5 + [[0, 0, 0]] * 5, dtype=float)
    other = np.concatenate([passes[10:], passes[:10]])
    control, other = (ItemScores(item_ids(20), table) for table in (passes, other[::-1]))
    assert (other.item_means - control.item_means).mean() != 0, "rounding leaves something"
    comparison = compare(control, other)
    assert comparison.difference == 0 and comparison.items_needed is None


@given(st.integers(0, 10_000), st.sampled_from([1, 2]), st.booleans(), st.booleans())
def test_swapping_runs_mirrors_and_shuffling_items_changes_nothing(seed, repeats, grouped, gaps):
    rng = np.random.default_rng(seed)
    ids = item_ids(24)
    sources = tuple(f"s{i % 9}" for i in range(24)) if grouped else None
    tables = (rng.random((2, 24, repeats)) < 0.5).astype(float)
    if gaps:
        tables[rng.random(tables.shape) < 0.1] = np.nan
    control, other = (ItemScores(ids, table, sources) for table in tables)
    forth, back = compare(control, other), compare(other, control)
    assert back.difference == -forth.difference
    assert (back.interval.low, back.interval.high) == pytest.approx(
        (-forth.interval.high, -forth.interval.low), abs=1e-9
    )
    assert (back.gained, back.lost) == (forth.lost, forth.gained)
    for figure in FIGURES:
        assert getattr(back, figure) == pytest.approx(getattr(forth, figure), abs=1e-9)
    order = rng.permutation(24)
    shuffled = ItemScores(
        tuple(ids[i] for i in order),
        tables[1][order],
        None if sources is None else tuple(sources[i] for i in order),
    )
    assert compare(control, shuffled) == forth


def test_no_verdict_reads_the_plan():
    """Which is what lets simulations leave plans out."""
    rng = np.random.default_rng(6)
    for gain in (0.0, 0.1, 0.3):
        base, a, b = (
            single_pass((rng.random(80) < 0.4 + g).astype(float)) for g in (0.0, gain, gain)
        )
        planned = compare(base, a), judge_family(base, {"a": a, "b": b})
        with without_plans():
            bare = compare(base, a), judge_family(base, {"a": a, "b": b})
        assert planned[0].minimum_detectable_difference and bare[0].items_needed is None
        for one, other in ((planned[0], bare[0]), *((planned[1][n], bare[1][n]) for n in "ab")):
            assert (one.verdict, one.adjusted_p, one.interval) == (
                other.verdict,
                other.adjusted_p,
                other.interval,
            )


@pytest.mark.parametrize("chance", [0.1, pytest.param(0.5, marks=pytest.mark.slow)])
def test_at_most_7_percent_of_null_pairs_get_a_false_verdict(chance):
    rng = np.random.default_rng(11)
    tables = (rng.random((2, PAIRS // 4, 100, 1)) < chance).astype(float)
    ids = item_ids(100)
    with without_plans():
        verdicts = [
            compare(ItemScores(ids, control), ItemScores(ids, other)).verdict
            for control, other in zip(*tables, strict=True)
        ]
    assert sum(v in ("better", "worse") for v in verdicts) / len(verdicts) <= 0.07


def test_a_run_asked_a_part_of_the_items_is_compared_on_that_part_alone():
    whole = single_pass([1, 0, 1, 1, 0, 1])
    part = ItemScores(("item-0004", "item-0001"), np.array([[1.0], [0.0]]), part=True)
    expected = ItemScores(("item-0001", "item-0004"), np.array([[0.0], [0.0]]))
    for control, other, bare in ((part, whole, (part, expected)), (whole, part, (expected, part))):
        found, on_two = compare(control, other), compare(*bare)
        assert (found.items, found.control_only, on_two.control_only) == (2, 4, 0)
        assert (found.p_value, found.interval) == (on_two.p_value, on_two.interval)
        assert (found.control_score, found.score) == (on_two.control_score, on_two.score)
        assert found.unscored == 0, "an item that was not asked misses no score"
    assert "on the 2 items that both were asked; 4 more were asked of one alone" in explain(
        compare(part, whole)
    )


def test_a_part_with_items_of_its_own_is_refused():
    part = ItemScores(("a", "z"), np.ones((2, 1)), part=True)
    whole = ItemScores(("a", "b", "c"), np.ones((3, 1)))
    with pytest.raises(InputError, match="of 2 items that were drawn, the runs share 1"):
        compare(part, whole)
