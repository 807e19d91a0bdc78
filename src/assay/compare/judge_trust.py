"""What is known of the judge behind the scores of a comparison: its agreement with the labels that
the runs hold (`runs.judgement_journal`), as Cohen's kappa.

Weighted by the square of the distance, so that on a scale 4 for 5 is less wrong than 1 for 5.
Intervals are over the sources of the items, of which one may have several answers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from assay.compare.arm import Arm
from assay.data.files import canonical_json
from assay.errors import Finding, finding
from assay.judge.cluster_robust import FEW_CLUSTERS
from assay.judge.intervals import Estimate, Interval, bootstrap_figures, grouped
from assay.judge.scores import Array
from assay.runs.judgement_journal import JudgedLabels, LabelledJudgement, read_judged

RUBRIC = "rubric"
"""The option of a record that holds the rubric of its judge."""

Trust = Literal["unknown", "below", "unsure", "shown"]


@dataclass(frozen=True)
class HeldJudge:
    """A judge beside the labels that it was held to."""

    stored: JudgedLabels
    kappas: Mapping[str, Estimate | None]
    """By criterion; None where it has no value."""

    @property
    def worst(self) -> tuple[str, Estimate] | None:
        """The criterion that is agreed on least; None where one has no kappa."""
        kappas = [(name, kappa) for name, kappa in self.kappas.items() if kappa is not None]
        if not kappas or len(kappas) < len(self.kappas):
            return None
        least = self.stored.least_kappa
        low = [(n, k) for n, k in kappas if k.value < least]
        return min(low or kappas, key=lambda each: each[1].value if low else _low(each[1]))

    @property
    def trust(self) -> Trust:
        """Whether every criterion's kappa is shown to be what the rubric asks for."""
        if self.worst is None:
            return "unknown"
        _, kappa = self.worst
        least = self.stored.least_kappa
        if kappa.value < least:
            return "below"
        return "unsure" if _low(kappa) < least else "shown"


def _low(kappa: Estimate) -> float:
    return kappa.value if kappa.interval is None else kappa.interval.low


@dataclass(frozen=True)
class JudgedBy:
    """The judge of the scores of a table."""

    rubric: Mapping[str, Any]
    held: HeldJudge | None
    """None where nobody labelled anything."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What people should know before they read a score of this judge."""
        if self.held is None or self.held.worst is None:
            return (finding("judge_unknown", "warning"),)
        name, kappa = self.held.worst
        assert kappa.interval is not None, "kappa_on gives one"
        ends = {"low": kappa.interval.low, "high": kappa.interval.high}
        values = {"criterion": name, "kappa": kappa.value, **ends}
        values["least"], trust = self.held.stored.least_kappa, self.held.trust
        severity = "warning" if trust == "below" else "note"
        return () if trust == "shown" else (finding(f"judge_{trust}", severity, **values),)

    @property
    def refusal(self) -> str:
        """Why no verdict passes a gate; "" where one may: the judge agrees with people as the
        rubric asks."""
        if self.held is None or self.held.trust == "unknown":
            return "is scored by a judge whose agreement with people is unknown"
        if self.held.trust == "below":
            return "is scored by a judge that agrees less with people than its rubric asks"
        return ""


def held(stored: JudgedLabels) -> HeldJudge:
    """A judge with its figures."""
    kappas = {name: kappa_on(name, each, stored.judged) for name, each in stored.levels.items()}
    return HeldJudge(stored, kappas)


def judged_by(arms: Sequence[Arm]) -> JudgedBy | None:
    """The judge of arms that one rubric judged; None for other scores. Raises DamagedFile."""
    origins = [arm.provenance for arm in arms if arm.provenance is not None]
    rubrics = [canonical_json(each.record.options.get(RUBRIC, {})) for each in origins]
    if len(origins) < len(arms) or {*rubrics} != {rubrics[0]} or rubrics[0] == "{}":
        return None
    stored = [
        each
        for run in dict.fromkeys(each.run for each in origins)
        for each in read_judged(run)
        if canonical_json(each.settings) == rubrics[0]
    ]
    most = max(stored, key=lambda each: len(each.judged), default=None)
    return JudgedBy(origins[0].record.options[RUBRIC], most and held(most))


def kappa_on(
    name: str, levels: Sequence[float], judged: Sequence[LabelledJudgement]
) -> Estimate | None:
    """The agreement on a criterion; None where labels and verdicts are all one level, or no answer
    has both."""
    both = [each for each in judged if name in each.label and name in each.verdict]
    if not both:
        return None
    size, places = len(levels), {level: n for n, level in enumerate(levels)}
    cells = [places[each.label[name]] * size + places[each.verdict[name]] for each in both]
    counts = np.eye(size * size)[cells]
    items = [each.cluster for each in both]
    distances = np.subtract.outer(np.array(levels), np.array(levels)).ravel() ** 2

    def figure(tables: Array) -> Array:
        return _kappa(tables, distances, size)

    value = float(figure(counts.sum(0, keepdims=True))[0])
    if math.isnan(value):
        return None
    low, high = bootstrap_figures(counts, items, figure, (-1.0, 1.0))
    low = min(low, value, _reach(both, name, counts.sum(0), distances))
    interval = Interval(low, max(high, value), "cluster bootstrap", share=False)
    return Estimate(value, interval, len(items), len(set(items)))


def _kappa(table_DK: Array, distances_K: Array, size: int) -> Array:
    """Cohen's weighted kappa of D tables of labels by verdicts (Cohen 1968)."""
    share_DLV = (table_DK / table_DK.sum(1, keepdims=True)).reshape(-1, size, size)
    chance_DK = (share_DLV.sum(2)[:, :, None] * share_DLV.sum(1)[:, None]).reshape(-1, size * size)
    seen, expected = share_DLV.reshape(-1, size * size) @ distances_K, chance_DK @ distances_K
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected > 0, 1 - seen / expected, np.nan)


def _reach(
    both: Sequence[LabelledJudgement], name: str, counts_K: Array, distances_K: Array
) -> float:
    """A lower limit that is honest where next to nothing was disagreed on: where the share of equal
    verdicts may be, at the mean distance of unequal ones."""
    right = [float(each.label[name] == each.verdict[name]) for each in both]
    exact = grouped(right, [each.cluster for each in both], (0.0, 1.0)).interval
    wrong = counts_K[distances_K > 0].sum()
    if wrong >= FEW_CLUSTERS or exact is None:
        return 1.0
    size = math.isqrt(len(counts_K))
    far = counts_K @ distances_K / wrong if wrong else distances_K[distances_K > 0].min()
    share = (counts_K / counts_K.sum()).reshape(size, size)
    expected = np.outer(share.sum(1), share.sum(0)).ravel() @ distances_K
    return max(float(1 - (1 - exact.low) * far / expected), -1.0)
