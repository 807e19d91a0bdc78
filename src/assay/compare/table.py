"""The types of a comparison's result: lines, pairings, tasks, the table; and what is known of the
judge behind its scores.

`judged_table` fills them in; `report` and `cli` show them. The agreement of a judge with the labels
that the runs hold (`runs.judgement_journal`) is Cohen's kappa, weighted by the square of the
distance, so that on a scale 4 for 5 is less wrong than 1 for 5. Intervals are over the sources of
the items, of which one may have several answers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from assay.compare.arm import Arm, SelectionPair
from assay.data.files import canonical_json
from assay.errors import Finding, InputError, finding
from assay.judge.arms import SampledScores
from assay.judge.cluster_robust import FEW_CLUSTERS
from assay.judge.confounds import Confound, PartState, by_part
from assay.judge.intervals import Estimate, Interval, bootstrap_figures, grouped
from assay.judge.scores import Array
from assay.judge.verdict import Comparison, explain, with_looks
from assay.runs.judgement_journal import JudgedLabels, LabelledJudgement, read_judged
from assay.runs.records import EvaluationRecord
from assay.runs.registry import BASE, looks_at
from assay.runs.run_directory import RunDirectory

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

    def figure(table_DK: Array) -> Array:
        """Cohen's weighted kappa of D tables of labels by verdicts (Cohen 1968)."""
        share_DLV = (table_DK / table_DK.sum(1, keepdims=True)).reshape(-1, size, size)
        chance_DLV = share_DLV.sum(2)[:, :, None] * share_DLV.sum(1)[:, None]
        seen, expected = (x.reshape(-1, size * size) @ distances for x in (share_DLV, chance_DLV))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(expected > 0, 1 - seen / expected, np.nan)

    value = float(figure(counts.sum(0, keepdims=True))[0])
    if math.isnan(value):
        return None
    low, high = bootstrap_figures(counts, items, figure, (-1.0, 1.0))
    low = min(low, value, _reach(both, name, counts.sum(0), distances))
    interval = Interval(low, max(high, value), "cluster bootstrap", share=False)
    return Estimate(value, interval, len(items), len(set(items)))


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


@dataclass(frozen=True, slots=True)
class Flips:
    """Items by the change of their score (mean over repeats) from control to other."""

    gained: tuple[str, ...]
    lost: tuple[str, ...]
    unchanged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """One checkpoint against another."""

    control: str
    other: str
    comparison: Comparison
    """P-value and verdict are corrected for the family of the whole table."""
    flips: Flips
    agreement: float | None
    """Share of the answers (item and repeat) that both gave in the same words; None where the
    answers of one are not known."""

    def explanation(self, templates: Mapping[str, str]) -> str:
        """The verdict in words, with what the design can detect."""
        return explain(self.comparison, templates)


