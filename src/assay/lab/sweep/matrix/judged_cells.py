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
from assay.lab.sweep.matrix.coordinates import CHECKPOINT_KEYS
from assay.lab.sweep.matrix.model import Cell, Layout, Note, Place, origins_of
from assay.lab.sweep.matrix.units import arm_of_seeds
from assay.runs.history import evaluation_records, measured_checkpoints
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


Controls = Mapping[Place, tuple[Arm, ...]]
"""The control of each compared cell."""


def judge_cells(
    cells: Mapping[Place, Cell],
    layout: Layout,
    baselines: Mapping[str, Baseline],
    ratios: Sequence[float],
    terms: Terms,
) -> tuple[dict[Place, Cell], dict[str, Controls], list[Note]]:
    """The cells with their comparisons as one family, by baseline the control of each cell, and why
    some have none.

    The first of `baselines` is what cells show. A cell that others are compared with is compared
    with that one alone.
    """
    raw: dict[tuple[str, Place], Comparison] = {}
    controls: dict[str, Controls] = {}
    own: set[Place] = set()
    notes: list[Note] = []
    first, *further = baselines
    references = {place for place in cells if _is_control(place, layout, baselines)}
    silent = {cells[place].name for place in references}
    for name, baseline in baselines.items():
        others = {p: c for p, c in cells.items() if not (name in further and p in references)}
        found, itself, said = _controls(others, cells, layout, baseline)
        own |= itself if name == first else set()
        notes += [each for each in said if each.subject not in silent]
        fair = {p: _compared_or_note(cells[p], arms, ratios, terms) for p, arms in found.items()}
        notes += [each for each in fair.values() if isinstance(each, Note)]
        raw |= {(name, p): each for p, each in fair.items() if not isinstance(each, Note)}
        controls[name] = {p: arms for p, arms in found.items() if not isinstance(fair[p], Note)}
    judged = adjust_family({repr(key): each for key, each in raw.items()})
    done = {
        place: replace(
            cell,
            comparison=judged.get(repr((first, place))),
            is_baseline=place in own,
            against={n: judged[k] for n in baselines if (k := repr((n, place))) in judged},
            is_control=place in references,
        )
        for place, cell in cells.items()
    }
    return done, controls, list(dict.fromkeys(notes))


def _is_control(place: Place, layout: Layout, baselines: Mapping[str, Baseline]) -> bool:
    """Whether a place is one of another baseline than the first."""
    values = dict(zip(layout.keys, _of(place, layout), strict=True))
    others = [each.where for each in [*baselines.values()][1:] if each.where]
    return any(all(values[key] == v for key, v in where.items()) for where in others)


def _controls(
    wanted: Mapping[Place, Cell], cells: Mapping[Place, Cell], layout: Layout, baseline: Baseline
) -> tuple[dict[Place, tuple[Arm, ...]], set[Place], list[Note]]:
    """The control of each measured cell, the cells that are their own, and why some have none."""
    found: dict[Place, tuple[Arm, ...]] = {}
    own: set[Place] = set()
    notes: list[Note] = []
    for place, cell in wanted.items():
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
            found[place] = control
    return found, own, notes


def _compared_or_note(
    cell: Cell, control: Sequence[Arm], ratios: Sequence[float], terms: Terms
) -> Comparison | Note:
    assert cell.unit is not None
    try:
        return _compared(control, cell.unit.parts, ratios, terms)
    except ItemsDifferError:
        return Note("items_differ", cell.name)


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
        # One checkpoint of an arm may stand at every value of an axis of checkpoints.
        standing = [
            None if key in CHECKPOINT_KEYS else value
            for key, value in zip(layout.keys, changed, strict=True)
        ]
        for values in (changed, standing):
            place = tuple(values) if layout.columns else (values[0], None, *values[1:])
            other = cells.get(place)
            if other is not None and other.unit and other.state == "measured":
                return other.unit.parts
        return None
    found = []
    for arm in cell.unit.parts:
        origins = [_same_evaluation(origin, baseline) for origin in origins_of(arm)]
        if not all(origins):
            return None
        # One run that all seeds are compared with counts once.
        distinct = {(o.run, o.record.key, o.checkpoint): o for o in origins if o is not None}
        first = cell.unit.first
        found.append(arm_of_seeds(baseline.words, list(distinct.values()), first))
    return tuple(found)


def _same_evaluation(origin: Provenance, baseline: Baseline) -> Provenance | None:
    """The baseline's record of an evaluation; None where it was not measured."""
    run = baseline.run or origin.run
    record = _same_record(run, origin.record)
    if record is None:
        return None
    names = measured_checkpoints(run, record)
    checkpoint = baseline.checkpoint or (names[-1] if names else "")
    if checkpoint.endswith(".last"):
        same = [name for name in names if name.partition(".")[0] == checkpoint[:-5]]
        checkpoint = same[-1] if same else ""
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
