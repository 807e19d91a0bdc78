"""Subsets and splits: exact, seeded, blind to row order, and never a conversation on both sides."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import Message, Row
from assay.data.splits import conversation_of, split_by_conversation, take
from assay.errors import InputError


def row(number: int, conversation: str = "") -> Row:
    return Row(f"r{number}", (Message("user", "x"),), conversation=conversation)


ROWS = [row(n) for n in range(50)]


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
    sides = [{conversation_of(r) for r in side} for side in (split.train, split.dev)]
    assert not sides[0] & sides[1]
    assert len(sides[1]) == round(dev * count)
    order = {r.id: n for n, r in enumerate(rows)}
    for side in (split.train, split.dev):
        assert sorted(side, key=lambda r: order[r.id]) == list(side)
    assert len(split.train) + len(split.dev) == len(rows)
    shuffled = rows.copy()
    shuffle.shuffle(shuffled)
    again = split_by_conversation(shuffled, dev, seed)
    assert {r.id for r in again.dev} == {r.id for r in split.dev}


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
        split = split_by_conversation(rows, dev, seed)
    except InputError:
        # All conversations are needed to have so many rows.
        last = min(sizes) if dev <= sum(sizes) else 0
        assert dev > sum(sizes) - max(sizes) or dev > sum(sizes) - last
        return
    held = [r.conversation for r in split.dev]
    assert len(split.dev) >= dev and split.train
    assert {r.conversation for r in split.train}.isdisjoint(held)
    # One conversation fewer would not have been enough.
    assert len(split.dev) - max(held.count(name) for name in held) < dev
    single = [row(n) for n in range(50)]
    assert len(split_by_conversation(single, dev, seed).dev) == dev


def test_a_larger_dev_part_holds_the_smaller_one_whether_rows_or_share() -> None:
    few, more = (split_by_conversation(ROWS, dev).dev for dev in (5, 0.2))
    assert len(few) == 5 and len(more) == 10 and set(map(id, few)) <= set(map(id, more))
    with pytest.raises(InputError, match=r"50 of 50 rows .*both sides need at least one"):
        split_by_conversation(ROWS, 50)


def test_the_seed_decides_and_the_choice_is_not_the_order_of_the_file() -> None:
    assert split_by_conversation(ROWS, 0.2, 1) == split_by_conversation(ROWS, 0.2, 1)
    assert split_by_conversation(ROWS, 0.2, 1) != split_by_conversation(ROWS, 0.2, 2)
    assert take(ROWS, 10, "random", 1).rows != take(ROWS, 10, "random", 2).rows
    assert take(ROWS, 10, "random", 1).rows != tuple(ROWS[:10])


def test_every_row_is_equally_likely_to_be_taken() -> None:
    hits = [0] * 50
    for seed in range(400):
        for r in take(ROWS, 10, "random", seed).rows:
            hits[int(r.id[1:])] += 1
    assert min(hits) > 45 and max(hits) < 120  # mean 80, sd 8
