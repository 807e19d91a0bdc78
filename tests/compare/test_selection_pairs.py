"""Agreement of selections."""

from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.compare.arm import SelectionPair, agree, selections_in

PICKS = st.lists(st.integers(0, 8), max_size=3, unique=True).map(tuple)
BOTH = st.lists(st.tuples(PICKS, PICKS), min_size=1, max_size=8)


def pair(one: dict, two: dict) -> SelectionPair:
    found = agree("a", "b", one, two)
    assert found is not None
    return found


def test_queries_of_both_count_by_order_by_set_and_by_jaccard():
    found = pair(
        {0: (1, 2), 1: (3, 4), 2: (1, 2), 3: (3,), 4: (), 5: (9,)},
        {0: (2, 1), 1: (3, 4), 2: (2, 5), 3: (4,), 4: ()},
    )
    assert (found.queries, found.same_order, found.same_set) == (5, 2, 3)
    assert found.jaccard == pytest.approx(mean([1, 1, 1 / 3, 0, 1]))
    assert agree("a", "b", {0: (1,)}, {1: (1,)}) is None


@given(BOTH)
def test_agreement_is_symmetric_and_order_implies_set_implies_jaccard(both):
    one, two = ({n: pair[side] for n, pair in enumerate(both)} for side in (0, 1))
    found = pair(one, two)
    assert found == pair(two, one)
    assert found.same_order <= found.same_set <= found.queries
    assert found.same_set / found.queries - 1e-9 <= found.jaccard <= 1
    assert (found.jaccard == pytest.approx(1)) == (found.same_set == found.queries)


@pytest.mark.parametrize("text", ["", "4", "[1, 1]", "[true]", "[1.0]", '["1"]', "a [1]", "{}"])
def test_a_text_that_is_no_list_of_different_numbers_is_no_selection(text):
    assert selections_in({0: "[1, 2]", 1: text}) is None


def test_a_record_of_nothing_but_empty_lists_picks_nothing():
    """Zero-shot answers of a selector, and lists that a language model may write."""
    assert selections_in({0: "[]", 1: "[]"}) is None
    assert selections_in({0: "[]", 1: "[7]"}) == {0: (), 1: (7,)}
