"""The ranking of improvements follows from the stated rule, and values from the evidence."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.improvements import (
    AIMS,
    RISKS,
    WORK,
    Cost,
    Fact,
    Improvement,
    Stake,
    loss_at_stake,
    ranked,
)
from assay.judge.paired import compare
from assay.judge.scores import ItemScores

FACT = Fact("improve_evidence.needed", {"needed": "9"}, "evaluations/test")
PLAIN = Improvement(
    "rule",
    "rl",
    ("improve_what.freeze",),
    "signal",
    (FACT,),
    Stake(0.5, "groups", at_most=True),
    Cost("train", 9.0),
    "guarded",
)
IMPROVEMENTS = st.builds(
    lambda aim, work, share, risk, rule: replace(
        PLAIN,
        aim=aim,
        cost=Cost(work, None),
        stake=Stake(share, "score", True),
        risk=risk,
        rule=rule,
    ),
    st.sampled_from(AIMS),
    st.sampled_from(WORK),
    st.floats(0, 1),
    st.sampled_from(RISKS),
    st.sampled_from(["a", "b", "c"]),
)


@given(st.lists(IMPROVEMENTS, max_size=8), st.randoms())
def test_the_rank_depends_on_no_order_of_the_rules(found, random):
    mixed = random.sample(found, len(found))
    assert ranked(mixed) == ranked(found)


@given(st.lists(IMPROVEMENTS, min_size=2, max_size=8))
def test_what_protects_is_first_exploration_last_and_cheap_before_dear(found):
    order = ranked(found)
    for one, other in pairwise(order):
        assert AIMS.index(one.aim) <= AIMS.index(other.aim)
        if one.aim == other.aim:
            assert WORK.index(one.cost.work) <= WORK.index(other.cost.work)
            if one.cost.work == other.cost.work:
                assert one.stake.share >= other.stake.share


def test_nothing_is_listed_without_evidence():
    with pytest.raises(AssertionError, match="evidence"):
        replace(PLAIN, evidence=())


def scores(values: list[float], high: float = 1.0) -> ItemScores:
    ids = tuple(map(str, range(len(values))))
    return ItemScores(ids, np.array(values)[:, None], bounds=(0.0, high))


def test_a_shown_loss_is_its_measure_and_an_undecided_one_its_bound():
    worse = compare(scores([1.0] * 40), scores([1.0, 0.0] * 20))
    assert loss_at_stake(worse) == Stake(0.5, "score", at_most=False)
    same = compare(scores([1.0, 0.0] * 20), scores([1.0, 0.0] * 20))
    stake = loss_at_stake(same)
    assert stake.at_most and stake.share == pytest.approx(max(0.0, -same.interval.low))


def test_what_is_shown_better_has_nothing_to_lose():
    better = compare(scores([1.0, 0.0] * 20), scores([1.0] * 40))
    assert loss_at_stake(better).share == 0


def test_rewards_on_another_scale_count_by_their_size():
    """A loss of 1 of 2 is half of it."""
    worse = compare(scores([2.0] * 40, 2.0), scores([1.0, 1.0] * 19 + [0.9, 1.1], 2.0))
    assert loss_at_stake(worse).share == pytest.approx(0.5)
