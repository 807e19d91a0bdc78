"""ROUGE-L equals rouge-score's, and no near-duplicate is missed however they are looked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.diversity import NearTexts, clusters, distinct, words_in

ROUGE_SCORE_0_1_2 = [
    ("How many apples does Tom have?", "How many apples has Tom got now?", 8 / 13),
    ("What is 3 + 4?", "What is 4 + 3?", 0.75),
    ("the cat sat on the mat", "on the mat the cat sat", 0.5),
    ("Convert 20 euros into yen", "Convert 35 dollars into yen, please", 6 / 11),
    ("a b a b a b", "b a b a", 0.8),
    ("", "something", 0.0),
    ("same words", "Same WORDS!", 1.0),
]


def rouge_l(one: str, other: str) -> float:
    known = NearTexts(0.0)
    known.add("other", other)
    return next((score for _, score in known.near(one)), 0.0)


WORDS = st.lists(st.sampled_from("abcd"), max_size=9).map(" ".join)


@pytest.mark.parametrize(("one", "other", "score"), ROUGE_SCORE_0_1_2)
def test_rouge_l_is_that_of_rouge_score(one, other, score):
    assert rouge_l(one, other) == pytest.approx(score)


def by_table(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """The longest common subsequence by its textbook table."""
    row = [0] * (len(other) + 1)
    for word in one:
        before = row
        row = [0]
        for place, each in enumerate(other):
            same = before[place] + 1
            row.append(same if word == each else max(before[place + 1], row[-1]))
    return row[-1]


def by_definition(one: str, other: str) -> float:
    """Twice the common subsequence over both lengths."""
    left, right = words_in(one), words_in(other)
    return 2 * by_table(left, right) / (len(left) + len(right)) if left and right else 0.0


@given(WORDS, WORDS)
def test_rouge_l_is_twice_the_common_subsequence_over_both_lengths(one, other):
    assert rouge_l(one, other) == pytest.approx(by_definition(one, other))


@given(st.lists(WORDS, max_size=12), st.sampled_from([0.3, 0.5, 0.7, 1.0]))
def test_near_duplicates_are_all_those_that_a_look_at_every_pair_finds(texts, least):
    known = NearTexts(least)
    for number, text in enumerate(texts):
        pairs = [(n, by_definition(text, texts[n])) for n in range(number)]
        assert [*known.near(text)] == [(n, pytest.approx(s)) for n, s in pairs if s >= least and s]
        known.add(number, text)


def test_a_threshold_is_part_of_what_is_near():
    known = NearTexts(0.75)
    known.add("first", "What is 3 + 4?")
    assert [*known.near("What is 4 + 3?")] == [("first", 0.75)]
    assert not [*known.near("Which is 4 + 3?")]


def test_clusters_hold_what_a_chain_of_near_duplicates_joins():
    texts = ["a b c d", "x y", "b c d e", "c d e f", "x z"]
    assert clusters(texts, 0.75) == [[0, 2, 3], [1], [4]]


def test_distinct_ngrams_are_counted_within_texts_and_up_to_as_many_as_asked():
    texts = [("a", "b", "a"), ("a", "b")]
    assert (distinct(texts, 1).different, distinct(texts, 1).all) == (2, 5)
    assert (distinct(texts, 2).different, distinct(texts, 2).all) == (2, 3)
    assert distinct(texts, 2, 2).share == 1.0
    assert distinct(texts, 4).share == 0.0


def test_signs_of_scripts_without_spaces_are_words():
    assert words_in("今天 weather 好!") == ("今", "天", "weather", "好")
