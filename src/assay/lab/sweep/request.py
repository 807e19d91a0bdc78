"""Answers `assay matrix`: builds the matrix of a sweep file, cells in a grid, compared with their
controls, summarised; and the winner of a sweep that is whole.

A block holds the cells of one arm (of one place of the layers) over all of its checkpoints. Cells
are found in `model`; figures come from `judge`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import product, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from assay.compare.arm import Arm, load_arm, same_weights
from assay.compare.fairness import Terms, check_one_metric, check_own_training, find_differences
from assay.compare.judged_table import compared_sides, interval_of
from assay.errors import Finding, InputError, finding, nearest
from assay.judge.averages import Average, average_change, harmonic_interval, value_of
from assay.judge.confounds import Confound
from assay.judge.families import Tally, adjust_family, tally
from assay.judge.scores import ITEMS, ItemScores, on_one_scale, on_shared_items
from assay.judge.selection import choose
from assay.judge.verdict import Comparison
from assay.lab.monitor.stage_health import unlearned
from assay.lab.sweep.model import (
    Baseline,
    CellBlock,
    Changes,
    DifferenceTrend,
    Matrix,
    Place,
    Recommendation,
    SweepCell,
    TableLayout,
    Value,
    arm_of_seeds,
    cells_of_runs,
    dev_scores,
    origins_of,
    place_value,
    runs_of_plan,
    same_evaluation,
    trainings,
)
from assay.lab.sweep.read_sweep import (
    CHECKPOINT_AXES,
    BaselineSpec,
    SweepFile,
    leaves,
    plan,
    read_sweep,
)
from assay.runs.history import evaluation_records
from assay.runs.run_directory import overridden, read_manifest, stored_status
from assay.runs.run_files import DamagedFile
from assay.runs.run_names import (
    Winner,
    WinningRun,
    checkpoint_directory,
    find_run,
    read_run_name,
    read_winner,
    write_winner,
)


def make_matrix(root: Path, file: Path, on: str | None = None, allow: Sequence[str] = ()) -> Matrix:
    """The matrix of a sweep file, showing the evaluation `on` in place of the file's; `allow` names
    differences that are accepted. Cells show the first of the controls.

    Raises InputError for what does not exist or fit together, or must not stand side by side.
    """
    sweep_file = read_sweep(file)
    sweep, points = sweep_file.sweep, [runs_of_plan(root, each) for each in plan(sweep_file)]
    reporting = points[0].plan.experiment.evaluate
    if on is not None and (on not in reporting or reporting[on].role != "report"):
        known = [name for name, each in reporting.items() if each.role == "report"]
        raise InputError(f"no reporting evaluation {on!r}", field="--on", fix=nearest(on, known))
    specs = {**({"baseline": sweep.baseline} if sweep.baseline else {}), **sweep.controls}
    controls = {name: _baseline(root, spec) for name, spec in specs.items()}
    keys = [axis.key for axis in sweep_file.axes]
    sets = [key for arm in sweep.arms.values() for key, _, _ in leaves(arm.set)]
    terms = Terms(allow=tuple(allow), axes=(*keys, *sets))
    rows = sweep.rows or keys[0]
    rest = [key for key in keys if key != rows]
    columns = sweep.columns or next(iter(rest), None)
    layout = TableLayout(rows, columns, tuple(key for key in rest if key != columns))
    where = layout, sweep_file.checkpoint_axis, sweep.checkpoint, (on,) if on else ()
    measured = [cell for each in points for cell in cells_of_runs(each, *where)]
    ratios_to = {} if on else sweep.ratios_of(sweep.on)
    cells, axes = _placed(measured, sweep_file, layout)
    cells, notes = judge_cells(cells, layout, controls, tuple(ratios_to.values()), terms)
    view = View(next(iter(controls), ""), tuple(ratios_to.values()))
    return Matrix(
        name=sweep.name,
        about=sweep.about,
        layout=layout,
        on=(on,) if on else sweep.on,
        ratios_to=ratios_to,
        controls={name: each.words for name, each in controls.items()},
        rows=axes[0],
        columns=axes[1],
        layers=tuple(dict.fromkeys(place[2:] for place in cells)),
        cells=cells,
        tally=view.tally(cells.values()),
        blocks=tuple(blocks(layout, cells, [replace(view, control=name) for name in controls])),
        trainings=tuple(trainings(run for each in points for run in each.states)),
        recommendation=recommend(cells, view.control, sweep.select, sweep.ratios_of(sweep.select)),
        notes=(
            *(note for each in points for note in each.notes),
            *(finding("damaged", "warning", name=c.problem) for c in measured if c.problem),
            *notes,
            *_notes_on(cells),
        ),
    )


def _baseline(root: Path, spec: BaselineSpec) -> Baseline:
    """What cells are compared with. Raises RunNotFound and InputError."""
    if not spec.run:
        where = {key: value for key, value, _ in leaves(spec.where)}
        return Baseline(where=where or None, checkpoint=spec.checkpoint)
    reference = read_run_name(root, spec.run)
    run, checkpoint = find_run(root, reference), reference.checkpoint
    if checkpoint is None or checkpoint.stage is None:
        return Baseline(run=run, checkpoint=checkpoint and "base")
    folder = checkpoint_directory(run, checkpoint)
    return Baseline(run=run, checkpoint=f"{checkpoint.stage}.{folder.name}")


@dataclass(frozen=True, slots=True)
class SweepWinner:
    """The winner of a sweep, or why there is none yet."""

    winner: Winner | None
    line: str
    """"" where nothing selects."""
    note: str = ""
    """That it took the place of another winner, in one line."""


def settle(root: Path, matrix: Matrix) -> SweepWinner:
    """Record the winner of a sweep's whole matrix, unless points are missing.

    Raises DamagedFile for a record of a winner that cannot be read.
    """
    advice = matrix.recommendation
    if advice.missing:
        count = "1 point is" if advice.missing == 1 else f"{advice.missing} points are"
        return SweepWinner(None, f"no winner yet: {count} missing of {advice.points}")
    if advice.winner is None:
        return SweepWinner(None, "" if advice.reason == "no_select" else "no winner was chosen")
    now, before, note = _winner_from(matrix, advice.winner), read_winner(root, matrix.name), ""
    if before is not None and before.runs == now.runs:
        now = replace(now, chosen=before.chosen)  # what is known of the same choice may have grown
    elif before is not None:
        note = f"{_named(now)} is the winner in place of {_named(before)}"
        note += f", the best of {before.points}"
    if now != before:
        write_winner(root, now)
    return SweepWinner(now, f"winner: {_named(now)}, the best of {now.points} on dev", note)


def winner_of_file(root: Path, file: SweepFile) -> SweepWinner:
    """`settle` for a sweep whose figures may not be comparable: then the line says so."""
    try:
        return settle(root, make_matrix(root, file.file))
    except InputError as error:
        return SweepWinner(None, f"no winner: {error}")


def _winner_from(matrix: Matrix, cell: SweepCell) -> Winner:
    """The record of a winning cell with its evidence: on dev with its optimism, and on items that
    did not choose."""
    advice = matrix.recommendation
    assert advice.choice is not None
    test = advice.choice.comparison
    origins = {stored_status(o.run.path).seed: o for o in origins_of(cell.parts[0])}
    evidence: dict[str, Any] = {
        "dev": {part: score.mean for part, score in zip(advice.select, advice.dev, strict=True)},
        "dev_score": advice.dev_scores[cell.place],
        "optimism": advice.choice.optimism,
        "looks": advice.choice.looks,
        "beats_baseline": advice.choice.chosen,
        "adjusted_p": test.adjusted_p if test else None,
        "undecided_against": [rival.name for rival in advice.rivals],
        "on": list(matrix.on),
        "score": cell.score,
        "interval": asdict(cell.interval) if cell.interval else None,
    }
    rule = f"the highest score on {', '.join(advice.select)}"
    if advice.ratios_to:
        pairs = ", ".join(f"{name} {value:g}" for name, value in advice.ratios_to.items())
        rule = f"the highest harmonic mean of ratios to {pairs} on dev items"
    return Winner(
        sweep=matrix.name,
        runs={str(s): WinningRun(str(o.run), o.checkpoint) for s, o in sorted(origins.items())},
        setting=matrix.layout.values(cell.place),
        points=len(advice.dev_scores),
        rule=f"{rule}, the first of equals",
        evidence=evidence,
        chosen=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _named(winner: Winner) -> str:
    chosen = next(iter(winner.runs.values()))
    return f"{chosen.run}@{chosen.checkpoint}"


def _placed(
    measured: Sequence[SweepCell], file: SweepFile, layout: TableLayout
) -> tuple[dict[Place, SweepCell], list[tuple[Value, ...]]]:
    """Every place of the layers that there are, and the values of all axes; what no point has is
    not in the search."""
    cells = {cell.place: cell for cell in measured}
    by_key = {axis.key: tuple(map(place_value, axis.values)) for axis in file.axes}
    axes: list[tuple[Value, ...]] = []
    for index, key in enumerate(layout.keys):
        there = {place[index] for place in cells}
        values = by_key[key] if key is not None else ()
        axes.append((*(v for v in values if v in there), *([None] if None in there else [])))
    layers = [layer for layer in product(*axes[2:]) if any(p[2:] == layer for p in cells)]
    places = [(r, c, *layer) for layer in layers for r in axes[0] for c in axes[1]]
    return {p: cells.get(p) or SweepCell(p, "not in the search") for p in places}, axes


def _notes_on(cells: Mapping[Place, SweepCell]) -> Iterator[Finding]:
    """What is to be known of the runs behind figures."""
    for run in dict.fromkeys(o.run for c in cells.values() for o in c.origins):
        if why := overridden(read_manifest(run)):
            yield finding("made_despite", "warning", name=f"{run} ({why})")
        yield from unlearned(run)


def _check_one_metric(cells: Iterable[SweepCell], controls: Iterable[str]) -> None:
    """Raise InputError where a fallback metric scored some answers to a benchmark and not others:
    cells stand side by side, whether they are compared or not."""
    cells = list(cells)
    sides = [cell.parts for cell in cells]
    sides += [cell.controls.get(name, ()) for name in controls for cell in cells]
    by_benchmark: dict[str, dict[str, Arm]] = {}
    for member in (member for side in sides for arm in side for member in arm.members):
        for origin in origins_of(member):
            named = by_benchmark.setdefault(origin.record.benchmark, {})
            named.setdefault(f"{origin} on {origin.record.name}", member)
    for named in by_benchmark.values():
        check_one_metric(named)


def judge_cells(
    cells: Mapping[Place, SweepCell],
    layout: TableLayout,
    baselines: Mapping[str, Baseline],
    ratios: Sequence[float],
    terms: Terms,
) -> tuple[dict[Place, SweepCell], list[Finding]]:
    """The cells with their scores and their comparisons as one family, and why some have none. A
    cell that others are compared with is compared with the first baseline alone.
    """
    raw: dict[tuple[str, Place], Comparison] = {}
    controls: dict[Place, dict[str, tuple[Arm, ...]]] = {place: {} for place in cells}
    own: dict[Place, list[str]] = {place: [] for place in cells}
    notes: list[Finding] = []
    first, *further = baselines or [""]
    patterns = [where for name in further if (where := baselines[name].where)]
    references = {p for p in cells for w in patterns if w.items() <= layout.values(p).items()}
    silent = {cells[place].name for place in references}
    for name, place in product(baselines, cells):
        cell = cells[place]
        if not cell.parts or (name != first and place in references):
            continue
        try:
            control = control_of(cell, cells, layout, baselines[name])
            if control is None:
                if cell.name not in silent:
                    notes.append(finding("no_baseline", "warning", name=cell.name))
            elif [*map(origins_of, control)] == [*map(origins_of, cell.parts)]:
                own[place].append(name)
            else:
                differing = _differences(control, cell.parts, terms)
                raw[name, place] = compared_sides(control, cell.parts, differing, ratios)
                controls[place][name] = control
        except DamagedFile as error:
            notes.append(finding("damaged", "warning", name=str(error)))
        except InputError as error:
            if error.field != ITEMS:
                raise
            notes.append(finding("items_differ", "warning", name=cell.name))
    judged = adjust_family(raw)
    done = {}
    for place, cell in cells.items():
        scores, sides = cell.pooled, controls[place]
        interval = None
        if scores:
            interval = harmonic_interval(scores, ratios) if ratios else interval_of(cell.parts[0])
        done[place] = replace(
            cell,
            score=value_of(scores, ratios) if scores else None,
            interval=interval,
            controls=sides,
            against={name: judged[name, place] for name in sides},
            same_weights=tuple(name for name, side in sides.items() if alike(side, cell)),
            own=tuple(own[place]),
            is_control=place in references,
        )
    _check_one_metric(done.values(), baselines)
    alike_of = {place: tuple(alike_to(cell, done, layout)) for place, cell in done.items()}
    done = {place: replace(cell, alike=alike_of[place]) for place, cell in done.items()}
    return done, list(dict.fromkeys(notes))


def alike(control: Sequence[Arm], cell: SweepCell) -> bool:
    """Whether the checkpoints of a cell and of its control have the same weights, seed by seed."""
    before, after = [origin for arm in control for origin in origins_of(arm)], cell.origins
    return len(before) == len(after) and all(map(same_weights, before, after))


def alike_to(
    cell: SweepCell, cells: Mapping[Place, SweepCell], layout: TableLayout
) -> Iterator[str]:
    """The earlier checkpoints of a cell, and the controls, with its answer to every item."""
    axis = next((key for key in layout.keys if key in CHECKPOINT_AXES), "")
    own = layout.values(cell.place)
    for place in takewhile(lambda place: axis and place != cell.place, cells):
        values = layout.values(place)
        if values | {axis: own[axis]} == own and answered_alike(cells[place].parts, cell):
            yield f"{axis} {values[axis]}"
    yield from (name for name, side in cell.controls.items() if answered_alike(side, cell))


def answered_alike(arms: Sequence[Arm], cell: SweepCell) -> bool:
    """Whether arms answer as a cell does. Answers are read where no score differs."""
    both = arms, cell.parts
    scores = [[(a.scores.item_ids, a.scores.item_means.tolist()) for a in side] for side in both]
    if not arms or scores[0] != scores[1]:
        return False
    one, other = (
        [load_arm(o, first=cell.first).outputs for arm in side for o in origins_of(arm)]
        for side in both
    )
    return one == other


def control_of(
    cell: SweepCell, cells: Mapping[Place, SweepCell], layout: TableLayout, baseline: Baseline
) -> tuple[Arm, ...] | None:
    """The baseline of a cell, if it was measured."""
    if baseline.where is not None:
        changed = layout.values(cell.place) | dict(baseline.where)
        # One checkpoint of an arm may stand at every value of an axis of checkpoints.
        standing = {k: None if k in CHECKPOINT_AXES else v for k, v in changed.items()}
        others = [cells.get(layout.place(values)) for values in (changed, standing)]
        return next((other.parts for other in others if other and other.parts), None)
    arms = []
    for arm in cell.parts:
        origins = [same_evaluation(origin, baseline) for origin in origins_of(arm)]
        if not all(origins):
            return None
        # One run that all seeds are compared with counts once.
        distinct = {(o.run, o.record.key, o.checkpoint): o for o in origins if o is not None}
        arms.append(arm_of_seeds(baseline.words, list(distinct.values()), cell.first))
    return tuple(arms)


def _differences(control: Sequence[Arm], other: Sequence[Arm], terms: Terms) -> list[Confound]:
    """The differences between two cells, over their evaluations and seeds.

    Raises InputError for a checkpoint that was trained on its items, whatever is allowed.
    """
    for member in (each for arm in (*control, *other) for each in arm.members):
        check_own_training(member)
    differences = {
        confound.path: confound
        for before, after in zip(control, other, strict=True)
        for one, two in zip(before.members, after.members, strict=False)
        for confound in find_differences(one, two, terms)
    }
    return list(differences.values())


@dataclass(frozen=True, slots=True)
class View:
    """How cells are read against one control."""

    control: str
    """The name of the control; "" where there is none."""
    ratios: tuple[float, ...]

    def fair(self, cells: Iterable[SweepCell]) -> list[SweepCell]:
        """The cells that have a fair comparison with the control."""
        against = [(cell, cell.against.get(self.control)) for cell in cells]
        return [cell for cell, each in against if each and each.verdict != "not comparable"]

    def change(self, cells: Iterable[SweepCell]) -> Average | None:
        """The mean difference over the fairly compared cells among some; None for ratios."""
        pairs = [(c.controls[self.control][0].scores, c.pooled[0]) for c in self.fair(cells)]
        return average_change(pairs) if pairs and not self.ratios else None

    def tally(self, cells: Iterable[SweepCell]) -> Tally:
        """The counts over some of the cells."""
        cells = list(cells)
        own = {repr(cell.place): cell for cell in cells if self.control in cell.against}
        items = {
            name: frozenset(f"{a.benchmark}\n{i}" for a in c.parts for i in a.scores.item_ids)
            for name, c in own.items()
        }
        same = {name for name, cell in own.items() if self.control in cell.same_weights}
        run = sum(cell.state == "measured" for cell in cells)
        absent = sum(cell.state == "not in the search" for cell in cells)
        compared = {name: cell.against[self.control] for name, cell in own.items()}
        return tally(compared, run, len(cells) - run - absent, items, same)

    def changes(
        self,
        steps: Mapping[Value, Sequence[SweepCell]],
        key: str = "",
        value: Value = None,
        index: int | None = None,
    ) -> Changes:
        """The mean differences at each of the steps; with an `index`, of the cells whose place has
        the value of the `key` there."""
        parts = {
            step: [cell for cell in cells if index is None or cell.place[index] == value]
            for step, cells in steps.items()
        }
        return Changes(key, value, tuple(map(self.change, parts.values())), self.trend(parts))

    def trend(self, steps: Mapping[Value, Sequence[SweepCell]]) -> DifferenceTrend | None:
        """The change of the mean difference between the first and the last step with differences,
        over the cells that both have; None for ratios, of which an item has no difference."""
        fair = {step: cells for step, part in steps.items() if (cells := self.fair(part))}
        if len(fair) < 2 or self.ratios:
            return None
        first, *_, last = fair
        before = {cell.place[:2]: cell for cell in fair[first]}
        pairs = [
            (self.gains(before[cell.place[:2]]), self.gains(cell))
            for cell in fair[last]
            if cell.place[:2] in before
        ]
        return DifferenceTrend(average_change(pairs), first, last) if pairs else None

    def gains(self, cell: SweepCell) -> ItemScores:
        """The gain of each item of a cell over its control."""
        both = cell.controls[self.control][0].scores, cell.pooled[0]
        control, other = on_shared_items(*on_one_scale(*both))
        before = dict(zip(control.item_ids, control.item_means, strict=True))
        gained_I = other.item_means - np.array([before[item] for item in other.item_ids])
        width = other.bounds[1] - other.bounds[0]
        return ItemScores(other.item_ids, gained_I[:, None], other.clusters, (-width, width))


def blocks(
    layout: TableLayout, cells: Mapping[Place, SweepCell], views: Sequence[View]
) -> Iterator[CellBlock]:
    """A block for each control and arm; none for cells that are what others are compared with."""
    axis = next((key for key in layout.layers if key in CHECKPOINT_AXES), "")
    groups: dict[tuple[tuple[str, Value], ...], dict[Value, list[SweepCell]]] = {}
    for cell in cells.values():
        layers = dict(zip(layout.layers, cell.place[2:], strict=True))
        step = layers.pop(axis, None)
        groups.setdefault(tuple(layers.items()), {}).setdefault(step, []).append(cell)
    for view, (where, by_step) in product(views, groups.items()):
        inner = [cell for part in by_step.values() for cell in part]
        baseline = view is views[0] and any(view.control in cell.own for cell in inner)
        if baseline or all(cell.is_control for cell in inner):
            continue
        rows, columns = (dict.fromkeys(cell.place[at] for cell in inner) for at in (0, 1))
        yield CellBlock(
            control=view.control,
            where=where,
            axis=axis,
            steps=tuple(by_step),
            tallies=tuple(map(view.tally, by_step.values())),
            overall=view.changes(by_step),
            rows=tuple(view.changes(by_step, layout.rows, value, 0) for value in rows),
            columns=tuple(
                view.changes(by_step, layout.columns, v, 1) for v in columns if layout.columns
            ),
        )


def recommend(
    cells: Mapping[Place, SweepCell],
    control: str,
    select: tuple[str, ...],
    ratios_to: Mapping[str, float],
) -> Recommendation:
    """The best cell on dev, recommended if it beats its baseline there after correction for
    multiple comparisons.

    Several evaluations of `select` are ranked by the harmonic mean of their ratios to `ratios_to`.
    """
    measured = {repr(cell.place): cell for cell in cells.values() if cell.parts}
    points = [c for c in cells.values() if c.state != "not in the search"]
    gaps = sum(not c.parts or c.seeds_missing > 0 for c in points)
    runs = dict.fromkeys(origin.run for cell in measured.values() for origin in cell.origins)
    records = (record for run in runs for record in evaluation_records(run))
    known = tuple(dict.fromkeys(each.name for each in records if each.role == "select"))
    names = select or known
    nothing = Recommendation("no_select", select=names, missing=gaps, points=len(points))
    if not select and len(known) != 1:
        return replace(nothing, reason="several_select" if known else "no_select", select=())
    try:
        dev = {name: dev_scores(cell.parts[0], names) for name, cell in measured.items()}
        scores = {name: parts for name, parts in dev.items() if parts is not None}
        sides = {name: measured[name].controls.get(control) for name in scores}
        bases = {n: dev_scores(side[0], names) if side else None for n, side in sides.items()}
    except DamagedFile as error:
        return replace(nothing, reason="dev_damaged", problem=str(error))
    nothing = replace(nothing, missing=gaps + len(dev) - len(scores))
    if not scores:
        return nothing
    if len({tuple(frozenset(part.item_ids) for part in s) for s in scores.values()}) > 1:
        return replace(nothing, reason="dev_differs")
    against = {name: measured[name].against.get(control) for name in scores}
    fair = [name for name, c in against.items() if not c or c.verdict != "not comparable"]
    usable = [name for name in fair if bases[name] or control in measured[name].own]
    if control and not fair:
        return replace(nothing, reason="no_dev_baseline")
    among = usable or fair
    looks = sum(measured[name].looks for name in among if control not in measured[name].own)
    ratios = tuple(ratios_to.values())
    candidates = {name: scores[name] for name in among}
    choice = choose(candidates, bases, max(looks, 1), ratios)
    reason = "chosen" if choice.chosen else "unproven"
    if not usable or not control:
        reason = "no_dev_baseline" if control else "no_baseline"
    elif choice.comparison is None:
        reason = "baseline_best"
    return replace(
        nothing,
        reason=reason,
        choice=choice,
        cell=measured[choice.candidate],
        ratios_to=ratios_to,
        dev=scores[choice.candidate],
        dev_scores={measured[name].place: value_of(s, ratios) for name, s in scores.items()},
        rivals=tuple(measured[name] for name in choice.rivals),
    )
