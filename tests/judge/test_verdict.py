"""Verdicts and their words."""

from dataclasses import replace

import pytest

from assay.judge.intervals import Interval
from assay.judge.verdict import (
    ENGLISH,
    Comparison,
    adjusted,
    decide,
    explain,
    not_comparable,
    sentences,
)

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
    assert decide(difference, Interval(low, high, "any"), p_value, 0.02) == verdict


def test_a_corrected_p_value_changes_the_verdict_and_keeps_the_raw_one():
    sure = replace(BASE, p_value=0.03, adjusted_p=0.03, verdict="better")
    corrected = adjusted(sure, 0.09)
    assert (corrected.verdict, corrected.p_value, corrected.adjusted_p) == ("undecided", 0.03, 0.09)


def test_undecided_says_what_the_design_can_see_and_what_it_would_take():
    said = explain(BASE)
    assert "undecided: +5.0 points (-1.0 to +11.0) on 400 items, p = 0.2" in said
    assert "8.5 points or more with 80 % power" in said
    assert "about 1150 items" in said
    assert "margin of 2 points is rarely reachable under 1000 items" in said


def test_the_margin_is_reachable_with_a_thousand_items():
    assert "rarely" not in explain(replace(BASE, items=1000))


def test_a_design_that_can_see_nothing_says_so():
    assert "cannot detect any difference" in explain(
        replace(BASE, minimum_detectable_difference=None, items_needed=None)
    )


def test_not_comparable_names_the_confounds():
    refused = not_comparable(BASE, ["reward.sha256", "stages.rl.lr"])
    assert explain(refused).startswith("not comparable: differs in reward.sha256, stages.rl.lr")
    assert refused.difference == BASE.difference


def test_a_real_but_small_difference_is_called_small():
    small = replace(BASE, verdict="better", interval=Interval(0.002, 0.018, "Tango"))
    assert "a real difference, but a small one" in explain(small)
    assert "small one" not in explain(replace(BASE, verdict="better"))


def test_repeats_missing_scores_and_missing_items_are_said():
    said = explain(replace(BASE, repeats=(5, 5), changed_between_repeats=(3, 7), unscored=4))
    assert "3 and 7 of 400 items changed between repeats" in said
    assert "4 items had no score" in said
    assert "two binomials" in explain(replace(BASE, gained=None, lost=None, unchanged=None))


def test_another_language_brings_its_own_words_for_every_sentence():
    templates = {key: key.upper() for key in ENGLISH}
    assert explain(BASE, templates).startswith("UNDECIDED; DETECTABLE")
    assert all(sentence.key in ENGLISH for sentence in sentences(BASE))