@dataclass(frozen=True, slots=True)
class Line:
    """One checkpoint of a table."""

    name: str
    score: float
    interval: Interval
    items: int
    repeats: int
    abstained: int
    """Answers without a score, of items x repeats."""
    possible: tuple[float, float]
    """The lowest and the highest score that answers without one leave possible."""
    to_control: Pairing | None
    """None for the control itself."""
    to_previous: Pairing | None
    """Against the stage before; None where that is the control."""
    clusters: int | None = None
    """Sources of the items, where items share some."""
    part_of: int | None = None
    """Number of all items, if only a part was measured."""
    address: str = ""
    """Prefix of an item's id in `assay report`; "" for a record of another tool."""
    file: Path | None = None
    """The record that every figure of the line comes from."""
    run: RunDirectory | None = None
    """The run of the record; None for a record of another tool."""
    limits: Mapping[str, object] = field(default_factory=dict)
    """How completions were sampled, and the limit of their tokens; empty where it is not known."""
    truncated: int | None = None
    """Completions cut at that limit, of items x repeats; None where this is not known."""
    sampled: SampledScores | None = None
    """mean@n and pass@k; None for single or greedy passes."""
    seeds: int = 1
    """Training runs whose scores are pooled in the line."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """What became of the answers of all seeds (`runs.records.outcome`), counted; empty for a record
    of another tool."""


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """Checkpoints measured on the same items, the first of them the control."""

    evaluation: EvaluationRecord
    lines: tuple[Line, ...]
    differences: tuple[Confound, ...] = ()
    """Everything in which the runs differ from the control, declared or not."""
    findings: tuple[Finding, ...] = ()
    """Warnings about the figures, such as checkpoints with equal answers."""
    left_out: tuple[Finding, ...] = ()
    """Runs that were to be compared and whose files are damaged."""
    compared: frozenset[str] | None = None
    """Parts of which something is known on both sides; None where that is all of them."""
    picked: tuple[SelectionPair, ...] = ()
    """How far the checkpoints pick the same demonstrations; empty where answers are no picks."""
    judge: JudgedBy | None = None
    """The judge of the scores; None where no rubric was asked."""

    @property
    def control(self) -> Line:
        """The control of the comparison."""
        return self.lines[0]

    @property
    def contradicted(self) -> bool:
        """Whether what the files of other tools say cannot all be true."""
        codes = ("contradicts_itself", "scored_apart")
        return any(each.severity == "error" and each.code in codes for each in self.findings)

    @property
    def allowed(self) -> tuple[str, ...]:
        """Confounds that the reader accepted: the mark that the table carries."""
        return tuple(sorted({d.path for d in self.differences if d.kind == "allowed"}))

    def state(self, part: PartState) -> str:
        """The kind of a part's differences: "same" if there are none, or "unknown"."""
        known = self.compared is None or part.part in self.compared
        return part.kind or ("same" if known else "unknown")

    @property
    def parts(self) -> list[PartState]:
        """The differences, part by part of what runs are made of."""
        return by_part(self.differences)


def judged_again(
    table: ComparisonTable, change: Callable[[Comparison], Comparison]
) -> ComparisonTable:
    """The table with `change` applied to every comparison with the control."""
    lines = [
        line
        if line.to_control is None
        else replace(
            line, to_control=replace(line.to_control, comparison=change(line.to_control.comparison))
        )
        for line in table.lines
    ]
    return replace(table, lines=tuple(lines))


def with_trials(table: ComparisonTable) -> ComparisonTable:
    """The table with the ledger of trials beside every verdict against a control of a lab."""
    run, record = table.control.run, table.evaluation
    if run is None:
        return table
    trained = [line for line in table.lines if line.file is not None and line.file.stem != BASE]
    here = sum(line.seeds for line in trained if line.run is not None)
    looks = replace(looks_at(run.root, record.benchmark, record.items), here=here)
    return judged_again(table, partial(with_looks, looks=looks))


FailOn = Literal["worse", "undecided"]
FAILING = {
    "worse": ("worse", "not comparable"),
    "undecided": ("worse", "not comparable", "undecided"),
}
"""What has no verdict passes no gate."""


def failures(tables: Sequence[ComparisonTable], fail_on: FailOn) -> list[str]:
    """A phrase for each run that fails against its control.

    Where non-inferiority was asked, that is the gate: a run passes if it is shown, whatever the
    verdict. Raises InputError where nothing was compared.
    """
    pairs = [(t, line.to_control) for t in tables for line in t.lines if line.to_control]
    if not pairs:
        raise InputError("no run was compared with a control", field="--fail-on")
    return [phrase for table, pair in pairs if (phrase := _failure(table, pair, fail_on))]


def _failure(table: ComparisonTable, pair: Pairing, fail_on: FailOn) -> str:
    comparison, inferiority = pair.comparison, pair.comparison.non_inferiority
    place = f"{pair.control} on {table.evaluation.benchmark or table.evaluation.name}"
    if inferiority is not None:
        margin = f"at most {100 * inferiority.margin:g} points worse than"
        return "" if inferiority.shown else f"{pair.other} is not shown to be {margin} {place}"
    verdict, judge = comparison.verdict, table.judge
    if judge is not None and verdict != "not comparable" and judge.refusal:
        return f"{pair.other} {judge.refusal}: no verdict against {place} passes"
    bad = verdict in FAILING[fail_on]
    return f"{pair.other} is {verdict} against {place}" if bad else ""
