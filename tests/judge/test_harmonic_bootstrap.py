"""The harmonic mean of ratios with its bootstrap, against closed forms and simulation."""

import numpy as np
import pytest
from scipy import stats

from assay.errors import InputError
from assay.judge.averages import harmonic_of
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
    printed = {
        "short CoT": (0.4, 0.707, 0.412, 0.108),
        "long CoT": (0.325, 0.694, 0.408, 0.138),
        "GRPO": (0.525, 0.775, 0.618, 0.246),
    }
    for name, scores in printed.items():
        shares = [h / n for h, n in zip(REPORTED[name], SIZES, strict=True)]
        assert [round(share, 3) for share in shares] == list(scores)
    found = {name: harmonic_of(parts(name), BASELINES) for name in REPORTED}
    assert found["short CoT"].value == pytest.approx(1.0758890919394155, rel=1e-15)
    for name, each in found.items():
        ratios = [h / n / b for h, n, b in zip(REPORTED[name], SIZES, BASELINES, strict=True)]
        assert each.value == pytest.approx(4 / sum(1 / r for r in ratios))
        assert each.interval.low < each.value < each.interval.high
    assert found["short CoT"].interval.low < 1 < found["GRPO"].interval.low


def test_one_benchmark_of_right_and_wrong_items_has_jeffreys_interval():
    for hits, items in ((60, 200), (3, 40), (40, 40)):
        found = harmonic_of([right(hits, items)], [0.5]).interval
        jeffreys = stats.beta(hits + 0.5, items - hits + 0.5).ppf([0.025, 0.975]) / 0.5
        assert found.low == pytest.approx(jeffreys[0], rel=0.02)
        assert found.high == pytest.approx(max(jeffreys[1], hits / items / 0.5), rel=0.02)


def test_a_measured_baseline_is_drawn_with_the_run_item_by_item():
    """The same answers as the baseline's are 1 for certain, others of the same score are not."""
    base = [right(100, 200)]
    same = harmonic_of(base, base).interval
    other = harmonic_of([single_pass([0.0] * 100 + [1.0] * 100)], base).interval
    constant = harmonic_of(base, [0.5]).interval
    assert harmonic_of(base, base).value == 1.0
    assert same.half_width < 0.05 < constant.half_width < other.half_width


@pytest.mark.slow
def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    sizes, hits = (60, 150), 0
    for _ in range(150):
        pairs = []
        for n in sizes:
            ease = rng.random(n)
            base, run = (rng.random((2, n)) < ease * [[0.6], [0.8]]).astype(float)
            pairs.append((single_pass(run), single_pass(base)))
        runs, bases = zip(*pairs, strict=True)
        found = harmonic_of(runs, bases).interval
        hits += found.low <= 0.8 / 0.6 <= found.high
    assert 0.9 <= hits / 150 <= 0.99


def test_items_of_one_source_are_drawn_together():
    rows = np.array([[1.0]] * 20 + [[0.0]] * 20)
    alone = ItemScores(item_ids(40), rows)
    shared = ItemScores(item_ids(40), rows, tuple("abcdefgh"[n // 5] for n in range(40)))
    apart, together = (harmonic_of([each], [0.5]).interval for each in (alone, shared))
    assert together.half_width > 1.5 * apart.half_width


def test_baselines_without_ratio_and_other_items_are_refused():
    with pytest.raises(InputError):
        harmonic_of([right(3, 10)], [right(0, 10)])
    with pytest.raises(InputError):
        harmonic_of([right(3, 10)], [right(3, 12)])
