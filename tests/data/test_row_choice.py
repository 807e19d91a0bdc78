"""The rows of a stage: exact shares in every epoch, splits that no conversation crosses, and rows
that meet a condition; what two sets of rows share."""

import random
import statistics
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assay.data.files import hash_contents
from assay.data.leakage import EXACT, FUNCTION, NORMALISED, Overlap, overlap, separate
from assay.data.row import ImagePart, Message, Row, TextPart, ToolCall
from assay.data.row_checks import FieldCondition, field_value, sorted_places, where
from assay.data.splits import (
    PERCENTILES,
    Fixed,
    Mixture,
    MixturePart,
    RowOrder,
    Shuffled,
    conversation_of,
    epoch_shares,
    exact_shares,
    length_statistics,
    split_by_conversation,
    visits,
)
from assay.errors import InputError
from assay.train.update import packs_of

NAMES: tuple[str, ...] = ("a", "b", "c", "d")


def mixture(
    shares: dict[str, int], sizes: dict[str, int], ranks: tuple[int, ...] | None = None
) -> Mixture:
    parts, start = [], 0
    for name, share in shares.items():
        parts.append(MixturePart(name, share, start, Shuffled(sizes[name])))
        start += sizes[name]
    return Mixture(tuple(parts), ranks)


def epoch(order: RowOrder, number: int, seed: int = 3) -> list[tuple[int, int]]:
    start = number * order.count
    return [order.visit(seed, at) for at in range(start, start + order.count)]


def test_without_an_order_rows_come_as_runs_before_had_them() -> None:
    expected = []
    for number in range(2):
        generator = np.random.Generator(np.random.Philox(key=[7, number]))
        expected += [(number, "abcde"[i]) for i in generator.permutation(5)]
    assert visits("abcde", 7, 0, 10) == expected
    assert visits("abcde", 7, 3, 4) == expected[3:7]


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=4), st.integers(1, 1000))
def test_shares_add_up_and_are_less_than_a_row_from_the_weight(
    weights: list[float], count: int
) -> None:
    named = dict(zip(NAMES, weights, strict=False))
    shares = exact_shares(named, count)
    assert sum(shares.values()) == count
    total = sum(weights)
    assert all(abs(shares[n] - w / total * count) < 1 + 1e-6 for n, w in named.items())


@given(st.lists(st.tuples(st.floats(0.05, 1), st.integers(1, 60)), min_size=2, max_size=4))
def test_an_epoch_is_the_longest_that_visits_no_row_twice(sets: list[tuple[float, int]]) -> None:
    total = sum(weight for weight, _ in sets)
    weights = {name: weight / total for name, (weight, _) in zip(NAMES, sets, strict=False)}
    sizes = {name: size for name, (_, size) in zip(NAMES, sets, strict=False)}
    try:
        shares = epoch_shares(weights, sizes, None)
    except InputError:
        assume(False)
    count = sum(shares.values())
    assert all(share <= sizes[name] for name, share in shares.items())
    longer = (exact_shares(weights, count + more) for more in range(1, 200))
    assert all(any(n > sizes[name] for name, n in each.items()) for each in longer)


