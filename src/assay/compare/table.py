"""The types of a comparison's result: lines, pairings, tasks, the table.

`judged_table` fills them in; `report` and `cli` show them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from assay.compare.judge_trust import JudgedBy
from assay.compare.selection_pairs import SelectionPair
from assay.errors import Finding, InputError
from assay.judge.arms import SampledScores
from assay.judge.confounds import Confound, PartState, by_part
from assay.judge.intervals import Interval
from assay.judge.verdict import Comparison, explain, with_looks
from assay.runs.records import EvaluationRecord
from assay.runs.registry import BASE, looks_at
from assay.runs.run_directory import RunDirectory


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
