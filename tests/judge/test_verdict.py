"""Verdicts and their words."""

from dataclasses import replace

import pytest

from assay.judge.intervals import Interval
from assay.judge.verdict import Comparison, Correction, Filled, adjusted, judged, not_comparable
from tests.english import explain


def around(low: float, high: float):
    """An interval of these limits at every level."""
    return lambda level: Interval(low, high, "any", level)


BASE = Comparison(
    control_score=0.40,
    score=0.45,
    difference=0.05,
    interval=Interval(-0.01, 0.11, "Tango"),
    p_value=0.2,
    adjusted_p=0.2,
    method="mid-p McNemar, Tango interval",
    items=400,
    verdict="undecided",
    margin=0.02,
    minimum_detectable_difference=0.085,
    items_needed=1150,
    interval_at=around(-0.01, 0.11),
    plan_at=lambda alpha: (0.085 * (1 + 0.05 - alpha), 1150),
    gained=50,
    lost=30,
    unchanged=320,
)


@pytest.mark.parametrize(
    ("difference", "low", "high", "p_value", "verdict"),
    [
        (0.05, 0.01, 0.09, 0.049, "better"),
        (-0.05, -0.09, -0.01, 0.049, "worse"),
        (0.05, -0.01, 0.11, 0.05, "undecided"),
        (0.001, -0.019, 0.019, 0.9, "equivalent"),
        (0.0, -0.02, 0.019, 0.9, "undecided"),
        (0.0, -0.019, 0.02, 0.9, "undecided"),
        (0.01, 0.005, 0.015, 0.001, "better"),
    ],
)
def test_the_p_value_decides_and_the_interval_shows_equivalence(
    difference, low, high, p_value, verdict
):
    assert judged(case(difference, low, high, p_value)).verdict == verdict


def case(difference: float, low: float, high: float, p_value: float) -> Comparison:
    """A comparison with these figures and none of its scores missing."""
    interval_at = around(low, high)
    figures = {"difference": difference, "p_value": p_value, "adjusted_p": p_value}
    return replace(BASE, interval=interval_at(0.95), interval_at=interval_at, **figures)


def end(difference: float, low: float, high: float, p_value: float) -> Filled:
    """The figures with missing scores at one end."""
    interval_at = around(low, high)
    return Filled(
        0.4, 0.4 + difference, difference, interval_at(0.95), p_value, p_value, interval_at
    )


def test_nothing_is_called_better_that_missing_scores_could_undo():
    better = case(0.08, 0.02, 0.14, 0.01)
    assert judged(better).verdict == "better"
    undone = replace(
        better, lowest=end(0.02, -0.04, 0.08, 0.5), highest=end(0.1, 0.04, 0.16, 0.001)
    )
    assert judged(undone).verdict == "undecided"
    holds = replace(undone, lowest=end(0.07, 0.01, 0.13, 0.02))
    assert judged(holds).verdict == "better"
    # An opposite that is significant is no confirmation.
    turned = replace(undone, lowest=end(-0.07, -0.13, -0.01, 0.02))
    assert judged(turned).verdict == "undecided"


def test_equivalent_must_hold_with_the_missing_scores_at_either_end():
    alike = case(0.001, -0.015, 0.017, 0.9)
    inside, above = end(0.0, -0.016, 0.016, 1.0), end(0.01, -0.006, 0.026, 0.3)
    assert judged(replace(alike, lowest=inside, highest=inside)).verdict == "equivalent"
    assert judged(replace(alike, lowest=inside, highest=above)).verdict == "undecided"
    assert judged(replace(alike, lowest=above, highest=inside)).verdict == "undecided"


def test_undecided_because_of_missing_scores_says_so_with_both_figures():
    found = replace(case(0.08, 0.02, 0.14, 0.01), unscored=30, unscored_shares=(0.0, 0.075))
    found = replace(found, lowest=end(0.02, -0.04, 0.08, 0.5), highest=end(0.1, 0.04, 0.16, 0.001))
    said = explain(judged(found))
    assert said.startswith("undecided: +8.0 points (+2.0 to +14.0)")
    assert "better by the answers that have a score, but the missing scores could undo it" in said
    assert "0.0% of the control's answers and 7.5% of the run's have no score" in said
    assert "all counted against it: +2.0 points (−4.0 to +8.0), p = 0.5" in said


def test_a_corrected_p_value_changes_the_verdict_and_keeps_the_raw_one():
    sure = replace(BASE, p_value=0.03, adjusted_p=0.03, verdict="better")
    by = Correction(0.09, 3)
    corrected = adjusted(sure, by, by, 3)
    assert (corrected.verdict, corrected.p_value, corrected.adjusted_p) == ("undecided", 0.03, 0.09)
    assert corrected.interval.level == pytest.approx(1 - 0.05 / 3)
    assert "(98.33%) are corrected for 3 comparisons" in explain(corrected)


def test_not_comparable_names_the_confounds():
    refused = not_comparable(BASE, ["reward.sha256", "stages.rl.lr"])
    assert explain(refused).startswith("not comparable: differs in reward.sha256, stages.rl.lr")
    assert refused.difference == BASE.difference