@pytest.mark.parametrize(
    ("weights", "sizes", "count", "message"),
    [
        ({"a": 0.5, "b": 0.5}, {"a": 4, "b": 0}, None, "'b' has no rows"),
        ({"a": 0.99, "b": 0.01}, {"a": 10, "b": 10}, None, "'b' gets no row of an epoch of 10"),
        ({"a": 0.5, "b": 0.5}, {"a": 1, "b": 500}, 500, "visits the 1 of 'a' 250 times"),
    ],
)
def test_epochs_that_make_no_sense_are_refused(
    weights: dict[str, float], sizes: dict[str, int], count: int | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        epoch_shares(weights, sizes, count)


def test_every_epoch_has_the_exact_shares_and_goes_round_in_each_set() -> None:
    order = mixture({"a": 3, "b": 7}, {"a": 10, "b": 7})
    seen: Counter[int] = Counter()
    for number in range(10):
        found = epoch(order, number)
        assert Counter(place >= 10 for _, place in found) == {False: 3, True: 7}
        assert order.sources(3, number * 10, 10) == {"a": 3, "b": 7}
        assert found != sorted(found)
        seen.update(place for _, place in found)
    assert all(seen[place] == 3 for place in range(10))
    assert all(seen[place] == 10 for place in range(10, 17))


@pytest.mark.parametrize(
    "order",
    [
        Shuffled(7),
        Fixed((2, 0, 1)),
        mixture({"a": 3, "b": 2}, {"a": 4, "b": 2}),
        mixture({"a": 3, "b": 2}, {"a": 4, "b": 2}, ranks=(5, 4, 3, 2, 1, 0)),
        Mixture((MixturePart("x", 4, 0, mixture({"a": 3, "b": 2}, {"a": 4, "b": 2})),)),
    ],
)
def test_a_stream_that_is_taken_up_again_goes_on_as_it_would_have(order: RowOrder) -> None:
    items = range(10)
    whole = visits(items, 5, 0, 40, order)
    assert [*visits(items, 5, 0, 13, order), *visits(items, 5, 13, 27, order)] == whole
    assert visits(items, 5, 26, 3, order) == whole[26:29]


def test_a_sorted_mixture_has_its_shares_and_comes_by_rank() -> None:
    order = mixture({"a": 2, "b": 2}, {"a": 4, "b": 2}, ranks=(0, 5, 1, 4, 2, 3))
    for number in range(3):
        found = epoch(order, number)
        ranks = [(0, 5, 1, 4, 2, 3)[place] for _, place in found]
        assert ranks == sorted(ranks)
        assert Counter(place >= 4 for _, place in found) == {False: 2, True: 2}


@given(st.lists(st.integers(1, 120), max_size=60))
def test_packs_hold_every_row_once_and_none_that_an_earlier_one_had_room_for(
    sizes: list[int],
) -> None:
    packs = packs_of(sizes, 100)
    assert sorted(place for pack in packs for place in pack) == list(range(len(sizes)))
    assert all(len(p) == 1 or sum(sizes[at] for at in p) <= 100 for p in packs)
    largest = [max(sizes[at] for at in pack) for pack in packs]
    filled = [sum(sizes[at] for at in pack) for pack in packs]
    assert all(filled[i] + largest[j] > 100 for j in range(len(packs)) for i in range(j))


def row(number: int, conversation: str = "") -> Row:
    return Row(f"r{number}", (Message("user", "x"),), conversation=conversation)


@given(
    conversations=st.lists(st.sampled_from(["", *"abcdefgh"]), min_size=2, max_size=40),
    dev=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
    shuffle=st.randoms(use_true_random=False),
)
def test_no_conversation_is_on_both_sides_whatever_the_order(
    conversations: list[str], dev: float, seed: int, shuffle: random.Random
) -> None:
    rows = [row(n, name) for n, name in enumerate(conversations)]
    count = len({conversation_of(r) for r in rows})
    if not 0 < round(dev * count) < count:
        with pytest.raises(InputError, match="both sides need at least one"):
            split_by_conversation(rows, dev, seed)
        return
    split = split_by_conversation(rows, dev, seed)
    sides = [{conversation_of(r) for r in side} for side in split]
    assert not sides[0] & sides[1]
    assert len(sides[1]) == round(dev * count)
    order = {r.id: n for n, r in enumerate(rows)}
    for side in split:
        assert sorted(side, key=lambda r: order[r.id]) == list(side)
    assert sum(map(len, split)) == len(rows)
    shuffled = rows.copy()
    shuffle.shuffle(shuffled)
    again = split_by_conversation(shuffled, dev, seed)
    assert {r.id for r in again[1]} == {r.id for r in split[1]}


@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=12),
    dev=st.integers(2, 40),
    seed=st.integers(0, 3),
)
def test_an_integer_is_a_number_of_rows_in_whole_conversations(
    sizes: list[int], dev: int, seed: int
) -> None:
    rows = [row(10 * n + i, f"c{n}") for n, size in enumerate(sizes) for i in range(size)]
    try:
        train, held_out = split_by_conversation(rows, dev, seed)
    except InputError:
        # All conversations are needed to have so many rows.
        assert dev > sum(sizes) - max(sizes)
        return
    held = [r.conversation for r in held_out]
    assert len(held_out) >= dev and train
    assert {r.conversation for r in train}.isdisjoint(held)
    # One conversation fewer would not have been enough.
    assert len(held_out) - max(held.count(name) for name in held) < dev
    single = [row(n) for n in range(50)]
    assert len(split_by_conversation(single, dev, seed)[1]) == dev


