"""Harmonic scores with their intervals and paired tests, against simulation and closed forms."""

import pytest

from assay.judge.averages import (
    compare_harmonic,
    harmonic_ratio,
    harmonic_score,
)
from assay.judge.paired import compare
from assay.judge.scores import ItemScores
from tests.judge.simulated import single_pass

COUNTS = [(16, 40), (933, 1319), (206, 500), (73, 675)]
BASELINES = [0.30, 0.716, 0.44, 0.096]


def right(hits: int, items: int) -> ItemScores:
    return single_pass([1.0] * hits + [0.0] * (items - hits))


def test_the_score_of_items_is_that_of_their_counts():
    parts = [right(*counts) for counts in COUNTS]
    assert harmonic_score(parts, BASELINES) == 1.0758890919394155
    assert harmonic_ratio([(0, 40), *COUNTS[1:]], BASELINES) == 0.0


def test_one_benchmark_is_compared_as_its_score_is():
    control, other = right(80, 200), single_pass([1.0] * 60 + [0.0] * 20 + [1.0] * 36 + [0.0] * 84)
    alone = compare(control, other)
    found = compare_harmonic([control], [other], [0.5])
    assert found.difference == pytest.approx(alone.difference / 0.5)
    width = alone.interval.half_width / 0.5
    assert found.interval.half_width == pytest.approx(width, rel=0.1)
    assert found.p_value == pytest.approx(alone.p_value, rel=0.3)
    assert found.verdict == alone.verdict == "better"


def test_a_benchmark_at_zero_does_not_break_the_comparison():
    found = compare_harmonic(
        [right(0, 40), right(50, 60)], [right(9, 40), right(50, 60)], [0.3, 0.5]
    )
    assert found.control_score == 0.0
    assert found.difference == pytest.approx(found.score)
    assert found.interval.low < found.difference < found.interval.high
    assert found.verdict == "better"
