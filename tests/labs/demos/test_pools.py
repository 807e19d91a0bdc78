"""Pools: seeded, each query's own, never with the query in it, and as similar as was asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.labs.demos.demonstrations import Demonstration, DemonstrationSet, Query
from assay.labs.demos.pools import POOL_OPTIONS, SAMPLERS, SIMILARITIES, pools_of, with_pools
from tests.labs.demos.made_sets import asked, features_of, known_features, queries, shown

__all__ = ["known_features"]


def chosen(found: DemonstrationSet, wanted, **options) -> list[tuple[int, ...]]:
    return pools_of(found, wanted, {**POOL_OPTIONS, **options})


@pytest.mark.parametrize("sampler", SAMPLERS)
@given(
    size=st.integers(1, 12),
    seed=st.integers(0, 9),
    own=st.sets(st.integers(0, 19), max_size=6),
    others=st.integers(0, 5),
)
def test_a_pool_has_its_size_no_number_twice_and_never_the_query(sampler, size, seed, own, others):
    found = shown(20)
    wanted = [
        *(Query(f"d{n}", found.demonstrations[n].question, ("a",)) for n in sorted(own)),
        *queries(others),
    ]
    with pytest.MonkeyPatch.context() as patched:
        for name in ("text_similarity", "image_similarity"):
            patched.setitem(SIMILARITIES, name, features_of)
        pools = chosen(found, wanted, pool=size, pool_seed=seed, sampler=sampler)
        alone = [chosen(found, [q], pool=size, pool_seed=seed, sampler=sampler) for q in wanted]
    assert pools == [pool for (pool,) in alone], "a pool depends on no other query"
    for query, pool in zip(wanted, pools, strict=True):
        assert len(pool) == len(set(pool)) == size
        assert set(pool) <= set(range(20)) - {found.numbers.get(query.id)}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_who_asks_the_same_is_no_candidate(known_features, sampler):
    """In another case and spacing too; about another image it is another question."""
    twin = Demonstration("twin", asked("Wants  0"), "a")
    pictured = Demonstration("pictured", asked("wants 0", "an-image"), "a")
    found = shown(3, twin, pictured)
    (pool,) = chosen(found, queries(1), pool=4, sampler=sampler)
    assert set(pool) == {0, 1, 2, 4}


def test_similar_pools_are_the_nearest_by_brute_force(known_features):
    found, wanted = shown(50), queries(7)
    pools = chosen(found, wanted, pool=9, sampler="text_similarity")
    vectors_ND = features_of([d.question for d in found.demonstrations], [])
    for query, pool in zip(wanted, pools, strict=True):
        cosines = [float(v @ features_of([query.question], [])[0]) for v in vectors_ND]
        assert list(pool) == sorted(range(50), key=lambda n: -cosines[n])[:9]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pool": 20}, "pool of 20 of the 19 demonstrations"),
        ({"shots": 17}, "17 shots of a pool of 16"),
        ({"sampler": "first"}, "unknown sampler of pools 'first'"),
        ({"mix": {"random": 3}}, "pools are no longer mixed (take the pools of one sampler)"),
    ],
)
def test_options_that_make_no_pool_are_refused_in_one_line(options, words):
    found = shown(20)
    wanted = [Query("d3", found.demonstrations[3].question, ("a",))]
    with pytest.raises(InputError) as refused:
        with_pools(found, wanted, {**POOL_OPTIONS, "shots": 2, **options})
    assert words in str(refused.value) and "\n" not in str(refused.value)
