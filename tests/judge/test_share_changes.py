"""Changes of shares: running counts are compared with what is new, clusters are exchanged."""

import itertools

import numpy as np
import pytest

from assay.judge.binomial import compare_counts
from assay.judge.share_changes import (
    Counts,
    Trials,
    change_of_counts,
    change_of_trials,
    exchange_test,
    new_counts,
)

REPORT_003 = {
    "format": ((43, 44), (64, 64)),
    "eval errors": ((2, 44), (2, 64)),
    "API errors": ((2, 44), (4, 64)),
    "fallback": ((0, 44), (0, 64)),
}
"""The counts of steps 3 and 5, which run from the first step."""


@pytest.mark.parametrize("name", REPORT_003)
def test_the_counts_of_report_003_show_no_change(name):
    before, after = (Counts(*each) for each in REPORT_003[name])
    found = change_of_counts(before, after, cumulative=True)
    assert found.direction == "none"
    assert found.detectable is not None and found.detectable > 0.1
    assert found.interval is not None and found.interval.low < 0 < found.interval.high


def test_running_counts_are_compared_with_their_new_trials_alone():
    found = change_of_counts(Counts(2, 44), Counts(4, 64), cumulative=True)
    assert found.after is not None and (found.after.value, found.after.trials) == (0.1, 20)
    expected = compare_counts(2, 44, 2, 20)
    assert found.interval == expected.interval
    assert found.detectable == expected.minimum_detectable_difference


def test_trials_that_are_shared_would_hide_what_is_new():
    before, after = Counts(50, 100), Counts(60, 140)
    assert change_of_counts(before, after).direction == "none"
    assert change_of_counts(before, after, cumulative=True).direction == "fall"


def test_a_running_count_that_cannot_be_one_is_said_and_compared_as_it_stands():
    assert new_counts(Counts(43, 44), Counts(64, 64)) is None
    assert new_counts(Counts(2, 44), Counts(1, 64)) is None
    assert new_counts(Counts(2, 44), Counts(4, 64)) == Counts(2, 20)
    found = change_of_counts(Counts(43, 44), Counts(64, 64), cumulative=True)
    assert found.inconsistent and found.after is not None and found.after.trials == 64
    assert not change_of_counts(Counts(2, 44), Counts(4, 64), cumulative=True).inconsistent


def test_a_large_change_of_counts_is_found_and_a_family_makes_it_harder():
    before, after = Counts(2, 44), Counts(8, 44)
    assert change_of_counts(before, after).direction == "rise"
    assert change_of_counts(before, after, family=20).direction == "none"
    assert change_of_counts(after, before).direction == "fall"


def test_without_trials_at_one_time_nothing_is_compared():
    found = change_of_counts(Counts(0, 0), Counts(3, 9))
    assert found.before is None and not found.tested and found.direction == "none"
    assert not change_of_trials(Trials([], []), Trials([1.0], ["a"])).tested


def trials(values: np.ndarray, name: str) -> Trials:
    """C x T values, a row being a cluster."""
    clusters = [f"{name}{i}" for i in range(len(values)) for _ in range(values.shape[1])]
    return Trials([float(v) for v in values.ravel()], clusters)


def test_exchanging_three_clusters_with_three_has_the_p_value_that_counting_gives():
    found = exchange_test(trials(np.zeros((3, 2)), "a"), trials(np.ones((3, 2)), "b"))
    assert found == pytest.approx(2 / 20, abs=0.01)


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


def test_clusters_that_agree_are_one_trial_each():
    """Four prompts whose samples all agree are four trials, however many samples they have."""
    before, after = np.zeros((4, 50)), np.vstack([np.ones((2, 50)), np.zeros((2, 50))])
    assert change_of_trials(trials(before, "a"), trials(after, "b")).direction == "none"
    spread = np.tile(np.eye(2)[np.zeros(25, int)].ravel(), (4, 1))
    assert change_of_trials(trials(before, "a"), trials(spread, "b")).direction != "none"


def test_rare_things_that_rise_are_found_and_noise_is_not():
    draw = np.random.default_rng(3)
    wrong = found = 0
    for _ in range(200):
        before, same, more = (draw.random((16, 5)) < share for share in (0.05, 0.05, 0.3))
        wrong += change_of_trials(trials(before, "a"), trials(same, "b")).direction != "none"
        found += change_of_trials(trials(before, "a"), trials(more, "b")).direction == "rise"
    assert wrong <= 18
    assert found >= 180


def test_what_no_possible_change_could_show_has_no_detectable_size():
    one = Trials([0.0, 1.0], ["a", "b"])
    assert change_of_trials(one, Trials([1.0, 0.0], ["c", "d"])).detectable is None
