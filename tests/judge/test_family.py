"""Families of comparisons, scores without items, many looks, several benchmarks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportions_ztest

from assay.errors import InputError
from assay.judge.binomial import compare_counts, newcombe, score_test
from assay.judge.families import adjust_family, holm, tally
from assay.judge.intervals import tango
from assay.judge.selection import expected_maximum, expected_optimism
from assay.judge.verdict import not_comparable
from tests.judge.simulated import PAIRS, judge_family, single_pass


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_agrees_with_statsmodels(p_values):
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_a_family_takes_back_what_only_one_of_many_looks_showed():
    control = single_pass([0] * 100)
    promising = single_pass([1] * 6 + [0] * 94)
    alone = judge_family(control, {"a": promising})
    assert alone["a"].verdict == "better"
    family = judge_family(control, {"a": promising, **{f"null{i}": control for i in range(3)}})
    assert family["a"].verdict == "undecided"
    assert family["a"].adjusted_p == pytest.approx(4 * family["a"].p_value)
    # Tested first of four: the interval is of the level of that step, and holds 0 like the verdict.
    assert family["a"].interval == tango(6, 0, 100, 1 - 0.05 / 4)
    assert family["a"].interval.low < 0 < alone["a"].interval.low


def test_runs_that_are_not_comparable_are_no_part_of_the_family():
    control = single_pass([0] * 100)
    fair = judge_family(control, {"a": single_pass([1] * 6 + [0] * 94), "b": control})
    fair["b"] = not_comparable(fair["b"], ["data.train.row_ids_sha256"])
    judged = adjust_family(fair)
    assert judged["a"].verdict == "better"
    assert judged["a"].adjusted_p == judged["a"].p_value
    assert judged["b"].verdict == "not comparable"


@given(st.integers(1, 300), st.integers(1, 300), st.data())
def test_two_binomials_agree_with_statsmodels(before_items, after_items, data):
    before = data.draw(st.integers(0, before_items))
    after = data.draw(st.integers(0, after_items))
    interval = newcombe(before, before_items, after, after_items)
    expected = confint_proportions_2indep(
        after, after_items, before, before_items, method="newcomb", compare="diff"
    )
    assert (interval.low, interval.high) == pytest.approx(expected, abs=1e-9)
    if 0 < before + after < before_items + after_items:
        _, p_value = proportions_ztest([after, before], [after_items, before_items])
        assert score_test(before, before_items, after, after_items) == pytest.approx(p_value)


@pytest.mark.parametrize("counts", [(57.5, 50, 1, 50), (1, 0, 1, 50), (1, 50, -1, 50)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(InputError, match="successes of"):
        compare_counts(*counts)


def test_the_optimism_of_the_best_of_18_on_200_items_is_4_8_points():
    # Items that most checkpoints get right or most get wrong: chances spread as Beta(.6, .6).
    rng = np.random.default_rng(3)
    chances = rng.beta(0.6, 0.6, size=(PAIRS, 200))
    best = rng.random((18, PAIRS, 200))
    observed = ((best < chances).mean(2) - chances.mean(1)).max(0).mean()
    variance = 0.25 * (1 - 1 / (2 * 0.6 + 1))
    assert expected_optimism(18, 200, variance) == pytest.approx(0.048, abs=0.001)
    assert observed == pytest.approx(expected_optimism(18, 200, variance), abs=0.001)


@pytest.mark.parametrize(
    # Tables of normal order statistics (Harter 1961).
    ("looks", "expected"),
    [(1, 0.0), (2, 0.56419), (5, 1.16296), (10, 1.53875), (18, 1.82003), (20, 1.86748)],
)
def test_the_expected_maximum_is_that_of_the_tables(looks, expected):
    assert expected_maximum(looks) == pytest.approx(expected, abs=1e-5)


def test_signs_and_verdicts_are_counted_out_of_what_was_compared():
    control = single_pass([1.0] * 30 + [0.0] * 70)
    others = {
        "up": single_pass([1.0] * 60 + [0.0] * 40),
        "little up": single_pass([1.0] * 31 + [0.0] * 69),
        "down": single_pass([0.0] * 100),
        "same": control,
    }
    found = judge_family(control, others)
    found["unfair"] = not_comparable(found["up"], ["model"])
    counts = tally(found, 7, 2, dict.fromkeys(found, frozenset("abc")))
    assert (counts.run, counts.missing, counts.compared) == (7, 2, 4)
    assert (counts.improved, counts.declined, counts.unchanged) == (2, 1, 1)
    assert (counts.better, counts.worse, counts.not_comparable) == (1, 1, 1)
    assert counts.undecided + counts.equivalent == 2
    assert (counts.largest_gain, counts.largest_loss) == ("up", "down")
    assert counts.groups == 1
