"""Comparisons of reported scores: the family, the words beside them, what repeats are worth."""

import pytest

from assay.judge.audit.claims import pairs
from assay.judge.binomial import compare_counts
from tests.judge.audit.faults import claimed, found, record, two_runs


def family(*scores: float) -> str:
    """Runs r0, r1 ... against a control of 26.9 % on 200 items, each called better."""
    runs = [
        f'[[runs]]\nname = "r{i}"\nsays = "better"\nscores = {s}\n' for i, s in enumerate(scores)
    ]
    head = '[scoring]\nitems = 200\ncontrol = "c"\n[[runs]]\nname = "c"\nscores = 26.9\n'
    return head + "".join(runs)


def test_a_difference_that_decides_alone_is_undecided_among_ten():
    assert found(family(37.7), "better")
    first, *_ = found(family(37.7, *[26.9] * 9), "inside_noise")
    assert first.values["about"] == "r0 / c"


def test_repeats_are_averaged_and_do_not_add_items():
    (flaw,) = found(two_runs([26.5, 27.5, 26.0], [37.0, 38.0, 38.0]), "better")
    alone = compare_counts(200 * 0.266666, 200, 200 * 0.376666, 200)
    assert flaw.values["p"] == pytest.approx(alone.p_value, rel=1e-3)
    assert flaw.values["items"] == 200


def test_a_run_may_have_another_control_or_none():
    text = family(60.0, 60.0).replace('name = "r0"\n', 'name = "r0"\ncontrol = "r1"\n')
    assert {pair.name for pair in pairs(record(text))} == {"r0 / r1", "r1 / c"}
    text = family(60.0).replace('name = "r0"\n', 'name = "r0"\ncontrol = ""\n')
    assert not pairs(record(text))


def test_a_decision_between_runs_that_are_not_comparable_is_not_called_one():
    text = two_runs(20.0, 60.0).replace(
        "scores = 20.0\n", 'settings = { lr = 1, data = "x" }\nscores = 20.0\n'
    )
    text = text.replace("scores = 60.0\n", 'settings = { lr = 2, data = "y" }\nscores = 60.0\n')
    assert found(text, "several_factors") and not found(text, "better")


def test_a_claimed_range_is_judged_at_its_best():
    (flaw,) = found(claimed("[0.5, 4.5]", "[100, 800]"), "difference_inside_noise")
    best = compare_counts(0.455 * 800, 800, 0.5 * 800, 800)
    assert flaw.values["p"] == pytest.approx(best.p_value)
    assert (flaw.values["least"], flaw.values["fewest"]) == (0.5, 100)
