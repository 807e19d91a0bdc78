"""Counts agree with their nouns, and every other gap is as Python fills it."""

import pytest

from assay.judge.templates import NOUNS, filled


@pytest.mark.parametrize("noun", NOUNS)
def test_one_is_singular_and_any_other_number_plural(noun: str) -> None:
    said = [filled(f"{{n:{noun}}}", {"n": n}) for n in (0, 1, 2, "1", "1,000", "11")]
    one = noun.removesuffix("s")
    assert said == [f"0 {noun}", f"1 {one}", f"2 {noun}", f"1 {one}", f"1,000 {noun}", f"11 {noun}"]


@pytest.mark.parametrize(
    ("template", "count", "said"),
    [
        ("{n:needed items}", 1, "1 item"),
        ("{n:needed items}", 100_000, "100000 items"),
        ("{n:needed items}", 24_491_581, "more than 100,000 items"),
        ("{n:needed trials}", 812, "812 trials"),
        ("{n:needed 超过} 道题", 812, "812 道题"),
        ("{n:needed 超过} 道题", 24_491_581, "超过 100,000 道题"),
    ],
)
def test_a_needed_number_beyond_all_sense_is_not_written_out(template, count, said) -> None:
    assert filled(template, {"n": count}) == said
