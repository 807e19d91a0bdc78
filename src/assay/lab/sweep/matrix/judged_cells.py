"""Puts figures and comparisons to cells; the tests are `judge`'s, and all cells are one family."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.judge.arms import arm_interval, as_repeats, compare_arms
from assay.judge.averages import compare_harmonic, harmonic_interval, value_of
from assay.judge.families import adjust_family
from assay.judge.intervals import Interval, score_interval
from assay.judge.paired import compare
from assay.judge.scores import ItemScores, ItemsDifferError
from assay.judge.verdict import Comparison, not_comparable
from assay.lab.sweep.matrix.cell_fairness import unfair
from assay.lab.sweep.matrix.model import Cell, Layout, Measurement, Note, Place, Source
from assay.runs.measurements import evaluation_records, measured_checkpoints
from assay.runs.records import DamagedRecord, EvaluationRecord, read_scores
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import checkpoint_directory, find_run, parse_run_name


@dataclass(frozen=True, slots=True)
class Baseline:
    """What cells are compared with: other cells, one run, or a checkpoint of the cell's own run."""

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
    reference = parse_run_name(text)
    run = find_run(root, reference)
    if reference.checkpoint is None:
        return Baseline(run=run)
    if reference.checkpoint.stage is None:
        return Baseline(run=run, checkpoint="base")
    folder = checkpoint_directory(run, reference.checkpoint)
    return Baseline(run=run, checkpoint=f"{reference.checkpoint.stage}.{folder.name}")


def pooled(parts: Sequence[Measurement]) -> list[ItemScores]:
    """The scores of each evaluation, seeds as repeats."""
    return [as_repeats(part.scores) for part in parts]


def scored(cell: Cell, ratios: Sequence[float]) -> Cell:
    """The cell with its value, interval and sizes."""
    assert cell.unit is not None
    parts = cell.unit.parts
    whole = pooled(parts)
    return replace(
        cell,
        score=value_of(whole, ratios),
        interval=_interval(parts, whole, ratios),
        items=sum(len(part.item_ids) for part in whole),
        repeats=parts[0].scores[0].repeats,
        seeds=len(parts[0].scores),
    )


def _interval(
    parts: Sequence[Measurement], whole: Sequence[ItemScores], ratios: Sequence[float]
) -> Interval:
    if ratios:
        return harmonic_interval(whole, ratios)
    return arm_interval(parts[0].scores) if len(parts[0].scores) > 1 else score_interval(whole[0])


def judge_cells(
    cells: Mapping[Place, Cell],
    layout: Layout,
    baseline: Baseline,
    ratios: Sequence[float],
    keys: Sequence[str],
    allow: Sequence[str],
) -> tuple[dict[Place, Cell], dict[Place, tuple[Measurement, ...]], list[Note]]:
    """The cells with their comparisons, the control of each, and why some have none."""
    raw: dict[str, Comparison] = {}
    controls: dict[Place, tuple[Measurement, ...]] = {}
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
        elif [p.sources for p in control] == [p.sources for p in cell.unit.parts]:
            own.add(place)
        else:
            try:
                raw[repr(place)] = _compared(control, cell.unit.parts, ratios, keys, allow)
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
) -> tuple[Measurement, ...] | None:
    """What a cell is compared with, where that was measured."""
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
    for part in cell.unit.parts:
        sources = []
        for source in part.sources:
            record = _same_record(baseline.run or source.run, source.record)
            if record is None:
                return None
            run = baseline.run or source.run
            names = measured_checkpoints(run, record)
            checkpoint = baseline.checkpoint or (names[-1] if names else "")
            if checkpoint not in names:
                return None
            sources.append(Source(run, record, checkpoint))
        # One run that all seeds are compared with counts once.
        kept = _distinct(sources)
        scores = tuple(read_scores(s.run, s.record, s.checkpoint) for s in kept)
        found.append(Measurement(kept, scores))
    return tuple(found)


def _distinct(sources: Sequence[Source]) -> tuple[Source, ...]:
    seen = {(s.run, s.record.key, s.checkpoint): s for s in sources}
    return tuple(seen.values())


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
    control: Sequence[Measurement],
    other: Sequence[Measurement],
    ratios: Sequence[float],
    keys: Sequence[str],
    allow: Sequence[str],
) -> Comparison:
    confounds = unfair(control, other, keys, allow)
    found = _figures(control, other, ratios)
    return not_comparable(found, [c.path for c in confounds]) if confounds else found


def _figures(
    control: Sequence[Measurement], other: Sequence[Measurement], ratios: Sequence[float]
) -> Comparison:
    """Paired by item; with several seeds on both sides the seed is sampled as well."""
    if ratios:
        return compare_harmonic(pooled(control), pooled(other), ratios)
    seeds = len(control[0].scores), len(other[0].scores)
    if min(seeds) > 1:
        return compare_arms(control[0].scores, other[0].scores)
    found = compare(pooled(control)[0], pooled(other)[0])
    if max(seeds) > 1:
        return replace(
            found, method=f"{found.method}; seeds as repeats: these runs, not the method"
        )
    return found
