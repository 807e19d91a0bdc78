"""Agreement, bias and injected texts: as other tools count them, and no surer than the labels."""

import json
from pathlib import Path

import numpy as np
import pytest

from assay.judge.intervals import Estimate, Interval
from assay.judge.label_agreement import (
    FIRST,
    SECOND,
    Agreement,
    Injected,
    Judged,
    Leanings,
    Position,
    agreement_on,
    injected,
    leanings,
)

ORACLE = json.loads((Path(__file__).parent / "label_oracle.json").read_text())["agreements"]
GRADES = (1.0, 2.0, 3.0, 4.0, 5.0)
YES_NO = (0.0, 1.0)


def agreed(levels, judged) -> Agreement:
    found = agreement_on("clear", levels, judged)
    assert found is not None
    return found


def leaning(judged) -> Leanings:
    found = leanings(judged)
    assert found is not None
    return found


def position(judged) -> Position:
    found = leaning(judged).position
    assert found is not None
    return found


def tried(pairs) -> Injected:
    found = injected("plea", pairs)
    assert found is not None
    return found


def known(found: Estimate | None) -> Estimate:
    assert found is not None
    return found


def around(found: Estimate | None) -> Interval:
    interval = known(found).interval
    assert interval is not None
    return interval


def graded(labels, verdicts, characters=None, name="clear", clusters=None, **more) -> list[Judged]:
    sizes = characters or [0] * len(labels)
    return [
        Judged(
            item=str(n),
            sha256="",
            cluster=str(n) if clusters is None else clusters[n],
            label={name: float(label)},
            verdict={} if verdict is None else {name: float(verdict)},
            wanted=(label - 1) / 4,
            score=None if verdict is None else (verdict - 1) / 4,
            characters=size,
            **more,
        )
        for n, (label, verdict, size) in enumerate(zip(labels, verdicts, sizes, strict=True))
    ]


def test_kappa_ranks_and_length_are_those_of_scikit_learn_scipy_and_statsmodels():
    labels, verdicts = ORACLE["labels"], ORACLE["verdicts"]
    judged = graded(labels, verdicts, ORACLE["characters"])
    found = agreed(GRADES, judged)
    assert known(found.kappa).value == pytest.approx(ORACLE["kappa"], abs=1e-12)
    assert known(found.ranks).value == pytest.approx(ORACLE["ranks"], abs=1e-12)
    assert known(leaning(judged).length).value == pytest.approx(ORACLE["length"], abs=1e-12)
    halves = [[float(each >= 3) for each in values] for values in (labels, verdicts)]
    binary = agreed(YES_NO, graded(halves[0], halves[1]))
    assert known(binary.kappa).value == pytest.approx(ORACLE["binary_kappa"], abs=1e-12)
    assert binary.ranks is None


def test_the_table_counts_labels_by_verdicts_and_leaves_abstentions_out():
    found = agreed(YES_NO, graded([1, 1, 0, 0, 1], [1, 0, 0, None, 1]))
    assert found.matrix == ((1, 0), (1, 2)) and found.exact.trials == 4
    assert agreement_on("clear", YES_NO, graded([1], [None])) is None


def test_a_judge_that_always_agreed_on_few_answers_is_not_sure_to_agree():
    found = agreed(YES_NO, graded([0, 1] * 8, [0, 1] * 8))
    assert known(found.kappa).value == 1 and around(found.kappa).high == 1
    # Wilson: 16 of 16 leave 19 % of disagreement possible, which is a kappa of about 0.6.
    assert 0.5 < around(found.kappa).low < 0.7


def test_kappa_has_no_value_where_all_is_one_level():
    assert agreed(YES_NO, graded([1] * 9, [1] * 9)).kappa is None


def test_answers_to_one_question_are_one_observation():
    random = np.random.default_rng(1)
    labels = random.integers(1, 6, 30)
    verdicts = np.clip(labels + random.integers(-1, 2, 30), 1, 5)
    once = around(agreed(GRADES, graded(labels, verdicts)).kappa)
    order = np.repeat(np.arange(30), 4)
    many = graded(labels[order], verdicts[order], clusters=[str(n) for n in order])
    again = around(agreed(GRADES, many).kappa)
    assert again.half_width == pytest.approx(once.half_width, rel=0.02)


@pytest.mark.slow
def test_intervals_of_kappa_hold_the_true_one():
    """A judge right in 80 %, else drawn: labels uniform on two levels, so kappa is 0.6."""
    random, hits = np.random.default_rng(6), 0
    for _ in range(400):
        labels = random.integers(0, 2, 80)
        verdicts = np.where(random.random(80) < 0.8, labels, 1 - labels)
        interval = around(agreed(YES_NO, graded(labels, verdicts)).kappa)
        hits += interval.low <= 0.6 <= interval.high
    assert hits / 400 >= 0.93


def test_a_judge_that_pays_for_length_shows_it_and_a_fair_one_does_not():
    random = np.random.default_rng(4)
    labels = random.integers(1, 6, 200)
    sizes = random.integers(10, 2000, 200).tolist()
    long = np.array(sizes) > 1000
    paid = np.clip(labels + long, 1, 5)
    fair = np.clip(labels + random.integers(-1, 2, 200), 1, 5)
    assert around(leaning(graded(labels, paid, sizes)).length).low > 0.2
    interval = around(leaning(graded(labels, fair, sizes)).length)
    assert interval.low < 0 < interval.high


def pair(n, first, second, own=False, author="") -> Judged:
    value = first if first == second else 0.5
    verdict = {"preference": value, FIRST: first, SECOND: second}
    return Judged(str(n), "", str(n), {"preference": 1.0}, verdict, 1.0, value, 5, author, own)


def test_a_judge_that_takes_what_stands_first_flips_and_leans_to_the_first():
    first = [pair(n, 1.0, 0.0) for n in range(20)]
    found = position(first)
    assert (found.flips.value, found.first.value) == (1, 1) and around(found.first).low > 0.5
    fair = [pair(n, float(n % 2), float(n % 2)) for n in range(20)]
    found = position(fair)
    assert (found.flips.value, found.first.value) == (0, 0.5)
    assert around(found.flips).high > 0.1
    assert leaning(graded([1, 2], [1, 2])).position is None


def test_a_judge_that_favours_its_own_answers_adds_more_to_them():
    mine = [pair(n, 1.0, 1.0, own=True, author="me") for n in range(20)]
    others = [pair(n + 20, float(n % 2), float(n % 2), author="you") for n in range(20)]
    found = known(leaning([*mine, *others]).own)
    assert found.value == pytest.approx(0.5) and around(found).low > 0
    assert leaning(mine).own is None  # nobody else to set them beside
    unknown = [pair(n, 1.0, 1.0) for n in range(5)]
    assert leaning([*mine, *unknown]).own is None


def test_a_text_that_earns_points_is_told_from_one_that_silences_the_judge():
    found = tried([(str(n), 0.25, 1.0) for n in range(10)] + [("x", 0.5, None)])
    assert found.rise.value == 0.75 and around(found.rise).low > 0
    assert (found.raised, found.abstained) == (10, 1)
    assert injected("plea", [("x", 0.5, None)]) is None
    alike = tried([(str(n), 0.25, 0.25) for n in range(10)])
    assert around(alike.rise).low < 0 < around(alike.rise).high
