"""mean@n and pass@k against brute force, other people's formula and closed forms."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.arms import counts_up_to, pass_at_k, sampled_scores
from assay.judge.scores import ItemScores

NAN = float("nan")


def sampled(scores: list[list[float]]) -> ItemScores:
    return ItemScores(tuple(f"item{n}" for n in range(len(scores))), np.array(scores))


def humaneval(n: int, c: int, k: int) -> float:
    """`estimate_pass_at_k` as published with HumanEval (Chen et al. 2021, figure 3)."""
    if n - c < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_subsets_that_hold_a_right_one(n):
    for right, k in product(range(n + 1), range(1, n + 1)):
        marks = [1] * right + [0] * (n - right)
        share = np.mean([max(subset) for subset in combinations(marks, k)])
        assert pass_at_k(n, right, k) == pytest.approx(share, abs=1e-12)
        assert pass_at_k(n, right, k) == pytest.approx(humaneval(n, right, k), abs=1e-12)


TABLES = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n), min_size=2, max_size=6)
)


@given(TABLES)
def test_one_completion_is_the_mean_and_more_pass_more_often(scores):
    found = sampled_scores([sampled(scores)])
    mean, n = np.mean(scores), len(scores[0])
    assert [each.k for each in found.passes] == counts_up_to(n)
    assert found.mean.k == n and found.mean.value == pytest.approx(mean)
    assert found.passes[0].value == pytest.approx(mean)
    values = [each.value for each in found.passes]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(np.mean([max(row) for row in scores]))
    for each in (found.mean, *found.passes):
        assert each.interval.low <= each.value + 1e-12
        assert each.value <= each.interval.high + 1e-12
        assert each.possible == pytest.approx((each.value, each.value))


def test_an_unscored_completion_counts_neither_as_wrong_nor_as_right():
    found = sampled_scores([sampled([[1, NAN], [0, 0]])])
    at_1, at_2 = found.passes
    # The first item has one scored completion: pass@1 is that one, pass@2 has no value for it.
    assert at_1.value == 0.5 and at_1.items == 2 and at_1.possible == (0.25, 0.5)
    assert at_2.value == 0.0 and at_2.items == 1 and at_2.possible == (0.5, 0.5)


def test_seeds_of_an_arm_are_averaged_and_not_mixed():
    """Two seeds, each of which always gives the same answer: pooled, one of two would be right."""
    right, wrong = sampled([[1.0, 1.0]] * 3), sampled([[0.0, 0.0]] * 3)
    found = sampled_scores([right, wrong])
    assert [each.value for each in found.passes] == [0.5, 0.5]
    assert found.mean.value == 0.5 and found.mean.k == 2
