"""Choosing by harmonic scores: who is behind the best, and how much too good the best looks."""

import numpy as np
import pytest

from assay.judge.averages import harmonic_score
from assay.judge.scores import ItemScores, ItemsDifferError
from assay.judge.selection import choose_harmonic, expected_maximum, optimism_of, resampled
from tests.judge.simulated import single_pass

RATIOS = (0.3, 0.5)


def candidate(first: int, second: int, items: int = 200) -> list[ItemScores]:
    return [single_pass([1.0] * n + [0.0] * (items - n)) for n in (first, second)]


def noisy(rng: np.random.Generator, chances: list[float], items: int) -> list[ItemScores]:
    return [single_pass((rng.random(items) < p).astype(float)) for p in chances]


def test_resamplings_scatter_about_the_score_as_theory_says():
    """The delta method: the variance of a harmonic score from those of two shares."""
    parts = candidate(90, 120)
    drawn = resampled([parts], RATIOS)[:, 0]
    value = harmonic_score(parts, RATIOS)
    shares = np.array([0.45, 0.6])
    slope = (value / (shares / RATIOS)) ** 2 / 2 / np.array(RATIOS)
    expected = np.sqrt((slope**2 * shares * (1 - shares) / 200).sum())
    assert drawn.mean() == pytest.approx(value, abs=0.01)
    assert drawn.std() == pytest.approx(expected, rel=0.05)


def test_the_best_is_chosen_and_those_not_shown_to_be_worse_are_rivals():
    cells = {"a": candidate(100, 120), "close": candidate(98, 120), "far": candidate(60, 80)}
    found = choose_harmonic(cells, {}, 3, RATIOS)
    assert (found.candidate, found.rivals) == ("a", ("close",))
    far = found.standings["far"]
    expected = harmonic_score(cells["far"], RATIOS) - harmonic_score(cells["a"], RATIOS)
    assert far.difference == pytest.approx(expected)
    assert far.interval.low < far.difference < far.interval.high < 0
    assert found.comparison is None and not found.chosen


def test_the_same_items_are_drawn_for_all_so_that_equal_answers_never_differ():
    parts = candidate(100, 120)
    found = choose_harmonic({"a": parts, "same": parts}, {}, 2, RATIOS)
    standing = found.standings["same"]
    assert (standing.interval.low, standing.interval.high) == (0.0, 0.0)
    assert standing.adjusted_p == 1.0 and found.rivals == ("same",)


def test_a_benchmark_at_zero_is_zero_and_never_the_best():
    cells = {"zero": candidate(0, 200), "some": candidate(5, 5)}
    found = choose_harmonic(cells, {}, 2, RATIOS)
    assert found.candidate == "some"
    assert np.isfinite(resampled(list(cells.values()), RATIOS)).all()


def test_answers_without_a_score_count_as_failures():
    scores = np.array([[1.0]] * 10 + [[np.nan]] * 190)
    ids = candidate(1, 1)[0].item_ids
    few = [ItemScores(ids, scores), candidate(0, 100)[1]]
    found = choose_harmonic({"few": few, "half": candidate(100, 100)}, {}, 2, RATIOS)
    assert found.candidate == "half" and found.rivals == ()


def test_the_winner_must_beat_its_baseline_after_paying_for_every_look():
    cells, base = {"a": candidate(100, 120)}, candidate(91, 120)
    raw = choose_harmonic(cells, {"a": base}, 1, RATIOS)
    many = choose_harmonic(cells, {"a": base}, 100, RATIOS)
    assert raw.chosen and raw.comparison is not None
    assert not many.chosen and many.comparison is not None
    assert many.comparison.adjusted_p == pytest.approx(min(1.0, 100 * raw.comparison.p_value))


def test_optimism_is_what_the_best_of_equals_gains_by_luck():
    """Simulated: the best of 6 independent equals on dev, against its true score."""
    rng, gains, stated = np.random.default_rng(3), [], []
    true = harmonic_score(candidate(90, 120), RATIOS)
    for _ in range(12):
        cells = {str(i): noisy(rng, [0.45, 0.6], 200) for i in range(6)}
        found = choose_harmonic(cells, {}, 6, RATIOS)
        gains.append(harmonic_score(cells[found.candidate], RATIOS) - true)
        stated.append(found.optimism)
    assert np.mean(stated) == pytest.approx(np.mean(gains), rel=0.35)


def test_optimism_grows_with_earlier_looks_and_is_small_for_candidates_that_move_together():
    rng = np.random.default_rng(0)
    apart = rng.normal(size=(4000, 5))
    together = rng.normal(size=(4000, 1)) + 0.01 * rng.normal(size=(4000, 5))
    assert optimism_of(apart, 5) == pytest.approx(expected_maximum(5), rel=0.05)
    assert optimism_of(apart, 20) == pytest.approx(expected_maximum(20), rel=0.05)
    assert optimism_of(together, 5) < 0.05


def test_other_items_are_refused():
    with pytest.raises(ItemsDifferError):
        resampled([candidate(9, 9), candidate(9, 9, 150)], RATIOS)
