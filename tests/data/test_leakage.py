"""Fingerprints of rows, normal forms of text, and what two sets of rows share."""

from dataclasses import replace
from typing import Any

import pytest

from assay.data.hashing import hash_contents
from assay.data.leakage import (
    EXACT,
    FUNCTION,
    NORMALISED,
    overlap,
    separate,
)
from assay.data.row import ImagePart, Message, Row, TextPart, ToolCall


def row(name: str, text: str, *functions: str) -> Row:
    tools: tuple[dict[str, Any], ...] = tuple({"name": function} for function in functions)
    return Row(name, (Message("system", "same"), Message("user", text)), tools)


ONE = r"Let $f(x) = \frac{1}{2}x + \left(x^{2}\right)$. Find $f(12)$."


@pytest.mark.parametrize(
    "other",
    [
        ONE.replace("$", "").replace(" ", ""),
        r"Let \(f ( x )=\dfrac12\, x+( x^2 )\). Find \[ f(12) \]",
        r"let $f(x)\;=\;\tfrac{1}{2} x\!+\quad(x^{2})$.  find~$f( 12 )$",
    ],
)
def test_questions_that_differ_in_latex_spacing_are_the_same(other: str) -> None:
    found = overlap([row("a", other)], [row("x", ONE)])
    assert found.exact == () and found.normalised == (("a", "x"),)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (ONE, ONE.replace("12", "13")),
        ("What is 1+12?", "What is 11+2?"),
        (r"Is $a \leftarrow b$ so?", r"Is $a \rightarrow b$ so?"),
    ],
)
def test_questions_that_differ_in_what_they_ask_stay_apart(left: str, right: str) -> None:
    assert overlap([row("a", left)], [row("x", right)]).normalised == ()


def test_equal_texts_and_shared_functions_are_found_with_their_ids() -> None:
    train = [row("a", "Hi there!", "f"), row("b", "hi there", "f", "g"), row("c", "New", "h")]
    found = overlap(train, [row("x", "Hi there!", "f"), row("y", "Other", "g")])
    assert found.exact == (("a", "x"),)
    assert found.normalised == (("a", "x"), ("b", "x"))
    assert found.functions == {"f": ("a", "b"), "g": ("b",)}
    assert found.train_ids == {"a", "b"}
    assert overlap(train[2:], [row("x", "Hi there!", "f")]).train_ids == frozenset()


def test_a_row_of_text_has_the_hash_that_older_runs_recorded() -> None:
    call = ToolCall("f", {"a": 1}, "i")
    answer = Message("assistant", "x", (call,), reasoning="r", loss=False)
    asked = (Message("system", "s"), Message("user", "u"))
    rows = [Row("a", (*asked, answer), ({"type": "function"},), "g")]
    assert hash_contents(rows).startswith("73f721b0941b120a229d34e4b85c1689")


def test_an_image_counts_by_its_bytes_and_its_place_in_the_message() -> None:
    def shown(*parts: TextPart | ImagePart) -> str:
        return hash_contents([Row("a", (Message("user", "look", parts=parts),))])

    text, image = TextPart("look"), ImagePart("aa", "image/png", data=b"1")
    assert shown(text, image) == shown(text, replace(image, path="b.png", data=None))
    others = (shown(), shown(image, text), shown(text, replace(image, sha256="bb")))
    assert len({shown(text, image), *others}) == 4


def played(name: str, *calls: list[str]) -> Row:
    return replace(row(name, f"question {name}", "f"), gold=list(calls))


def test_a_path_is_shared_where_all_calls_of_the_test_row_follow_each_other() -> None:
    test = [played("t", ["f(1)"], ["f(2)"])]
    inside = played("inside", ["f(0)", "f(1)"], ["f(2)"])
    split = played("split", ["f(1)", "f(0)"], ["f(2)"])
    part = played("part", ["f(1)"])
    found = overlap([inside, split, part], test)
    assert found.paths == (("inside", "t"),)
    assert found.functions == {}
    assert found.train_ids == {"inside"}


def game(name: str, gold: object, text: str = "Guess!", **extra: object) -> Row:
    return Row(name, (Message("user", text),), gold=gold, extra=extra)


@pytest.mark.parametrize("field", ["gold", "extra"])
def test_dialogues_with_one_opening_prompt_are_told_apart_by_their_hidden_state(field: str) -> None:
    """A game's rows share a question; a test item was trained on where its state was."""

    def hidden(name: str, state: int, text: str = "Guess!") -> Row:
        by_gold = field == "gold"
        return game(name, state if by_gold else None, text, **({} if by_gold else {"n": state}))

    train = [hidden(str(n), n) for n in range(1, 4)]
    apart = overlap(train, [hidden("x", 8, "guess")], lambda row: True)
    assert apart.train_ids == frozenset() and apart.normalised == ()
    same = overlap(train, [hidden("x", 2)], lambda row: True)
    assert same.exact == (("2", "x"),)
    again = overlap(train[:1], [hidden("x", 8), hidden("y", 9)], lambda row: True)
    assert again.train_ids == frozenset()
    kept = separate(train, [hidden("x", 2)], lambda row: True)
    assert [each.id for each in kept.rows] == ["1", "3"]


def test_one_question_with_two_golds_is_shared_where_nothing_is_played_or_each_asks_it_once() -> (
    None
):
    train = [game("1", 1), game("2", 2)]
    assert overlap(train, [game("x", 8)]).train_ids == {"1", "2"}
    assert overlap(train[:1], [game("x", 8)], lambda row: True).train_ids == {"1"}
    others = [game("3", 3, "Other"), game("4", 4, "Other 2")]
    assert overlap(others, [game("x", 8, "other")], lambda row: True).train_ids == {"3"}


def test_each_row_goes_once_for_its_strongest_reason_and_the_others_stay_in_order() -> None:
    item = row("t", "What is 2 + 2?", "add")
    rows = [
        row("a", "What is 2 - 2?", "subtract"),
        row("b", "What is 2 + 2?", "add"),
        row("c", "what is  2 + 2", "other"),
        row("d", "What is 3 + 3?", "other", "add"),
        row("e", "Hello", "greet"),
    ]
    loaded = separate(rows, [item, replace(item, id="u")])
    assert [each.id for each in loaded.rows] == ["e"]
    assert loaded.dropped == {EXACT: ("b",), NORMALISED: ("a", "c"), FUNCTION: ("d",)}
