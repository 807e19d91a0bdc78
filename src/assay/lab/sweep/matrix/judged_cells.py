"""Compares the cells of a matrix with their controls, as one family of tests.

Figures and verdicts come from `compare.judged_table`; whether two cells may be compared is decided
in `compare.fairness`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.compare.arm import Arm, Provenance
from assay.compare.fairness import Terms, check_own_training, find_differences
from assay.compare.judged_table import compared_sides, interval_of
from assay.compare.selection_pairs import same_weights
from assay.errors import Finding, finding
from assay.judge.averages import harmonic_of, value_of
from assay.judge.confounds import Confound
from assay.judge.families import adjust_family
from assay.judge.scores import ItemsDifferError
from assay.judge.verdict import Comparison
from assay.lab.sweep.matrix.coordinates import CHECKPOINT_KEYS, Layout, Place
from assay.lab.sweep.matrix.model import Baseline, Cell, origins_of
from assay.lab.sweep.matrix.units import arm_of_seeds
from assay.runs.history import evaluation_records, measured_checkpoints
from assay.runs.run_files import DamagedFile

Controls = Mapping[Place, tuple[Arm, ...]]
"""The control of each compared cell."""


def scored(cell: Cell, ratios: Sequence[float]) -> Cell:
    """The cell with its value, interval and sizes."""
    parts, scores = cell.parts, cell.pooled
    return replace(
        cell,
        score=value_of(scores, ratios),
        interval=harmonic_of(scores, ratios).interval if ratios else interval_of(parts[0]),
        items=sum(len(part.item_ids) for part in scores),
        repeats=parts[0].members[0].scores.repeats,
        seeds=len(parts[0].members),
    )


def judge_cells(
    cells: Mapping[Place, Cell],
    layout: Layout,
    baselines: Mapping[str, Baseline],
    ratios: Sequence[float],
    terms: Terms,
) -> tuple[dict[Place, Cell], dict[str, Controls], list[Finding]]:
    """The cells with their comparisons as one family, by baseline the control of each cell, and why
    some have none.

    The first of `baselines` is what cells show. A cell that others are compared with is compared
    with that one alone.
    """
    raw: dict[str, Comparison] = {}
    controls: dict[str, Controls] = {}
    own: set[tuple[str, Place]] = set()
    notes: list[Finding] = []
    first, *further = baselines
    patterns = [where for name in further if (where := baselines[name].where)]
    references = {
        place
        for place in cells
        for where in patterns
        if where.items() <= layout.values(place).items()
    }
    silent = {cells[place].name for place in references}
    for name, baseline in baselines.items():
        fair, other_items = {}, []
        for place, cell in cells.items():
            if cell.state != "measured" or (name != first and place in references):
                continue
            try:
                control = control_of(cell, cells, layout, baseline)
            except DamagedFile as error:
                notes.append(finding("damaged", "warning", name=str(error)))
                control = None
            if control is None:
                if cell.name not in silent:
                    notes.append(finding("no_baseline", "warning", name=cell.name))
            elif [origins_of(arm) for arm in control] == [origins_of(arm) for arm in cell.parts]:
                own.add((name, place))
            else:
                try:
                    differing = _differences(control, cell.parts, terms)
                    found = compared_sides(control, cell.parts, differing, ratios)
                    raw[repr((name, place))] = found
                    fair[place] = control
                except ItemsDifferError:
                    other_items.append(finding("items_differ", "warning", name=cell.name))
        controls[name] = fair
        notes += other_items
    judged = adjust_family(raw)
    done = {
        place: replace(
            cell,
            comparison=judged.get(repr((first, place))),
            is_baseline=(first, place) in own,
            against={n: judged[k] for n in baselines if (k := repr((n, place))) in judged},
            same_weights=tuple(
                n for n in baselines if place in controls[n] and alike(controls[n][place], cell)
            ),
            is_control=place in references,
        )
        for place, cell in cells.items()
    }
    return done, controls, list(dict.fromkeys(notes))


def alike(control: Sequence[Arm], cell: Cell) -> bool:
    """Whether the checkpoints of a cell and of its control have the same weights, seed by seed."""
    before = [origin for arm in control for origin in origins_of(arm)]
    after = cell.origins
    return len(before) == len(after) and all(map(same_weights, before, after))


def control_of(
    cell: Cell, cells: Mapping[Place, Cell], layout: Layout, baseline: Baseline
) -> tuple[Arm, ...] | None:
    """The baseline of a cell, if it was measured."""
    if baseline.where is not None:
        changed = layout.values(cell.place) | dict(baseline.where)
        # One checkpoint of an arm may stand at every value of an axis of checkpoints.
        standing = {k: None if k in CHECKPOINT_KEYS else v for k, v in changed.items()}
        for values in (changed, standing):
            other = cells.get(layout.place(values))
            if other is not None and other.state == "measured":
                return other.parts
        return None
    arms = []
    for arm in cell.parts:
        origins = [_same_evaluation(origin, baseline) for origin in origins_of(arm)]
        if not all(origins):
            return None
        # One run that all seeds are compared with counts once.
        distinct = {(o.run, o.record.key, o.checkpoint): o for o in origins if o is not None}
        first = cell.unit.first if cell.unit else None
        arms.append(arm_of_seeds(baseline.words, list(distinct.values()), first))
    return tuple(arms)


def _same_evaluation(origin: Provenance, baseline: Baseline) -> Provenance | None:
    """The baseline's record of an evaluation, of the same name and items or the same items; None
    where it was not measured."""
    run, wanted = baseline.run or origin.run, origin.record
    records = [r for r in evaluation_records(run) if set(r.items) == set(wanted.items)]
    named = [r for r in records if r.name == wanted.name]
    like = [r for r in records if r.benchmark == wanted.benchmark and r.options == wanted.options]
    record = next(iter([*named, *like]), None)
    if record is None:
        return None
    names = measured_checkpoints(run, record)
    checkpoint = baseline.checkpoint or (names[-1] if names else "")
    if checkpoint.endswith(".last"):
        same = [name for name in names if name.partition(".")[0] == checkpoint[:-5]]
        checkpoint = same[-1] if same else ""
    return Provenance(run, checkpoint, record) if checkpoint in names else None


def _differences(control: Sequence[Arm], other: Sequence[Arm], terms: Terms) -> list[Confound]:
    """The differences between two cells, over their evaluations and seeds.

    Raises InputError for a checkpoint that was trained on its items, whatever is allowed.
    """
    for member in (each for arm in (*control, *other) for each in arm.members):
        check_own_training(member)
    found = {
        confound.path: confound
        for before, after in zip(control, other, strict=True)
        for one, two in zip(before.members, after.members, strict=False)
        for confound in find_differences(one, two, terms)
    }
    return list(found.values())
