"""Subsets against the rest: the distances by hand, and as many false alarms as were asked for."""

from collections import Counter

import numpy as np
import pytest

from assay.judge.subset import SUBSETS, names_unlike, values_unlike


def test_the_distance_of_values_is_the_largest_gap_of_the_two_distributions() -> None:
    assert values_unlike([1, 2, 3], [1, 2, 3]).distance == 0
    assert values_unlike([1, 2], [3, 4, 5]).distance == 1
    # Up to 2 lie all of the first and two of four of the second.
    assert values_unlike([1, 2], [1, 2, 3, 4]).distance == pytest.approx(0.5)


def test_the_distance_of_names_is_half_the_sum_of_the_differences_of_shares() -> None:
    units = [{"a": 1}, {"a": 1, "b": 2}, {"b": 1}, {"c": 3}]
    # a 2/4, b 2/4 against b 1/4, c 3/4.
    assert names_unlike(units, 2).distance == pytest.approx((0.5 + 0.25 + 0.75) / 2)
    assert names_unlike([{"a": 1}, {}, {"a": 1}, {}], 2).distance == 0


def test_a_sorted_source_is_as_far_as_no_random_subset() -> None:
    units = [{"early": 1}] * 40 + [{"late": 1}] * 60
    found = names_unlike(units, 40)
    assert found.distance == 1 and found.p_value == 1 / (SUBSETS + 1)
    assert values_unlike(range(40), range(40, 100)).p_value < 1e-6


def test_a_random_subset_is_called_unlike_no_more_often_than_by_chance() -> None:
    generator = np.random.default_rng(3)
    p_values = []
    for _ in range(60):
        names = generator.choice(list("abcdefgh"), size=(80, 3), p=np.arange(8, 0, -1) / 36)
        p_values.append(names_unlike([Counter(unit.tolist()) for unit in names], 20).p_value)
    # 60 uniform values: 12 below 0.2 are expected, with a deviation of 3.1.
    assert 3 <= sum(p < 0.2 for p in p_values) <= 22
    assert 0.3 < float(np.mean(p_values)) < 0.7
