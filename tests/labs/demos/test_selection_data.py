"""RL data holds every set of demonstrations once, by its best origin, and what is drawn depends on
seed and query alone.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import Message, Row
from assay.labs.demos.demonstrations import Demonstration, DemonstrationSet, Query, query_row
from assay.labs.demos.generate import distinct, drawn, retrieved
from assay.labs.demos.selection_file import METHODS, Candidate


def row(pool: list[int], shots: int, name: str = "q") -> Row:
    shown = (Demonstration(str(n), Message("user", str(n)), "a") for n in range(50))
    query = Query(name, Message("user", "?"), ("a",))
    return query_row(DemonstrationSet("set", "", tuple(shown)), query, pool, shots)


PROPOSALS = st.builds(
    Candidate,
    st.permutations(range(4)).map(lambda picks: tuple(picks[:2])),
    st.sampled_from(METHODS),
)


@given(st.lists(PROPOSALS, max_size=12))
def test_each_set_is_kept_once_by_the_first_method_that_found_it(proposals):
    kept = distinct(proposals)
    sets = [frozenset(each.picks) for each in kept]
    assert len(set(sets)) == len(sets)
    assert set(sets) == {frozenset(each.picks) for each in proposals}
    for each in kept:
        same = [p for p in proposals if {*p.picks} == {*each.picks}]
        assert each == min(same, key=lambda p: METHODS.index(p.method))


@given(st.data())
def test_retrieved_sets_are_the_most_similar_ones_of_all(data):
    pool, shots = list(range(6)), data.draw(st.integers(0, 3))
    similarity = {n: data.draw(st.integers(-8, 8)) / 8 for n in pool}
    count = data.draw(st.integers(0, 7))
    found = [each.picks for each in retrieved(row(pool, shots), similarity, count)]
    every = itertools.combinations(pool, shots)
    best = sorted((sum(similarity[n] for n in picks) for picks in every), reverse=True)
    assert [sum(similarity[n] for n in picks) for picks in found] == pytest.approx(best[:count])
    for picks in found:
        assert [similarity[n] for n in picks] == sorted(similarity[n] for n in picks)[::-1]


def test_what_is_drawn_depends_on_seed_and_query():
    pool = list(range(20))
    one = drawn(row(pool, 2), 5, 1)
    assert one == drawn(row(pool, 2), 5, 1)
    assert one != drawn(row(pool, 2), 5, 2) and one != drawn(row(pool, 2, "r"), 5, 1)
    for each in one:
        assert len({*each.picks}) == 2 and {*each.picks} <= {*pool}
