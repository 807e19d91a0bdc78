"""Changes of shares: running counts are compared with what is new, clusters are exchanged."""

import itertools

import numpy as np
import pytest

from assay.judge.binomial import (
    Counts,
    Trials,
    change_of_counts,
    change_of_trials,
    compare_counts,
    exchange_test,
    new_counts,
)


def test_running_counts_leave_new_trials_unless_one_fell():
    assert new_counts(Counts(43, 44), Counts(64, 64)) is None
    assert new_counts(Counts(2, 44), Counts(1, 64)) is None
    assert new_counts(Counts(2, 44), Counts(4, 64)) == Counts(2, 20)
    found, expected = change_of_counts(Counts(2, 44), Counts(2, 20)), compare_counts(2, 44, 2, 20)
    assert found.interval == expected.interval and found.direction == "none"
    assert found.detectable == expected.minimum_detectable_difference


def test_a_large_change_of_counts_is_found_and_a_family_makes_it_harder():
    before, after = Counts(2, 44), Counts(8, 44)
    assert change_of_counts(before, after).direction == "rise"
    assert change_of_counts(before, after, family=20).direction == "none"
    assert change_of_counts(after, before).direction == "fall"


def trials(values: np.ndarray, name: str) -> Trials:
    """C x T values, a row being a cluster."""
    clusters = [f"{name}{i}" for i in range(len(values)) for _ in range(values.shape[1])]
    return Trials([float(v) for v in values.ravel()], clusters)


def test_the_exchange_test_is_that_of_all_choices_of_clusters():
    draw = np.random.default_rng(11)
    before, after = draw.random((3, 2)), draw.random((4, 2)) + 0.4
    means = np.concatenate([before, after]).mean(1)
    every = [set(each) for each in itertools.combinations(range(7), 3)]

    def difference(first: set[int]) -> float:
        rest = [m for i, m in enumerate(means) if i not in first]
        return abs(float(np.mean(rest) - np.mean([means[i] for i in first])))

    seen = difference({0, 1, 2})
    exact = np.mean([difference(first) >= seen - 1e-12 for first in every])
    assert 0.02 < exact < 0.3
    assert exchange_test(trials(before, "a"), trials(after, "b")) == pytest.approx(exact, abs=0.02)


def test_rare_things_that_rise_are_found_and_noise_is_not():
    draw = np.random.default_rng(3)
    wrong = found = 0
    for _ in range(200):
        before, same, more = (draw.random((16, 5)) < share for share in (0.05, 0.05, 0.3))
        wrong += change_of_trials(trials(before, "a"), trials(same, "b")).direction != "none"
        found += change_of_trials(trials(before, "a"), trials(more, "b")).direction == "rise"
    assert wrong <= 18
    assert found >= 180
