"""Subsets and splits: exact, seeded, blind to row order, and never a conversation on both sides."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import Message, Row
from assay.data.splits import (
    BINS,
    PERCENTILES,
    conversation_of,
    length_statistics,
    split_by_conversation,
    within_tokens,
)
from assay.errors import InputError


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
        last = min(sizes) if dev <= sum(sizes) else 0
        assert dev > sum(sizes) - max(sizes) or dev > sum(sizes) - last
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
    assert sum(found.histogram) == found.count == len(lengths)
    assert len(found.edges) == len(found.histogram) + 1 == BINS + 1


def test_rows_that_are_too_short_are_named_and_the_limit_itself_is_kept() -> None:
    rows = [Row(f"r{n}", (Message("user", "x"),)) for n in range(3)]
    kept, dropped = within_tokens(rows, [10, 11, 12], least=11)
    assert [row.id for row in kept] == ["r1", "r2"]
    assert dropped == ("r0",)
