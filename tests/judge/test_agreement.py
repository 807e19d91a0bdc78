"""A verdict and the interval beside it never contradict each other; families keep promises."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from assay.judge.averages import compare_harmonic
from assay.judge.binomial import compare_counts
from assay.judge.families import adjust_family, corrections
from assay.judge.intervals import Interval
from assay.judge.paired import compare
from assay.judge.scores import ItemScores
from assay.judge.selection import promote
from assay.judge.significance import agreeing, leaves_out_zero
from assay.judge.verdict import ALPHA, Comparison, asked_non_inferior, with_margin
from tests.judge.simulated import item_ids, single_pass


def check(found: Comparison) -> None:
    """Better and worse leave out 0, undecided and equivalent hold it."""
    decided = found.adjusted_p < ALPHA
    assert leaves_out_zero(found.interval) == decided
    if decided:
        assert (found.interval.low > 0) == (found.difference > 0)
    if found.verdict in ("better", "worse"):
        assert decided
        assert found.worst_case is None or leaves_out_zero(found.worst_case.interval)


def scores(rng: np.random.Generator, kind: str, items: int, gain: float) -> ItemScores:
    """Answers of a run whose chance or mean is higher by `gain`."""
    ids, chance = item_ids(items), 0.4 + gain
    if kind == "counts":
        return single_pass((rng.random(items) < chance).astype(float))
    if kind == "repeats":
        return ItemScores(ids, (rng.random((items, 3)) < chance).astype(float))
    soft = np.clip(rng.normal(chance, 0.2, (items, 1)), 0, 1)
    sources = tuple(f"s{i % max(items // 3, 1)}" for i in range(items))
    return ItemScores(ids, soft, sources if kind == "clusters" else None)


KINDS = ["counts", "repeats", "soft", "clusters"]


@given(st.integers(0, 10**6), st.integers(2, 60), st.sampled_from(KINDS), st.floats(0, 0.5))
def test_no_verdict_is_denied_by_its_interval(seed, items, kind, gain):
    rng = np.random.default_rng(seed)
    check(compare(scores(rng, kind, items, 0.0), scores(rng, kind, items, gain)))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.integers(1, 6))
def test_no_verdict_of_a_family_or_of_many_looks_is_denied_by_its_interval(seed, kind, arms):
    rng = np.random.default_rng(seed)
    control = scores(rng, kind, 40, 0.0)
    others = {i: scores(rng, kind, 40, rng.uniform(0, 0.4)) for i in range(arms)}
    family = adjust_family({str(i): compare(control, other) for i, other in others.items()})
    for found in (*family.values(), *promote(control, others).looks.values()):
        check(found)


@given(st.integers(2, 80), st.integers(2, 80), st.data())
def test_no_verdict_of_two_binomials_is_denied_by_its_interval(before_items, after_items, data):
    before = data.draw(st.integers(0, before_items))
    after = data.draw(st.integers(0, after_items))
    check(compare_counts(before, before_items, after, after_items))


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 0.4))
def test_no_verdict_of_a_harmonic_mean_is_denied_by_its_interval(seed, gain):
    rng = np.random.default_rng(seed)
    parts = [[scores(rng, "counts", 20, g) for _ in range(2)] for g in (0.0, gain)]
    check(compare_harmonic(parts[0], parts[1], [0.4, 0.5]))


def test_where_test_and_interval_disagree_the_interval_moves_and_keeps_its_level():
    def normal(level: float) -> Interval:
        reach = float(stats.norm.ppf(0.5 + level / 2))
        return Interval(1.9 - reach, 1.9 + reach, "normal", level)

    rejected, kept = agreeing(normal, 0.049)(0.95), agreeing(normal, 0.9)(0.95)
    assert not leaves_out_zero(normal(0.95)) and leaves_out_zero(rejected)
    assert rejected.level == 0.95 and 0 < rejected.low < 0.1
    assert kept == normal(0.95)


def test_a_test_is_held_against_the_step_at_which_holm_made_it():
    found = corrections([0.04, 0.001, 0.02, 0.5])
    assert [c.divisor for c in found] == [3, 4, 3, 3]
    assert [c.divisor for c in corrections([0.001, 0.02, 0.03])] == [3, 2, 1]


def test_equivalent_is_two_one_sided_tests_at_five_percent():
    rng = np.random.default_rng(5)
    differences = rng.normal(0, 0.1, 100)
    differences += 0.003 - differences.mean()
    control = ItemScores(item_ids(100), np.full((100, 1), 0.5))
    other = ItemScores(item_ids(100), (0.5 + differences).clip(0, 1)[:, None])
    found = compare(control, other)
    mean, error = differences.mean(), stats.sem(differences)
    sides = [stats.t.sf((mean + m) / error, 99) for m in (0.015, 0.035)]
    upper = [stats.t.cdf((mean - m) / error, 99) for m in (0.015, 0.035)]
    for margin, low, high in zip((0.015, 0.035), sides, upper, strict=True):
        expected = "equivalent" if max(low, high) < 0.05 else "undecided"
        assert with_margin(found, margin).verdict == expected
    assert with_margin(found, 0.035).verdict == "equivalent"


def test_non_inferiority_is_one_sided_and_counts_missing_scores_against_the_run():
    ids, rng = item_ids(400), np.random.default_rng(7)
    table = rng.integers(0, 2, (400, 1)).astype(float)
    same = compare(ItemScores(ids, table), ItemScores(ids, table))
    asked = asked_non_inferior(same, 0.02).non_inferiority
    assert asked is not None and asked.shown
    assert asked.bound == same.interval_at(0.9).low > same.interval.low
    strict = asked_non_inferior(same, 0.001).non_inferiority
    assert strict is not None and not strict.shown
    gone = table.copy()
    gone[np.flatnonzero(table[:, 0])[:20]] = np.nan
    missing = compare(ItemScores(ids, table), ItemScores(ids, gone))
    assert missing.difference == 0
    asked = asked_non_inferior(missing, 0.02).non_inferiority
    assert asked is not None and not asked.shown and asked.bound < -0.05