@given(st.lists(st.integers(1, 10_000), min_size=2, max_size=60))
def test_statistics_agree_with_the_standard_library(lengths: list[int]) -> None:
    found = length_statistics(lengths)
    assert found.mean == pytest.approx(statistics.mean(lengths))
    assert found.sd == pytest.approx(statistics.stdev(lengths), abs=1e-9)
    cuts = statistics.quantiles(lengths, n=100, method="inclusive")
    for percent in PERCENTILES:
        assert found.percentiles[percent] == pytest.approx(cuts[percent - 1])
    assert (found.smallest, found.largest) == (min(lengths), max(lengths))
    assert found.count == len(lengths)


def fielded(id_: str, gold: object = None, **extra: object) -> Row:
    return Row(id_, (Message("user", "?"),), gold=gold, origin=f"rows.jsonl:{id_}", extra=extra)


ROWS = (
    fielded("1", level=0.1, tags=["a"], on=True),
    fielded("2", level="0.5", tags=["a", "b"], on=False, name="easy sum"),
    fielded("3", level=0.9, gold={"kind": "x"}, name="hard sum"),
    fielded("4"),
)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        (FieldCondition("extra.level", at_least=0.5), "23"),
        (FieldCondition("extra.level", above=0.1, below=0.9), "2"),
        (FieldCondition("extra.level", equals=0.5), "2"),
        (FieldCondition("extra.level", one_of=(0.1, 0.9)), "13"),
        (FieldCondition("extra.level", none_of=(0.1,)), "23"),
        (FieldCondition("extra.level", exists=False), "4"),
        (FieldCondition("extra.tags", contains="b"), "2"),
        (FieldCondition("extra.name", contains="sum"), "23"),
        (FieldCondition("gold.kind", equals="x"), "3"),
    ],
)
def test_a_condition_keeps_the_rows_that_meet_it(condition: FieldCondition, kept: str) -> None:
    rows, dropped = where(ROWS, (condition,))
    assert "".join(one.id for one in rows) == kept
    (ids,) = dropped.values()
    assert {*ids} == {"1", "2", "3", "4"} - {*kept}


def test_a_row_is_counted_by_the_first_condition_that_it_misses() -> None:
    high = FieldCondition("extra.level", at_least=0.5)
    kept, dropped = where(ROWS, (high, FieldCondition("extra.level", at_most=0.6)))
    assert [one.id for one in kept] == ["2"]
    assert list(dropped.values()) == [("1", "4"), ("3",)]
    assert next(iter(dropped)) == "where: not extra.level at_least 0.5"


def test_a_path_goes_into_tables_and_over_keys_with_dots() -> None:
    nested = fielded("1", **{"a": {"b": 1}, "a.c": 2, "d": {"e.f": 3}})
    paths = ("extra.a.b", "extra.a.c", "extra.d.e.f", "extra.a.x", "extra.a.b.c")
    assert [field_value(nested, path) for path in paths] == [1, 2, 3, None, None]


