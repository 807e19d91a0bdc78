"""Length statistics are numpy's and the standard library's; long rows are dropped and named."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import Message, Row
from assay.data.splits import BINS, PERCENTILES, Dropped, drop_short, length_statistics


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


def test_one_row_has_no_spread_and_none_have_no_length() -> None:
    assert length_statistics([7]).sd == 0.0
    empty = length_statistics([])
    assert (empty.count, empty.mean, sum(empty.histogram)) == (0, 0.0, 0)


def test_rows_that_are_too_short_are_named_and_the_limit_itself_is_kept() -> None:
    rows = [Row(f"r{n}", (Message("user", "x"),)) for n in range(3)]
    kept, dropped = drop_short(rows, [10, 11, 12], 11)
    assert [row.id for row in kept] == ["r1", "r2"]
    assert dropped == (Dropped("r0", 10, 11),)
