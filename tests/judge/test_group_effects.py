"""Marks are judged within groups and by cluster, in one family, and never on few data."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from assay.judge.families import holm
from assay.judge.group_effects import (
    ASSUMED,
    FEWEST_CLUSTERS,
    WANTED,
    Member,
    contrast,
    judged_effects,
    mark_exchange_test,
)
from assay.judge.sample_size import Design, Variances, items_for
from assay.judge.significance import leaves_out_zero

BOUNDS = (0.0, 1.0)


def pair(name: str, marked: float, other: float, cluster: str | None = None) -> list[Member]:
    own = cluster or name
    return [Member(marked, True, name, own), Member(other, False, name, own)]


def pairs(count: int, effect: float, seed: int = 0) -> list[Member]:
    draw = np.random.default_rng(seed)
    found = []
    for n in range(count):
        base = draw.uniform(0.3, 0.6)
        found += pair(str(n), base + effect + draw.uniform(-0.1, 0.1), base)
    return found


def test_one_pair_in_each_group_agrees_with_the_paired_t_test():
    members = pairs(30, 0.04)
    gaps = [a.value - b.value for a, b in zip(members[::2], members[1::2], strict=True)]
    expected: Any = stats.ttest_1samp(gaps, 0.0)
    found = contrast(members, BOUNDS)
    assert found.difference == pytest.approx(np.mean(gaps))
    assert found.p == pytest.approx(expected.pvalue, abs=0.003)
    assert found.interval is not None
    low, high = expected.confidence_interval()
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high))
    assert found.variance == pytest.approx(np.var(gaps, ddof=1))


def test_easy_groups_do_not_pass_for_a_good_mark():
    easy = [m for n in range(20) for m in (*pair(f"e{n}", 0.9, 0.9), *pair(f"e{n}", 0.9, 0.9)[:1])]
    hard = [m for n in range(20) for m in (*pair(f"h{n}", 0.1, 0.1), *pair(f"h{n}", 0.1, 0.1)[1:])]
    members = easy + hard
    naive = np.mean([m.value for m in members if m.marked]) - np.mean(
        [m.value for m in members if not m.marked]
    )
    assert naive > 0.2
    found = contrast(members, BOUNDS)
    assert found.difference == 0.0 and found.p == 1.0
    assert judged_effects({"mark": found})["mark"].verdict == "undecided"


def rare_mark(seed: int) -> list[Member]:
    """300 groups of 8 of which 98 % pass, whether or not they have a mark that 5 % have."""
    draw = np.random.default_rng(seed)
    passed, marked = draw.random((300, 8)) < 0.98, draw.random((300, 8)) < 0.05
    return [
        Member(float(passed[k, n]), bool(marked[k, n]), str(k), str(k))
        for k in range(300)
        for n in range(8)
    ]


@pytest.mark.slow
def test_a_rare_mark_near_the_end_of_the_scale_is_not_claimed_too_often():
    """Student's t calls about one in seven of these better."""
    found = [contrast(rare_mark(seed), BOUNDS) for seed in range(120)]
    assert sum(each.p < 0.05 for each in found) <= 8
    assert all(each.interval for each in found)
    shown = [each.interval is not None and leaves_out_zero(each.interval) for each in found]
    assert shown == [each.p < 0.05 for each in found]


def test_a_mark_that_fails_more_often_near_the_end_of_the_scale_is_found():
    draw = np.random.default_rng(5)
    worse = [
        Member(
            float(m.value and not (m.marked and draw.random() < 0.3)), m.marked, m.group, m.group
        )
        for m in rare_mark(1)
    ]
    assert judged_effects({"mark": contrast(worse, BOUNDS)})["mark"].verdict == "worse"


def test_the_exchange_of_few_marks_is_that_of_all_exchanges():
    """Two groups of three with one mark each: nine exchanges, of which one alone has both high."""
    groups = [((1.0, 0.2, 0.1), (True, False, False)), ((0.9, 0.1, 0.3), (True, False, False))]
    assert mark_exchange_test(groups, ("a", "b")) == pytest.approx(2 / 9, abs=0.03)
    assert mark_exchange_test(groups, ("a", "a")) == 1.0


def test_groups_that_hold_one_kind_only_say_nothing():
    lone = [Member(1.0, True, f"x{n}", f"x{n}") for n in range(50)]
    assert contrast(pairs(10, 0.1) + lone, BOUNDS) == contrast(pairs(10, 0.1), BOUNDS)
    assert contrast(lone, BOUNDS).difference is None


def test_groups_of_one_prompt_are_one_cluster():
    members = pairs(40, 0.05)
    apart = contrast(members, BOUNDS)
    together = contrast(
        [Member(m.value, m.marked, m.group, str(int(m.group) // 8)) for m in members], BOUNDS
    )
    assert (apart.clusters, together.clusters, together.groups) == (40, 5, 40)
    assert together.p > apart.p


@pytest.mark.parametrize(("effect", "verdict"), [(0.2, "better"), (-0.2, "worse")])
def test_the_verdict_has_the_sign_of_the_difference(effect: float, verdict: str):
    (found,) = judged_effects({"mark": contrast(pairs(30, effect), BOUNDS)}).values()
    assert found.verdict == verdict


def test_the_family_is_corrected_by_holm_and_grows_by_tested_marks_only():
    contrasts = {n: contrast(pairs(30, 0.03, seed=n), BOUNDS) for n in range(6)}
    few = {f"few {n}": contrast(pairs(FEWEST_CLUSTERS - 1, 0.3), BOUNDS) for n in range(50)}
    effects = judged_effects({**contrasts, **few})
    expected = holm([each.p for each in contrasts.values()])
    assert [effects[n].adjusted_p for n in contrasts] == pytest.approx(list(expected))
    assert all(effects[name].adjusted_p is None for name in few)


def test_few_data_are_undecided_with_what_it_takes():
    few = contrast(pairs(FEWEST_CLUSTERS - 1, 0.4), BOUNDS)
    effect = judged_effects({"mark": few})["mark"]
    assert effect.verdict == "undecided"
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    total = ASSUMED * (z / WANTED) ** 2
    assert effect.needed == pytest.approx(total - few.clusters, abs=3)


def test_a_larger_family_needs_more():
    wide = [m for n in range(12) for m in pair(str(n), n % 2, 1 - n % 2)]
    found = contrast(wide, BOUNDS)
    alone = judged_effects({"mark": found})["mark"].needed
    among = judged_effects(dict.fromkeys(range(6), found))[0].needed
    expected = items_for(Variances(found.variance), Design(0, arms=7), WANTED)
    assert alone is not None and expected is not None
    assert among == expected - 12 > alone > 0


def test_enough_data_need_no_more():
    many = contrast(pairs(200, 0.0), BOUNDS)
    effect = judged_effects({"mark": many})["mark"]
    assert (effect.verdict, effect.needed) == ("undecided", 0)


def test_the_scale_does_not_matter():
    members = pairs(30, 0.04)
    tens = [Member(m.value * 20 - 10, m.marked, m.group, m.cluster) for m in members]
    one, other = contrast(members, BOUNDS), contrast(tens, (-10.0, 10.0))
    assert other.p == pytest.approx(one.p) and other.variance == pytest.approx(one.variance)
    assert other.difference == pytest.approx(20 * (one.difference or 0.0))
