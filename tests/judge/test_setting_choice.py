"""Choosing among many looks: the winner must beat its baseline after paying for every look."""

import numpy as np
import pytest

from assay.judge.averages import harmonic_score
from assay.judge.paired import compare
from assay.judge.scores import ItemScores
from assay.judge.selection import choose
from tests.judge.simulated import single_pass

BASE = [single_pass([0.0] * 100)]
BETTER = [single_pass([1.0] * 7 + [0.0] * 93)]
RATIOS = (0.3, 0.5)


def candidate(first: int, second: int, items: int = 200) -> list[ItemScores]:
    return [single_pass([1.0] * n + [0.0] * (items - n)) for n in (first, second)]


def test_the_same_evidence_is_enough_for_one_look_and_not_for_twenty():
    cells = {"a": BETTER, "b": BASE}
    one = choose(cells, dict.fromkeys(cells, BASE), 1)
    many = choose(cells, dict.fromkeys(cells, BASE), 20)
    assert one.candidate == many.candidate == "a"
    assert one.chosen and not many.chosen
    assert one.comparison is not None and many.comparison is not None
    raw = compare(BASE[0], BETTER[0]).p_value
    assert one.comparison.adjusted_p == raw
    assert many.comparison.adjusted_p == pytest.approx(20 * raw)
    assert many.comparison.verdict == "undecided"


def test_a_baseline_that_scores_best_is_never_recommended():
    found = choose({"plain": BETTER, "other": BASE}, {"plain": None, "other": BETTER}, 1)
    assert found.candidate == "plain" and found.comparison is None and not found.chosen


def test_rivals_are_those_not_shown_to_be_worse():
    cells = {"a": [single_pass([1.0] * 50 + [0.0] * 50)]}
    cells |= {"close": [single_pass([1.0] * 48 + [0.0] * 52)], "far": [single_pass([0.0] * 100)]}
    assert choose(cells, dict.fromkeys(cells, BASE), 3).rivals == ("close",)


def test_optimism_is_what_the_best_of_equals_gains_by_luck_at_most():
    """Simulated: the best of 6 independent equals on dev, against its true score."""
    rng, gains, stated = np.random.default_rng(3), [], []
    true = harmonic_score(candidate(90, 120), RATIOS)
    for _ in range(12):
        cells = {
            str(i): [single_pass((rng.random(200) < p).astype(float)) for p in (0.45, 0.6)]
            for i in range(6)
        }
        found = choose(cells, {}, 6, RATIOS)
        gains.append(harmonic_score(cells[found.candidate], RATIOS) - true)
        stated.append(found.optimism)
    assert np.mean(stated) == pytest.approx(np.mean(gains), rel=0.35)
