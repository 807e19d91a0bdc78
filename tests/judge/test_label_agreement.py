"""Kappa as scikit-learn counts it, and no surer than the labels."""

import json
from pathlib import Path

import numpy as np
import pytest

from assay.compare.table import kappa_on
from assay.judge.intervals import Estimate, Interval
from assay.runs.judgement_journal import LabelledJudgement

ORACLE = json.loads((Path(__file__).parent / "label_oracle.json").read_text())
GRADES = (1.0, 2.0, 3.0, 4.0, 5.0)
YES_NO = (0.0, 1.0)


def kappa(levels, labels, verdicts, clusters=None) -> Estimate | None:
    judged = [
        LabelledJudgement(
            item=str(n),
            cluster=str(n) if clusters is None else clusters[n],
            label={"clear": float(label)},
            verdict={} if verdict is None else {"clear": float(verdict)},
        )
        for n, (label, verdict) in enumerate(zip(labels, verdicts, strict=True))
    ]
    return kappa_on("clear", levels, judged)


def around(found: Estimate | None) -> Interval:
    assert found is not None and found.interval is not None
    return found.interval


def test_kappa_is_that_of_scikit_learn_plain_and_weighted():
    labels, verdicts = ORACLE["labels"], ORACLE["verdicts"]
    found = kappa(GRADES, labels, verdicts)
    assert found and found.value == pytest.approx(ORACLE["kappa"], abs=1e-12)
    halves = [[float(each >= 3) for each in values] for values in (labels, verdicts)]
    binary = kappa(YES_NO, *halves)
    assert binary and binary.value == pytest.approx(ORACLE["binary_kappa"], abs=1e-12)


def test_abstentions_are_left_out_and_one_level_alone_has_no_kappa():
    found = kappa(YES_NO, [1, 1, 0, 0, 1], [1, 0, 0, None, 1])
    assert found and found.trials == 4
    assert kappa(YES_NO, [1], [None]) is None and kappa(YES_NO, [1] * 9, [1] * 9) is None


def test_a_judge_that_always_agreed_on_few_answers_is_not_sure_to_agree():
    interval = around(kappa(YES_NO, [0, 1] * 8, [0, 1] * 8))
    # Wilson: 16 of 16 leave 19 % of disagreement possible, which is a kappa of about 0.6.
    assert interval.high == 1 and 0.5 < interval.low < 0.7


def test_answers_to_one_question_are_one_observation():
    random = np.random.default_rng(1)
    labels = random.integers(1, 6, 30)
    verdicts = np.clip(labels + random.integers(-1, 2, 30), 1, 5)
    order = np.repeat(np.arange(30), 4)
    once = around(kappa(GRADES, labels, verdicts))
    again = around(kappa(GRADES, labels[order], verdicts[order], [str(n) for n in order]))
    assert again.half_width == pytest.approx(once.half_width, rel=0.02)


@pytest.mark.slow
def test_intervals_of_kappa_hold_the_true_one():
    """A judge right in 80 %, else drawn: labels uniform on two levels, so kappa is 0.6."""
    random, hits = np.random.default_rng(6), 0
    for _ in range(400):
        labels = random.integers(0, 2, 80)
        verdicts = np.where(random.random(80) < 0.8, labels, 1 - labels)
        interval = around(kappa(YES_NO, labels, verdicts))
        hits += interval.low <= 0.6 <= interval.high
    assert hits / 400 >= 0.93
