"""mean@n, pass@k and maj@k against brute force, other people's formula and closed forms."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.arms import (
    Sampled,
    counts_up_to,
    grouped_answers,
    majority_at_k,
    pass_at_k,
    sampled_scores,
)
from assay.judge.scores import ItemScores

NAN = float("nan")


def sampled(scores: list[list[float]], answers: list[list[str]] | None = None) -> Sampled:
    ids = tuple(f"item{n}" for n in range(len(scores)))
    return Sampled(ItemScores(ids, np.array(scores)), answers)


def humaneval(n: int, c: int, k: int) -> float:
    """`estimate_pass_at_k` as published with HumanEval (Chen et al. 2021, figure 3)."""
    if n - c < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))


def majority_by_enumeration(scores: list[float], answers: list[str], k: int) -> float:
    """The mean over all subsets of k of the mean score of the answers with the most votes."""
    right = {a: np.mean([s for s, b in zip(scores, answers, strict=True) if a == b])
             for a in answers}  # fmt: skip
    values = []
    for subset in combinations(answers, k):
        votes = {a: subset.count(a) for a in subset if a}
        top = [a for a, count in votes.items() if count == max(votes.values())]
        values.append(np.mean([right[a] for a in top]) if top else 0.0)
    return float(np.mean(values))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_subsets_that_hold_a_right_one(n):
    for right, k in product(range(n + 1), range(1, n + 1)):
        marks = [1] * right + [0] * (n - right)
        share = np.mean([max(subset) for subset in combinations(marks, k)])
        assert pass_at_k(n, right, k) == pytest.approx(share, abs=1e-12)
        assert pass_at_k(n, right, k) == pytest.approx(humaneval(n, right, k), abs=1e-12)


COMPLETIONS = st.lists(st.sampled_from(["", "a", "b", "c", "d"]), min_size=1, max_size=7)


@given(COMPLETIONS, st.sampled_from(["a", "b", "none"]))
def test_the_majority_is_exact_over_all_subsets(answers, gold):
    scores = [float(answer == gold) for answer in answers]
    found = majority_at_k(*grouped_answers(scores, answers))
    wanted = [majority_by_enumeration(scores, answers, k) for k in range(1, len(answers) + 1)]
    assert found == pytest.approx(wanted, abs=1e-12)


def test_majority_closed_forms():
    # Two answers of two votes each tie at 4, whatever comes first: half.
    assert majority_at_k(((2, 1.0), (2, 0.0)), 0)[3] == pytest.approx(0.5)
    # Three of five votes win for certain; completions without an answer do not vote against them.
    assert majority_at_k(((3, 1.0), (2, 0.0)), 0)[4] == 1.0
    assert majority_at_k(((1, 1.0),), 9)[9] == 1.0
    # One right answer among nine silent ones is drawn with chance k / 10.
    assert majority_at_k(((1, 1.0),), 9) == pytest.approx(np.arange(1, 11) / 10)
    # n different answers, one right: every subset of k that holds it is a tie of k.
    assert majority_at_k(((1, 1.0), *[(1, 0.0)] * 7), 0) == pytest.approx([1 / 8] * 8)
    # A majority of two kinds is a binomial tail: 9 right and 7 wrong, 5 drawn.
    tail = sum(comb(9, right) * comb(7, 5 - right) for right in (3, 4, 5)) / comb(16, 5)
    assert majority_at_k(((9, 1.0), (7, 0.0)), 0)[4] == pytest.approx(tail)
    assert majority_at_k((), 4).tolist() == [0.0] * 4


def test_a_majority_of_64_completions_is_a_chance():
    groups = ((20, 1.0), (20, 0.0), (5, 0.0), *[(1, 0.0)] * 15)
    found = majority_at_k(groups, 4)
    assert len(found) == 64 and found.min() >= 0.0 and found.max() <= 1.0
    # Symmetry: with the two large answers exchanged the same share goes to the other.
    others = majority_at_k(((20, 0.0), (20, 1.0), (5, 0.0), *[(1, 0.0)] * 15), 4)
    assert found == pytest.approx(others)
    rest = majority_at_k(((20, 0.0), (20, 0.0), (5, 1.0), *[(1, 1.0)] * 15), 4)
    # Every subset has a winner, unless it is drawn from the four silent ones alone.
    silent = np.array([comb(4, k) / comb(64, k) for k in range(1, 65)])
    assert found + others + rest == pytest.approx(1 - silent)


TABLES = st.integers(1, 6).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from(["a", "b", "c"]), min_size=n, max_size=n), min_size=2, max_size=6
    )
)


@given(TABLES)
def test_one_completion_is_the_mean_and_more_pass_more_often(answers):
    scores = [[float(answer == "a") for answer in row] for row in answers]
    found = sampled_scores([sampled(scores, answers)])
    mean, n = np.mean(scores), len(scores[0])
    assert [each.k for each in found.passes] == counts_up_to(n)
    assert found.mean.k == n and found.mean.value == pytest.approx(mean)
    assert found.passes[0].value == pytest.approx(mean)
    assert found.majority[0].value == pytest.approx(mean)
    values = [each.value for each in found.passes]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(np.mean([max(row) for row in scores]))
    for each in (found.mean, *found.passes, *found.majority):
        assert each.interval.low <= each.value + 1e-12
        assert each.value <= each.interval.high + 1e-12
        assert each.possible == pytest.approx((each.value, each.value))


def test_an_unscored_completion_counts_neither_as_wrong_nor_as_right():
    run = sampled([[1, NAN], [0, 0]], [["a", "b"], ["b", "c"]])
    found = sampled_scores([run])
    at_1, at_2 = found.passes
    # The first item has one scored completion: pass@1 is that one, pass@2 has no value for it.
    assert at_1.value == 0.5 and at_1.items == 2 and at_1.possible == (0.25, 0.5)
    assert at_2.value == 0.0 and at_2.items == 1 and at_2.possible == (0.5, 0.5)
    one, two = found.majority
    assert (one.value, one.items, one.possible) == (0.5, 2, (0.0, 0.5))
    assert (two.value, two.items, two.possible) == (0.0, 1, (0.0, 0.5))


def test_seeds_of_an_arm_are_averaged_and_not_mixed():
    """Two seeds, each of which always gives the same answer: pooled, one of two would be right."""
    right, wrong = sampled([[1.0, 1.0]] * 3), sampled([[0.0, 0.0]] * 3)
    found = sampled_scores([right, wrong])
    assert [each.value for each in found.passes] == [0.5, 0.5]
    assert found.mean.value == 0.5 and found.mean.k == 2
