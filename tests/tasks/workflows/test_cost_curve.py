"""Choices among fixed workflows at a price: in closed form, and with nothing to choose."""

import numpy as np
import pytest

from assay.tasks.workflows.cost_curve import (
    Measured,
    Point,
    best_table,
    curve,
    everything,
    markdown,
    topic_of,
)

KINDS = ("sums/1", "sums/2", "words/1", "words/2")


def did(solved: list[float], cost: float, kinds: tuple[str, ...] = KINDS) -> Measured:
    return Measured(kinds, np.array(solved), np.full(len(kinds), cost))


CHEAP, CODE = did([1, 0, 1, 0], 1.0), did([1, 1, 1, 0], 3.0)
BOTH = {"cheap": CHEAP, "code": CODE}


def lines(price: float, **policies: Measured) -> dict[str, Point]:
    return {each.name: each for each in curve(BOTH, BOTH, policies, [price])}


def test_each_choice_is_the_best_of_its_kind() -> None:
    """At 0.1 a right answer is worth more than the 0.2 that code costs more: on hard sums alone."""
    found = lines(0.1)
    assert found["best fixed"].net == pytest.approx(0.75 - 0.3)
    assert found["router by topic"].table == {"sums": "code", "words": "cheap"}
    assert found["router by topic"].net == pytest.approx(0.75 - 0.1 * 2)
    by_level = found["router by topic and level"]
    assert by_level.table == {**dict.fromkeys(KINDS, "cheap"), "sums/2": "code"}
    assert (by_level.solved, by_level.cost) == pytest.approx((0.75, 1.5))
    assert by_level.net == pytest.approx(0.75 - 0.15)


def test_a_price_decides_what_is_best() -> None:
    assert best_table(BOTH, 0.0, everything) == {"*": "code"}
    assert best_table(BOTH, 1.0, everything) == {"*": "cheap"}


def test_no_few_workflows_are_better_than_all_and_one_is_the_best_fixed() -> None:
    many = {**BOTH, "odd": did([0, 0, 0, 1], 0.5)}
    for price in (0.0, 0.1, 1.0):
        nets = []
        for most in (1, 2, 3):
            table = best_table(many, price, topic_of, most)
            assert len({*table.values()}) <= most
            nets.append(sum(many[table[topic_of(k)]].net_I(price)[n] for n, k in enumerate(KINDS)))
        assert nets == sorted(nets)
        assert {*best_table(many, price, topic_of, 1).values()} == {
            *best_table(many, price, everything).values()
        }


def test_without_differences_inside_a_topic_levels_add_nothing() -> None:
    """The negative control."""
    same = {"cheap": did([1, 1, 0, 0], 1.0), "code": did([0, 0, 1, 1], 1.0)}
    found = {each.name: each.net for each in curve(same, same, {}, [0.1])}
    assert found["router by topic"] == found["router by topic and level"]
    assert found["router by topic"] > found["best fixed"]


def test_choices_are_made_on_training_problems_and_shown_on_the_tests() -> None:
    train = {"cheap": did([1, 1, 1, 1], 1.0), "code": did([0, 0, 0, 0], 1.0)}
    test = {"cheap": did([0, 0, 0, 0], 1.0), "code": did([1, 1, 1, 1], 1.0)}
    assert all(each.solved == 0 for each in curve(train, test, {}, [0.0]))


def test_a_policy_stands_beside_them_at_every_price() -> None:
    policy = did([1, 1, 1, 0], 1.2)
    found = lines(0.1, policy=policy)["policy"]
    assert (found.solved, found.net) == pytest.approx((0.75, 0.75 - 0.12))
    assert "| 0.1 | policy | 75.0% | 1200.0000 | 63.0 |  |" in markdown([found])