def test_rows_are_sorted_by_value_and_equal_ones_stay_as_given() -> None:
    levels = [3, "1", 2.0, 1, 10]
    rows = [fielded(str(n), level=level) for n, level in enumerate(levels)]
    assert sorted_places(rows, "extra.level", False) == (1, 3, 2, 0, 4)
    assert sorted_places(rows, "extra.level", True) == (4, 0, 2, 1, 3)
    named = [fielded(str(n), name=name) for n, name in enumerate(["b", "a", "10"])]
    assert sorted_places(named, "extra.name", False) == (2, 1, 0)


def asking(name: str, text: str, *functions: str) -> Row:
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
    found = overlap([asking("a", other)], [asking("x", ONE)])
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
    assert overlap([asking("a", left)], [asking("x", right)]).normalised == ()


def train_ids(found: Overlap) -> frozenset[str]:
    texts = {train for train, _ in found.exact + found.normalised + found.paths}
    return frozenset(texts.union(*found.functions.values()))


def test_equal_texts_and_shared_functions_are_found_with_their_ids() -> None:
    train = [
        asking("a", "Hi there!", "f"),
        asking("b", "hi there", "f", "g"),
        asking("c", "New", "h"),
    ]
    found = overlap(train, [asking("x", "Hi there!", "f"), asking("y", "Other", "g")])
    assert found.exact == (("a", "x"),)
    assert found.normalised == (("a", "x"), ("b", "x"))
    assert found.functions == {"f": ("a", "b"), "g": ("b",)}
    assert train_ids(found) == {"a", "b"}
    assert train_ids(overlap(train[2:], [asking("x", "Hi there!", "f")])) == frozenset()


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
    return replace(asking(name, f"question {name}", "f"), gold=list(calls))


def test_a_path_is_shared_where_all_calls_of_the_test_row_follow_each_other() -> None:
    test = [played("t", ["f(1)"], ["f(2)"])]
    inside = played("inside", ["f(0)", "f(1)"], ["f(2)"])
    split = played("split", ["f(1)", "f(0)"], ["f(2)"])
    part = played("part", ["f(1)"])
    found = overlap([inside, split, part], test)
    assert found.paths == (("inside", "t"),)
    assert found.functions == {}
    assert train_ids(found) == {"inside"}


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
    assert train_ids(apart) == frozenset() and apart.normalised == ()
    same = overlap(train, [hidden("x", 2)], lambda row: True)
    assert same.exact == (("2", "x"),)
    again = overlap(train[:1], [hidden("x", 8), hidden("y", 9)], lambda row: True)
    assert train_ids(again) == frozenset()
    kept = separate(train, [hidden("x", 2)], lambda row: True)
    assert [each.id for each in kept.rows] == ["1", "3"]


def test_one_question_with_two_golds_is_shared_where_nothing_is_played_or_each_asks_it_once() -> (
    None
):
    train = [game("1", 1), game("2", 2)]
    assert train_ids(overlap(train, [game("x", 8)])) == {"1", "2"}
    assert train_ids(overlap(train[:1], [game("x", 8)], lambda row: True)) == {"1"}
    others = [game("3", 3, "Other"), game("4", 4, "Other 2")]
    assert train_ids(overlap(others, [game("x", 8, "other")], lambda row: True)) == {"3"}


def test_each_row_goes_once_for_its_strongest_reason_and_the_others_stay_in_order() -> None:
    item = asking("t", "What is 2 + 2?", "add")
    rows = [
        asking("a", "What is 2 - 2?", "subtract"),
        asking("b", "What is 2 + 2?", "add"),
        asking("c", "what is  2 + 2", "other"),
        asking("d", "What is 3 + 3?", "other", "add"),
        asking("e", "Hello", "greet"),
    ]
    loaded = separate(rows, [item, replace(item, id="u")])
    assert [each.id for each in loaded.rows] == ["e"]
    assert loaded.dropped == {EXACT: ("b",), NORMALISED: ("a", "c"), FUNCTION: ("d",)}
