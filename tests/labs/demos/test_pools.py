"""Pools: seeded, each query's own, never with the query in it, and as similar as was asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.labs.demos.demonstrations import Demonstration, DemonstrationSet, Query
from assay.labs.demos.pools import (
    POOL_OPTIONS,
    SAMPLERS,
    SIMILARITIES,
    most_similar,
    pools_of,
    quotas_of,
    with_pools,
)
from tests.labs.demos.made_sets import asked, features_of, known_features, queries, shown

__all__ = ["known_features"]
MIXES = {"random": 3, "text_similarity": 1}


def chosen(found: DemonstrationSet, wanted, **options) -> list[tuple[int, ...]]:
    return pools_of(found, wanted, {**POOL_OPTIONS, **options})


def options_of(sampler: str) -> dict[str, object]:
    return {"sampler": sampler, "mix": MIXES if sampler == "mix" else {}}


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
        *(Query(f"d{n}", found.demonstrations[n].asked, ("a",)) for n in sorted(own)),
        *queries(others),
    ]
    with pytest.MonkeyPatch.context() as patched:
        for name in ("text_similarity", "image_similarity"):
            patched.setitem(SIMILARITIES, name, features_of)
        pools = chosen(found, wanted, pool=size, pool_seed=seed, **options_of(sampler))
        alone = [
            chosen(found, [q], pool=size, pool_seed=seed, **options_of(sampler)) for q in wanted
        ]
    assert pools == [pool for (pool,) in alone], "a pool depends on no other query"
    for query, pool in zip(wanted, pools, strict=True):
        assert len(pool) == len(set(pool)) == size
        assert set(pool) <= set(range(20)) - {found.numbers.get(query.id)}


def test_random_pools_are_uniform():
    """Each of 10 demonstrations is in 4 of 10 pools; 4 standard deviations of a binomial."""
    pools = chosen(shown(10), queries(3000), pool=4)
    counts = np.bincount([n for pool in pools for n in pool], minlength=10)
    assert np.abs(counts - 1200).max() < 4 * (3000 * 0.4 * 0.6) ** 0.5


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_who_asks_the_same_is_no_candidate(known_features, sampler):
    """In another case and spacing too; about another image it is another question."""
    twin = Demonstration("twin", asked("Wants  0"), "a")
    pictured = Demonstration("pictured", asked("wants 0", "an-image"), "a")
    found = shown(3, twin, pictured)
    (pool,) = chosen(found, queries(1), pool=4, **options_of(sampler))
    assert set(pool) == {0, 1, 2, 4}


def test_similar_pools_are_the_nearest_by_brute_force(known_features):
    found, wanted = shown(50), queries(7)
    pools = chosen(found, wanted, pool=9, sampler="text_similarity")
    vectors_ND = features_of([d.asked for d in found.demonstrations], [])
    for query, pool in zip(wanted, pools, strict=True):
        cosines = [float(v @ features_of([query.asked], [])[0]) for v in vectors_ND]
        assert list(pool) == sorted(range(50), key=lambda n: -cosines[n])[:9]


@given(
    scores=st.lists(st.integers(-3, 3), min_size=2, max_size=12),
    count=st.integers(1, 12),
    data=st.data(),
)
def test_equally_similar_ones_come_in_the_order_of_their_numbers(scores, count, data):
    excluded = data.draw(st.sets(st.integers(0, len(scores) - 1), max_size=len(scores) - 1))
    count = min(count, len(scores) - len(excluded))
    vectors_ND = np.array(scores, np.float32)[:, None]
    (found,) = most_similar(np.ones((1, 1), np.float32), vectors_ND, count, [excluded])
    allowed = [n for n in range(len(scores)) if n not in excluded]
    assert list(found) == sorted(allowed, key=lambda n: (-scores[n], n))[:count]


@given(
    mix=st.fixed_dictionaries({"random": st.integers(1, 5), "text_similarity": st.integers(1, 5)}),
    size=st.integers(1, 16),
)
def test_a_mix_holds_the_nearest_in_their_share_and_drawn_ones_beside_them(mix, size):
    found, wanted = shown(40), queries(3)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(SIMILARITIES, "text_similarity", features_of)
        pools = chosen(found, wanted, pool=size, sampler="mix", mix=mix)
        nearest = chosen(found, wanted, pool=size, sampler="text_similarity")
    drawn = chosen(found, wanted, pool=size)
    near, far = quotas_of(size, [mix["text_similarity"], mix["random"]])
    for pool, similar, random in zip(pools, nearest, drawn, strict=True):
        assert pool[:near] == similar[:near]
        others = [n for n in random if n not in pool[:near]][:far]
        assert list(pool[near:]) == others


@given(st.integers(0, 64), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_quotas_add_up_and_are_within_one_of_their_share(size, shares):
    quotas = quotas_of(size, shares)
    assert sum(quotas) == size
    exact = [size * share / sum(shares) for share in shares]
    assert all(abs(quota - share) < 1 for quota, share in zip(quotas, exact, strict=True))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pool": 20}, "pool of 20 of the 19 demonstrations"),
        ({"shots": 17}, "17 shots of a pool of 16"),
        ({"sampler": "first"}, "unknown sampler of pools 'first'"),
        ({"sampler": "mix", "mix": {"random": 0}}, "a share of 0"),
    ],
)
def test_options_that_make_no_pool_are_refused_in_one_line(options, words):
    found = shown(20)
    wanted = [Query("d3", found.demonstrations[3].asked, ("a",))]
    with pytest.raises(InputError) as refused:
        with_pools(found, wanted, {**POOL_OPTIONS, "shots": 2, **options})
    assert words in str(refused.value) and "\n" not in str(refused.value)
