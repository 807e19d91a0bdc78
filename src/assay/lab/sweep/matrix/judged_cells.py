"""Computes scores, intervals and comparisons of a matrix, with all cells as one family of tests.

Figures and verdicts come from `judge`; whether two cells may be compared is decided in
`compare.fairness`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.compare.arm import Arm, Provenance
from assay.compare.fairness import Terms, check_own_training, find_differences
from assay.compare.judged_table import compared, interval_of
from assay.errors import InputError
from assay.judge.averages import compare_harmonic, harmonic_interval, value_of
from assay.judge.confounds import Confound
from assay.judge.families import adjust_family
from assay.judge.scores import ItemScores, ItemsDifferError
from assay.judge.verdict import Comparison, not_comparable
from assay.lab.sweep.matrix.model import Cell, Layout, Note, Place, origins_of
from assay.lab.sweep.matrix.units import arm_of_seeds
from assay.runs.measurements import evaluation_records, measured_checkpoints
from assay.runs.records import DamagedRecord, EvaluationRecord
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import checkpoint_directory, find_run, read_run_name


@dataclass(frozen=True, slots=True)
class Baseline:
    """The baseline of cells: other cells, one run, or a checkpoint of the cell's own run."""

    where: Mapping[str, Any] | None = None
    run: RunDirectory | None = None
    checkpoint: str | None = None

    @property
    def words(self) -> str:
        """The baseline as a user writes it."""
        if self.where is not None:
            return ", ".join(f"{key} = {value}" for key, value in self.where.items())
        if self.run is not None:
            return f"{self.run}@{self.checkpoint}" if self.checkpoint else str(self.run)
        return self.checkpoint or ""


class BadBaseline(InputError):
    """A baseline that no cell can be compared with."""


def baseline_run(root: Path, text: str) -> Baseline:
    """NAME[@CHECKPOINT] as a baseline. Raises RunNotFound and RunNameError."""
    reference = read_run_name(root, text)
    run = find_run(root, reference)
    if reference.checkpoint is None:
        return Baseline(run=run)
    if reference.checkpoint.stage is None:
        return Baseline(run=run, checkpoint="base")
    folder = checkpoint_directory(run, reference.checkpoint)
    return Baseline(run=run, checkpoint=f"{reference.checkpoint.stage}.{folder.name}")


def pooled(parts: Sequence[Arm]) -> list[ItemScores]:
    """The scores of each evaluation, seeds as repeats."""
    return [arm.scores for arm in parts]


def scored(cell: Cell, ratios: Sequence[float]) -> Cell:
    """The cell with its value, interval and sizes."""
    assert cell.unit is not None
    parts = cell.unit.parts
    whole = pooled(parts)
    return replace(
        cell,
        score=value_of(whole, ratios),
        interval=harmonic_interval(whole, ratios) if ratios else interval_of(parts[0]),
        items=sum(len(part.item_ids) for part in whole),
        repeats=parts[0].members[0].scores.repeats,
        seeds=len(parts[0].members),
    )


def judge_cells(
    cells: Mapping[Place, Cell],
    layout: Layout,
    baseline: Baseline,
    ratios: Sequence[float],
    terms: Terms,
) -> tuple[dict[Place, Cell], dict[Place, tuple[Arm, ...]], list[Note]]:
    """The cells with their comparisons, the control of each, and why some have none."""
    raw: dict[str, Comparison] = {}
    controls: dict[Place, tuple[Arm, ...]] = {}
    notes: list[Note] = []
    own: set[Place] = set()
    for place, cell in cells.items():
        if cell.unit is None or cell.state != "measured":
            continue
        try:
            control = control_of(cell, cells, layout, baseline)
        except DamagedRecord as error:
            notes.append(Note("damaged", str(error)))
            control = None
        if control is None:
            notes.append(Note("no_baseline", cell.name))
        elif [origins_of(arm) for arm in control] == [origins_of(arm) for arm in cell.unit.parts]:
            own.add(place)
        else:
            try:
                raw[repr(place)] = _compared(control, cell.unit.parts, ratios, terms)
                controls[place] = control
            except ItemsDifferError:
                notes.append(Note("items_differ", cell.name))
    judged = adjust_family(raw)
    done = {
        place: replace(cell, comparison=judged.get(repr(place)), is_baseline=place in own)
        for place, cell in cells.items()
    }
    return done, controls, notes


def control_of(
    cell: Cell, cells: Mapping[Place, Cell], layout: Layout, baseline: Baseline
) -> tuple[Arm, ...] | None:
    """The baseline of a cell, if it was measured."""
    assert cell.unit is not None
    if baseline.where is not None:
        changed = [
            baseline.where.get(key, value)
            for key, value in zip(layout.keys, _of(cell.place, layout), strict=True)
        ]
        place = tuple(changed) if layout.columns else (changed[0], None, *changed[1:])
        other = cells.get(place)
        return other.unit.parts if other and other.unit and other.state == "measured" else None
    found = []
    for arm in cell.unit.parts:
        origins = [_same_evaluation(origin, baseline) for origin in origins_of(arm)]
        if not all(origins):
            return None
        # One run that all seeds are compared with counts once.
        distinct = {(o.run, o.record.key, o.checkpoint): o for o in origins if o is not None}
        found.append(arm_of_seeds(baseline.words, list(distinct.values())))
    return tuple(found)


def _same_evaluation(origin: Provenance, baseline: Baseline) -> Provenance | None:
    """The baseline's record of an evaluation; None where it was not measured."""
    run = baseline.run or origin.run
    record = _same_record(run, origin.record)
    if record is None:
        return None
    names = measured_checkpoints(run, record)
    checkpoint = baseline.checkpoint or (names[-1] if names else "")
    return Provenance(run, checkpoint, record) if checkpoint in names else None


def _of(place: Place, layout: Layout) -> Place:
    """The values of a place without the empty one of a table of one column."""
    return place if layout.columns else (place[0], *place[2:])


def _same_record(run: RunDirectory, wanted: EvaluationRecord) -> EvaluationRecord | None:
    """The run's record of the same evaluation: the same name and items, or the same items."""
    records = [r for r in evaluation_records(run) if set(r.items) == set(wanted.items)]
    named = [r for r in records if r.name == wanted.name]
    like = [r for r in records if r.benchmark == wanted.benchmark and r.options == wanted.options]
    return next(iter([*named, *like]), None)


def _compared(
    control: Sequence[Arm], other: Sequence[Arm], ratios: Sequence[float], terms: Terms
) -> Comparison:
    """Paired by item; with several seeds on both sides the seed is sampled as well."""
    differing = _differences(control, other, terms)
    if not ratios:
        return compared(control[0], other[0], differing)
    found = compare_harmonic(pooled(control), pooled(other), ratios)
    confounds = [each.path for each in differing if each.kind == "confound"]
    return not_comparable(found, confounds) if confounds else found


def _differences(control: Sequence[Arm], other: Sequence[Arm], terms: Terms) -> list[Confound]:
    """The differences between two cells, over their evaluations and seeds.

    Raises Unfair for a checkpoint that was trained on the items it answered, whatever is allowed.
    """
    for member in (each for arm in (*control, *other) for each in arm.members):
        check_own_training(member)
    pairs = [
        pair
        for before, after in zip(control, other, strict=True)
        for pair in zip(before.members, after.members, strict=False)
    ]
    found = {c.path: c for before, after in pairs for c in find_differences(before, after, terms)}
    return list(found.values())
