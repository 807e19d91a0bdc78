"""The rows of a stage: exact shares of each set in every epoch, the same row after a resume."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assay.data.splits import (
    Fixed,
    Mixture,
    Part,
    RowOrder,
    Shuffled,
    epoch_shares,
    exact_shares,
    packs_of,
    visits,
)
from assay.errors import InputError

NAMES: tuple[str, ...] = ("a", "b", "c", "d")


def mixture(
    shares: dict[str, int], sizes: dict[str, int], ranks: tuple[int, ...] | None = None
) -> Mixture:
    parts, start = [], 0
    for name, share in shares.items():
        parts.append(Part(name, share, start, Shuffled(sizes[name])))
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
        Mixture((Part("x", 4, 0, mixture({"a": 3, "b": 2}, {"a": 4, "b": 2})),)),
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


def test_the_last_pack_of_a_thousand_rows_is_laid_again_with_the_next() -> None:
    assert packs_of([3, 4, 6, 5], 10) == ((2, 0), (3, 1)), "each into the emptiest"
    packs = packs_of([60] * 1000 + [40], 100)
    assert len(packs) == 1000 and len(packs[-1]) == 2
