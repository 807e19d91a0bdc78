"""Answers in words are compared as the scripts of HotpotQA and DROP compare them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.labs.workflows.answers import agreement, drop, drop_words, hotpotqa, normalised

WORDS = st.sampled_from(
    ["a", "the", "Yes", "no", "7", "7.0", "1,000", "-5", "Bears", "bear-s", "."]
)
TEXTS = st.lists(WORDS, max_size=5).map(" ".join)


@pytest.mark.parametrize(
    ("answer", "truth", "score"),
    [
        ("The Eiffel Tower.", "eiffel tower", 1.0),
        ("Eiffel", "Eiffel Tower", 2 / 3),
        ("tower eiffel", "Eiffel Tower", 1.0),
        ("yes it is", "yes", 0.0),
        ("88 of them", "88", 0.5),
        ("688", "68.8", 1.0),
    ],
)
def test_f1_is_hotpotqas(answer: str, truth: str, score: float) -> None:
    assert hotpotqa(answer, truth) == pytest.approx(score)


@pytest.mark.parametrize(
    ("answer", "truth", "score"),
    [
        ("25", "25.0", 1.0),
        ("John Elton", "Elton John", 1.0),
        ("78-year-old", "78 year old", 1.0),
        ("688", "68.8", 0.0),
        ("$1,400!", "1400", 1.0),
        ("25 to 44", "under 25", 0.4),
        ("under the age", "under the age of 18", 0.0),
        ("b b", "b", 1.0),
    ],
)
def test_f1_is_drops(answer: str, truth: str, score: float) -> None:
    """Numbers are numbers, and an answer without any of the right one's scores nothing."""
    assert drop(answer, truth) == pytest.approx(score)


@given(TEXTS, TEXTS, st.sampled_from(["hotpotqa", "drop"]))
def test_agreement_is_a_share_that_is_full_for_equal_texts_alone(
    answer: str, truth: str, rules: str
) -> None:
    f1 = agreement(answer, [truth], rules)
    assert 0 <= f1 <= 1
    words = bool(normalised(truth) if rules == "hotpotqa" else drop_words(truth))
    assert agreement(truth, [truth], rules) == words
    assert agreement(answer, [truth, answer], rules) >= f1


def test_the_best_of_several_right_answers_counts_and_several_given_ones_do_not() -> None:
    assert agreement("33", ["88", "33"], "drop") == 1
    assert agreement("Paris France", ["France Paris", "Paris France"]) == 1
    assert agreement("88|33", ["88", "33"], "drop") == 0
