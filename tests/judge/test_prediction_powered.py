"""Labels correct a judge's mean: as ppi_py does it, with intervals that cover, clusters or not."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from assay.judge.prediction_powered import Corrected, corrected_mean

ORACLE = json.loads((Path(__file__).parent / "label_oracle.json").read_text())["means"]
NONE = np.nan


def of(labels, beside, rest, clusters=None, bounds=(0.0, 1.0), **more) -> Corrected:
    judged = np.array([*beside, *rest], float)
    known = np.concatenate([np.array(labels, float), np.full(len(rest), NONE)])
    return corrected_mean(judged, known, np.full(len(judged), NONE), clusters, bounds, **more)


@pytest.mark.parametrize("name", ORACLE)
def test_the_mean_its_weight_and_its_error_are_those_of_ppi_py(name):
    case = ORACLE[name]
    found = of(case["labels"], case["beside"], case["rest"])
    assert found.value == pytest.approx(case["value"], abs=1e-12)
    labels, beside, rest = (np.array(case[key], float) for key in ("labels", "beside", "rest"))
    own = (labels - found.tuning * beside).var() / len(labels)
    others = (found.tuning * rest).var() / len(rest)
    for level, (low, high) in case["intervals"].items():
        reach = stats.norm.ppf(0.5 + float(level) / 2) * np.sqrt(own + others)
        assert (high - low) / 2 == pytest.approx(reach, abs=1e-12)
        assert (high + low) / 2 == pytest.approx(found.value, abs=1e-12)
    # ppi_py divides by the count, a t test by the degrees of freedom.
    sizes = len(labels), len(rest)
    wanted = own * sizes[0] / (sizes[0] - 1) + others * sizes[1] / (sizes[1] - 1)
    assert found.standard_error**2 == pytest.approx(wanted, rel=1e-12)


def test_a_judge_without_a_clue_leaves_the_labels_alone():
    case = ORACLE["wrong way round"]
    found = of(case["labels"], case["beside"], case["rest"])
    assert found.tuning == 0 and found.value == np.mean(case["labels"])


def test_where_everything_has_a_label_the_judge_counts_for_nothing():
    labels = [1, 0, 1, 1, 0, 1, 0, 1] * 3
    found = of(labels, [1 - each for each in labels], [])
    assert (found.value, found.to_halve) == (np.mean(labels), None)
    assert found.raw == pytest.approx(1 - found.value)


def test_a_judge_that_was_right_on_few_labels_is_not_taken_to_be_right_always():
    labels = [1, 0] * 10
    found = of(labels, labels, [1, 0] * 200)
    unseen = 1.96**2 / (20 + 1.96**2)
    assert found.interval.low <= 0.5 - 0.5 * unseen + 1e-3
    assert found.interval.high >= 0.5 + 0.5 * unseen - 1e-3


def test_items_that_are_copies_of_one_another_say_no_more_than_one():
    random = np.random.default_rng(2)
    labels = random.integers(0, 2, 40)
    seen = np.where(random.random(200) < 0.8, np.resize(labels, 200), 0)
    once = of(labels, seen[:40], seen[40:])
    names = [f"c{n}" for n in range(200)]
    order = [n for n in range(40) for _ in range(4)] + [n for n in range(40, 200) for _ in range(4)]
    copied = of(
        labels[order[:160]], seen[order[:160]], seen[order[160:]], tuple(names[n] for n in order)
    )
    assert copied.value == pytest.approx(once.value, abs=0.01)
    assert copied.interval.half_width == pytest.approx(once.interval.half_width, rel=0.05)


def test_answers_without_a_verdict_count_as_the_judges_mean_and_stay_in():
    judged = np.array([1.0, 0.0, NONE, 1.0, NONE, 0.0])
    labels = np.array([1.0, 0.0, 0.0, NONE, NONE, NONE])
    found = corrected_mean(judged, labels, judged, None, (0.0, 1.0))
    assert (found.items, found.labelled) == (6, 3) and found.raw == pytest.approx(0.5)


def test_a_difference_turns_its_sign_with_its_sides():
    random = np.random.default_rng(5)
    judged, labels = random.integers(-1, 2, (2, 120)).astype(float)
    labels[40:] = NONE
    given = (np.full(120, NONE), None, (-1.0, 1.0))
    one = corrected_mean(judged, labels, *given, difference=True)
    other = corrected_mean(-judged, -labels, *given, difference=True)
    assert one.value == pytest.approx(-other.value)
    assert one.interval.low == pytest.approx(-other.interval.high)
    assert one.p_value == pytest.approx(other.p_value)
    assert (one.p_value < 0.05) == (not one.interval.low <= 0 <= one.interval.high)


def drawn(random, items, size, count, right):
    """Items in clusters of a size, a judge that is right in a share, and `count` labels."""
    chance = np.repeat(random.beta(2, 1.5, items // size), size)
    truth = (random.random(items) < chance).astype(float)
    seen = np.where(random.random(items) < right, truth, 1 - truth)
    labels = np.full(items, NONE)
    known = random.permutation(items)[:count]
    labels[known] = truth[known]
    clusters = tuple(str(n // size) for n in range(items)) if size > 1 else None
    return corrected_mean(seen, labels, np.full(items, NONE), clusters, (0.0, 1.0))


def test_asked_for_labels_halve_the_interval():
    random = np.random.default_rng(8)
    found = [drawn(random, 4000, 1, 100, 0.75) for _ in range(60)]
    needed = round(float(np.mean([each.to_halve for each in found if each.to_halve])))
    again = [drawn(random, 4000, 1, needed, 0.75) for _ in range(60)]
    before, after = (np.mean([e.interval.half_width for e in each]) for each in (found, again))
    assert after / before == pytest.approx(0.5, abs=0.03)


TRUTH = 2 / 3.5
"""The mean of `drawn` items."""


def covered(found) -> float:
    """The share of intervals that hold the true mean."""
    return float(np.mean([e.interval.low <= TRUTH <= e.interval.high for e in found]))


@pytest.mark.parametrize("size", [1, 4])
def test_intervals_cover_where_the_judge_itself_is_off(size):
    random = np.random.default_rng(3)
    found = [drawn(random, 300, size, 50, 0.6) for _ in range(400)]
    assert covered(found) >= 0.93
    assert np.mean([each.raw for each in found]) < TRUTH - 0.04


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("count", [20, 60, 150])
@pytest.mark.parametrize("right", [0.5, 0.8, 0.97])
def test_intervals_cover_at_their_level(size, count, right):
    random = np.random.default_rng(4)
    share = covered([drawn(random, 400, size, count, right) for _ in range(2000)])
    assert 0.93 <= share <= 0.99


def change(random, labels_of: int):
    """Two runs on 300 items, 6 points apart, by a judge that is harsher on the second."""
    truth = random.random((2, 300)) < np.array([[0.5], [0.56]])
    kept = random.random((2, 300)) < np.array([[0.9], [0.75]])
    seen = np.where(kept, truth, False).astype(float)
    labels = np.full(300, NONE)
    known = random.permutation(300)[:labels_of]
    labels[known] = truth[1, known].astype(float) - truth[0, known]
    given = seen[1] - seen[0], labels, np.full(300, NONE), None, (-1.0, 1.0)
    return corrected_mean(*given, difference=True)


@pytest.mark.parametrize(
    ("trials", "least"), [(400, 0.92), pytest.param(4000, 0.935, marks=pytest.mark.slow)]
)
def test_a_difference_that_a_judge_hides_is_covered_and_rarely_found_where_there_is_none(
    trials, least
):
    random = np.random.default_rng(9)
    found = [change(random, 80) for _ in range(trials)]
    assert np.mean([each.raw for each in found]) == pytest.approx(-0.03, abs=0.01)
    assert np.mean([e.interval.low <= 0.06 <= e.interval.high for e in found]) >= least
