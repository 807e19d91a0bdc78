"""The gate: a later checkpoint takes the start's place only where it was shown better."""

import numpy as np
import pytest

from assay.judge.scores import ItemScores
from assay.judge.selection import promote
from tests.judge.simulated import single_pass, without_plans

START = single_pass([0] * 40 + [1] * 20)


def better_by(gained: int, lost: int = 0) -> ItemScores:
    """A checkpoint that gains the first items and loses the last."""
    return single_pass([1] * gained + [0] * (40 - gained) + [1] * (20 - lost) + [0] * lost)


def test_a_checkpoint_that_is_clearly_better_takes_the_place():
    found = promote(START, {8: better_by(2), 16: better_by(15)})
    assert found.step == 16
    assert {step: look.verdict for step, look in found.looks.items()} == {
        8: "undecided",
        16: "better",
    }


def test_what_is_better_by_one_look_is_not_by_many():
    # 6 gained and none lost: mid-p = 1/64, above 0.05 once it is one of four looks.
    six = better_by(6)
    assert promote(START, {1: six}).step == 1
    four = promote(START, {1: better_by(0), 2: better_by(1), 3: six, 4: better_by(0)})
    assert four.step is None and four.favourite == 3
    assert four.looks[3].adjusted_p == pytest.approx(4 / 64)


def test_the_best_of_those_shown_better_is_taken_and_the_earliest_among_equals():
    found = promote(START, {8: better_by(12), 16: better_by(20), 24: better_by(20)})
    assert found.step == 16


def test_checkpoints_that_are_no_better_are_promoted_in_one_case_of_twenty_at_most():
    draw = np.random.default_rng(5)
    chance, runs = draw.random(60), 40
    promoted, naive = 0, 0
    for _ in range(runs):
        start, *later = (single_pass((draw.random(60) < chance).astype(float)) for _ in range(11))
        with without_plans():
            found = promote(start, dict(enumerate(later, 1)))
        promoted += found.step is not None
        naive += any(look.p_value < 0.05 and look.difference > 0 for look in found.looks.values())
    assert promoted / runs <= 0.05
    assert naive / runs > 0.08, "without correction the gate would leak"
