"""The harmonic mean of ratios with its bootstrap, against closed forms and simulation."""

import numpy as np
import pytest
from scipy import stats

from assay.errors import InputError
from assay.judge.averages import compare_harmonic, harmonic_interval, harmonic_ratio, harmonic_score
from assay.judge.paired import compare
from assay.judge.scores import ItemScores
from tests.judge.simulated import item_ids, single_pass

SIZES = (40, 1319, 500, 675)
BASELINES = (0.30, 0.716, 0.44, 0.096)
REPORTED = {
    "short CoT": (16, 933, 206, 73),
    "long CoT": (13, 915, 204, 93),
    "GRPO": (21, 1022, 309, 166),
}
"""Right answers on AMC23, GSM8K, MATH-500 and OlympiadBench that round to report 001's accuracies:
.40/.707/.412/.108, .325/.694/.408/.138 and .525/.775/.618/.246."""


def right(hits: int, items: int) -> ItemScores:
    return single_pass([1.0] * hits + [0.0] * (items - hits))


def parts(name: str) -> list[ItemScores]:
    return [right(*counts) for counts in zip(REPORTED[name], SIZES, strict=True)]


def test_the_rows_of_report_001_come_out_of_its_counts():
    value = harmonic_score(parts("short CoT"), BASELINES)
    assert value == pytest.approx(1.0758890919394155, rel=1e-15)
    assert harmonic_ratio([(0, 40), *zip(REPORTED["GRPO"], SIZES, strict=True)][:4], BASELINES) == 0
    found = {name: harmonic_interval(parts(name), BASELINES) for name in REPORTED}
    for name, each in found.items():
        ratios = [h / n / b for h, n, b in zip(REPORTED[name], SIZES, BASELINES, strict=True)]
        assert each.low < 4 / sum(1 / r for r in ratios) < each.high
    assert found["short CoT"].low < 1 < found["GRPO"].low


def test_one_benchmark_of_right_and_wrong_items_has_jeffreys_interval():
    for hits, items in ((60, 200), (3, 40), (40, 40)):
        found = harmonic_interval([right(hits, items)], [0.5])
        jeffreys = stats.beta(hits + 0.5, items - hits + 0.5).ppf([0.025, 0.975]) / 0.5
        assert found.low == pytest.approx(jeffreys[0], rel=0.02)
        assert found.high == pytest.approx(max(jeffreys[1], hits / items / 0.5), rel=0.02)


def test_items_of_one_source_are_drawn_together():
    rows = np.array([[1.0]] * 20 + [[0.0]] * 20)
    alone = ItemScores(item_ids(40), rows)
    shared = ItemScores(item_ids(40), rows, tuple("abcdefgh"[n // 5] for n in range(40)))
    apart, together = (harmonic_interval([each], [0.5]) for each in (alone, shared))
    assert together.half_width > 1.5 * apart.half_width


def test_a_baseline_of_0_has_no_ratio():
    with pytest.raises(InputError):
        harmonic_interval([right(3, 10)], [0.0])


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
