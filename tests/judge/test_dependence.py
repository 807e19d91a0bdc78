"""Whether choices depend on labels: exact exchanges, clusters that move whole, strata that hold."""

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from assay.judge.dependence import (
    MEDIUM,
    Table,
    clusters_needed,
    dependence_tests,
    distance,
    permutation_p,
)


def table(shares, labels, strata=None) -> Table:
    return Table(np.array(shares, float), labels, strata or ["all"] * len(labels))


def drawn(seed: int, prompts: int, by_label: dict[str, tuple[float, float]]) -> Table:
    """Eight completions of each prompt, all of them alike: what clusters are about."""
    draw = np.random.default_rng(seed)
    labels = [name for name in by_label for _ in range(prompts)]
    shares = [np.eye(2)[draw.choice(2, p=by_label[name])] for name in labels]
    return table(shares, labels)


def test_the_p_value_is_that_of_all_exchanges():
    shares = np.array([[1, 0], [0.8, 0.2], [0.9, 0.1], [0.2, 0.8], [0.1, 0.9], [0.4, 0.6]])
    labels = np.array([0, 0, 0, 1, 1, 1])
    own = distance(shares, labels)
    every = [distance(shares, np.array(p)) >= own - 1e-9 for p in set(permutations(labels))]
    _, p = permutation_p(table(shares, [str(n) for n in labels]), draws=20_000)
    assert p == pytest.approx(np.mean(every), abs=0.01)


def test_whole_shares_are_the_usual_chi_squared():
    labels = ["a"] * 30 + ["b"] * 20
    chosen = [0] * 20 + [1] * 10 + [0] * 5 + [1] * 15
    statistic, _ = permutation_p(table(np.eye(2)[chosen], labels), draws=1)
    counts = [[20, 10], [5, 15]]
    expected, *_ = stats.chi2_contingency(counts, correction=False)
    assert statistic == pytest.approx(expected)


def test_alike_completions_of_a_prompt_do_not_pass_for_evidence():
    rejected = sum(
        dependence_tests([drawn(s, 15, {"a": (0.5, 0.5), "b": (0.5, 0.5)})], 400)[0].depends
        for s in range(60)
    )
    assert rejected <= 8


def test_a_choice_that_depends_is_found():
    (found,) = dependence_tests([drawn(0, 40, {"a": (0.8, 0.2), "b": (0.2, 0.8)})])
    assert found.depends and (found.clusters, found.choices, found.labels) == (80, 2, 2)


def test_dependence_on_the_stratum_is_none_on_the_label():
    draw = np.random.default_rng(0)
    kinds = ["math"] * 60 + ["qa"] * 60
    shares = np.eye(2)[[0] * 60 + [1] * 60]
    labels = ["hard" if draw.random() < (0.9 if k == "math" else 0.1) else "easy" for k in kinds]
    assert permutation_p(table(shares, labels))[1] < 0.01
    assert permutation_p(table(shares, labels, kinds))[1] == 1.0


def test_nothing_to_compare_is_undecided():
    for nothing in (
        table([[1.0], [1.0]], ["a", "b"]),
        table([[1.0, 0.0], [0.0, 1.0]], ["a", "a"]),
        table(np.zeros((0, 0)), []),
    ):
        (found,) = dependence_tests([nothing])
        assert (found.p, found.depends) == (1.0, False)
        assert found.needed > 0


def test_p_values_of_several_tests_are_adjusted():
    one = drawn(1, 12, {"a": (0.7, 0.3), "b": (0.3, 0.7)})
    (alone,) = dependence_tests([one])
    both = dependence_tests([one, drawn(2, 12, {"a": (0.5, 0.5), "b": (0.5, 0.5)})])
    assert both[0].p == pytest.approx(min(2 * alone.p, 1.0), rel=0.01)


def test_the_needed_clusters_have_the_power_that_they_promise():
    count = clusters_needed(2, 2, 0.05)
    half = MEDIUM / 2
    draw = np.random.default_rng(0)
    rejected = 0
    for _ in range(400):
        a, b = draw.binomial([count // 2] * 2, [0.5 + half, 0.5 - half])
        counts = [[a, count // 2 - a], [b, count // 2 - b]]
        _, p, *_ = stats.chi2_contingency(counts, correction=False)
        rejected += p < 0.05  # type: ignore[operator]
    assert rejected / 400 == pytest.approx(0.8, abs=0.06)


def test_a_p_value_is_never_0():
    _, p = permutation_p(drawn(0, 40, {"a": (1.0, 0.0), "b": (0.0, 1.0)}), draws=99)
    assert p == pytest.approx(1 / 100)
