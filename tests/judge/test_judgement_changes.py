"""What changed between two judgements of the same samples: counted whole, unknown kept apart."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.judgement_changes import MOST_VALUES, distribution, histogram, turn

known = st.floats(-5, 5).map(lambda x: round(x, 3))
values = st.lists(st.one_of(st.none(), known, st.sampled_from([0.0, 1.0])), max_size=40)


def test_the_numbers_of_a_distribution_are_those_of_its_known_values():
    found = distribution([1.0, None, 2.0, 3.0, None, 6.0])
    assert (found.known, found.unknown) == (4, 2)
    assert (found.mean, found.low, found.high) == (3.0, 1.0, 6.0)
    assert found.deviation == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 4))
    # Linear between order statistics: a quarter of the way from the first to the fourth.
    assert (found.quarter, found.median, found.three_quarters) == (1.75, 2.5, 3.75)


def test_nothing_known_has_no_numbers_rather_than_zeros():
    found = distribution([None, None])
    assert (found.known, found.unknown, found.mean, found.high) == (0, 2, None, None)
    assert histogram([None], []) == ()


@given(values, values)
def test_every_known_value_falls_into_one_bin_of_its_own_side(before, after):
    bins = histogram(before, after)
    assert sum(b.before for b in bins) == sum(v is not None for v in before)
    assert sum(b.after for b in bins) == sum(v is not None for v in after)
    assert all(b.low <= b.high for b in bins) and len(bins) <= MOST_VALUES
    assert all(a.high <= b.low for a, b in pairwise(bins))


@given(st.lists(st.sampled_from([0.0, 0.1, 1.0, -2.0]), min_size=1, max_size=30))
def test_few_values_have_a_bin_each_with_their_exact_count(before):
    bins = histogram(before, [])
    assert [(b.low, b.before) for b in bins] == [(v, before.count(v)) for v in sorted({*before})]


def test_rounding_does_not_split_a_bin():
    (only,) = histogram([0.1 + 0.2], [0.3])
    assert (only.before, only.after) == (1, 1)


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (1.0, -0.1, "flipped"),
        (-3.0, 2.0, "flipped"),
        (0.0, -2.0, "raised"),
        (0.5, 0.0, "silenced"),
        (0.5, 7.0, "same"),
        (-0.5, -7.0, "same"),
        (0.0, -0.0, "silent"),
        (None, 1.0, "unknown"),
        (1.0, None, "unknown"),
    ],
)
def test_a_sign_turns_as_named(before, after, what):
    assert turn(before, after) == what


@given(known)
def test_negation_flips_all_but_zero(value):
    assert turn(value, -value) == ("flipped" if value else "silent")
    assert turn(value, 3 * value) == ("same" if value else "silent")
