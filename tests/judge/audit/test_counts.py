"""Counts, averages, missing answers and dead groups: what is possible is never called wrong."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.audit.faults import average_of, found, one_run, two_runs
from tests.judge.audit.test_arithmetic import printed

DIGITS = st.integers(1, 3)


def test_more_right_ones_than_items_cannot_be_and_are_compared_with_nothing():
    text = two_runs(20.0, 60.0).replace("scores = 60.0", "right = 410").replace("200", "400")
    assert [flaw.code for flaw in found(text)] == ["not_from_counts"]


def test_counts_over_all_passes_give_the_score_too():
    passes = one_run("scores = 52.5\nright = 630").replace("[scoring]", "[scoring]\nrepeats = 3")
    assert not found(passes, "not_from_counts")
    assert found(one_run("scores = 52.5\nright = 630"), "not_from_counts")


VALUES = st.lists(st.integers(0, 1000), min_size=2, max_size=6)


@given(VALUES, st.integers(0, 2))
def test_a_mean_of_unrounded_scores_follows_from_rounded_ones(tenths: list[int], digits: int):
    exact = [Fraction(value, 10) for value in tenths]
    cells = ", ".join(f"c{i} = {printed(v, digits):f}" for i, v in enumerate(exact))
    mean = printed(sum(exact, Fraction(0)) / len(exact), digits)
    assert not found(average_of(float(mean), cells).replace(str(float(mean)), f"{mean:f}"))


def test_an_average_over_all_items_is_granted():
    items = "items = { x = 100, y = 300 }"
    assert not found(average_of(67.5, "x = 60.0, y = 70.0", items), "average_not_mean")
    assert found(average_of(67.5, "x = 60.0, y = 70.0"), "average_not_mean")


def test_an_average_over_named_cells_or_over_repeats_is_held_against_those():
    text = average_of(75.0) + 'of = ["y", "z"]\n'
    assert not found(text)
    assert not found(average_of(71.0, "x = [70.0, 71.0, 72.0]"), "average_not_mean")
    assert found(average_of(72.0, "x = [70.0, 71.0, 72.0]"), "average_not_mean")


@pytest.mark.parametrize("points", ["", "points = 5\n"])
def test_the_best_checkpoint_of_the_test_is_named_without_a_number_of_items(points: str):
    text = '[[runs]]\nname = "a"\nscores = 50.0\n[[searches]]\nchosen = "a"\n' + points
    assert [flaw.code for flaw in found(text)] == ["chosen_on_test"]
    assert not found(text + 'on = "dev"\n')
    counted = text.replace("scores = 50.0", "scores = 50.0\nitems = 400")
    assert found(counted)[0].code == ("best_of_many" if points else "chosen_on_test")
