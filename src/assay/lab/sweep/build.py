"""Builds a matrix: units by their coordinates in a grid, compared with their controls, summarised.

A block holds the cells of one arm (of one place of the layers) over all of its checkpoints. Runs
are found in `units`, cells are compared in `judged_cells`, figures come from `judge`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from assay.compare.arm import Arm
from assay.compare.fairness import Terms, check_one_metric, check_own_training, find_differences
from assay.compare.judged_table import compared_sides, interval_of
from assay.compare.selection_pairs import same_weights
from assay.errors import Finding, InputError, finding, nearest
from assay.judge.arms import as_repeats
from assay.judge.averages import Average, average, average_change, harmonic_interval, value_of
from assay.judge.confounds import Confound
from assay.judge.families import Tally, adjust_family, tally
from assay.judge.scores import ITEMS, ItemScores, on_one_scale, on_shared_items
from assay.judge.selection import Choice, choose
from assay.judge.verdict import Comparison
from assay.lab.monitor.stage_health import unlearned
from assay.lab.sweep.model import (
    CHECKPOINT_KEYS,
    RECORD,
    Baseline,
    Block,
    Cell,
    Changes,
    Layout,
    Margin,
    Matrix,
    Place,
    Question,
    Recommendation,
    State,
    Trend,
    Unit,
    Value,
    check_key,
    data_files,
    is_late,
    ordered,
    origins_of,
    place_value,
    trainings,
)
from assay.lab.sweep.read_sweep import ARM
from assay.lab.sweep.units import arm_of_seeds, dev_scores, same_evaluation
from assay.runs.history import evaluation_records
from assay.runs.manifest_file import overridden, read_manifest
from assay.runs.run_files import DamagedFile

Parts = tuple[ItemScores, ...]
"""Scores on each of the selecting evaluations."""


def recommend(
    cells: Mapping[Place, Cell],
    controls: Mapping[Place, tuple[Arm, ...]],
    compared: bool,
    select: tuple[str, ...],
    ratios_to: Mapping[str, float],
) -> Recommendation:
    """The best cell on dev, recommended if it beats its baseline there after correction for
    multiple comparisons.

    `compared` says whether the matrix has a baseline. Several evaluations of `select` are ranked by
    the harmonic mean of their ratios to `ratios_to`.
    """
    measured = {p: c for p, c in cells.items() if c.state == "measured"}
    gaps = sum(
        c.state not in ("measured", "not in the search") or c.seeds_missing > 0
        for c in cells.values()
    )
    runs = dict.fromkeys(origin.run for cell in measured.values() for origin in cell.origins)
    records = (record for run in runs for record in evaluation_records(run))
    known = list(dict.fromkeys(each.name for each in records if each.role == "select"))
    names = select or tuple(known)
    if not select and len(known) != 1:
        return Recommendation("several_select" if known else "no_select", missing=gaps)
    try:
        dev = {p: _dev(c.parts[0], names) for p, c in measured.items()}
        scores = {p: s for p, s in dev.items() if s is not None}
        bases = {p: _dev(controls[p][0], names) if p in controls else None for p in scores}
    except DamagedFile as error:
        return Recommendation("dev_damaged", select=names, problem=str(error))
    missing = gaps + len(dev) - len(scores)
    if not scores:
        return Recommendation("no_select", select=names, missing=missing)
    if len({tuple(frozenset(part.item_ids) for part in s) for s in scores.values()}) > 1:
        return Recommendation("dev_differs", select=names, missing=missing)
    compared_with = {p: cells[p].comparison for p in scores}
    unfair = {p for p, c in compared_with.items() if c and c.verdict == "not comparable"}
    fair = {p: s for p, s in scores.items() if p not in unfair}
    usable = {p: s for p, s in fair.items() if bases[p] or cells[p].is_baseline}
    if compared and not fair:
        return Recommendation("no_dev_baseline", select=names, missing=missing)
    among = usable or fair
    looks = sum(u.looks for p in among if (u := cells[p].unit) and not cells[p].is_baseline)
    choice = _choice(among, bases, max(looks, 1), ratios_to)
    by_name = {repr(p): p for p in scores}
    place = by_name[choice.candidate]
    return Recommendation(
        reason=_reason(choice, compared, bool(usable)),
        choice=choice,
        cell=cells[place],
        select=names,
        ratios_to=ratios_to,
        dev=scores[place],
        dev_scores={p: value_of(s, tuple(ratios_to.values())) for p, s in scores.items()},
        missing=missing,
        rivals=tuple(cells[by_name[n]] for n in choice.rivals),
    )


def _dev(arm: Arm, names: Sequence[str]) -> Parts | None:
    """The dev scores of an arm, seeds as repeats; None where one evaluation has no record."""
    found = [dev_scores(arm, name) for name in names]
    whole = [as_repeats(scores) for scores in found if scores is not None]
    return tuple(whole) if len(whole) == len(names) else None


def _choice(
    among: Mapping[Place, Parts],
    bases: Mapping[Place, Parts | None],
    looks: int,
    ratios_to: Mapping[str, float],
) -> Choice:
    named = {repr(p): parts for p, parts in among.items()}
    controls = {repr(p): bases[p] for p in among}
    return choose(named, controls, looks, tuple(ratios_to.values()))


def _reason(choice: Choice, compared: bool, usable: bool) -> str:
    """The key of the sentence that says why the candidate is recommended, or why not."""
    if not compared:
        return "no_baseline"
    if not usable:
        return "no_dev_baseline"
    if choice.comparison is None:
        return "baseline_best"
    return "chosen" if choice.chosen else "unproven"


Controls = Mapping[Place, tuple[Arm, ...]]
"""The control of each compared cell."""


def scored(cell: Cell, ratios: Sequence[float]) -> Cell:
    """The cell with its value, interval and sizes."""
    parts, scores = cell.parts, cell.pooled
    return replace(
        cell,
        score=value_of(scores, ratios),
        interval=harmonic_interval(scores, ratios) if ratios else interval_of(parts[0]),
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
                except InputError as error:
                    if error.field != ITEMS:
                        raise
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
        origins = [same_evaluation(origin, baseline) for origin in origins_of(arm)]
        if not all(origins):
            return None
        # One run that all seeds are compared with counts once.
        distinct = {(o.run, o.record.key, o.checkpoint): o for o in origins if o is not None}
        first = cell.unit.first if cell.unit else None
        arms.append(arm_of_seeds(baseline.words, list(distinct.values()), first))
    return tuple(arms)


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


@dataclass(frozen=True, slots=True)
class View:
    """Cells against one control, with the inputs of averages."""

    cells: Mapping[Place, Cell]
    controls: Controls
    ratios: tuple[float, ...]
    control: str
    """The name of the control; "" where there is none."""

    def is_fair(self, place: Place) -> bool:
        """Whether the cell has a fair comparison with the control."""
        comparison = self.cells[place].against.get(self.control)
        return comparison is not None and comparison.verdict != "not comparable"

    def average(self, places: Sequence[Place]) -> Average | None:
        """The mean over the measured cells among `places`; None for ratios, or without one."""
        scores = [self.cells[p].pooled[0] for p in places if self.cells[p].state == "measured"]
        return average(scores) if scores and not self.ratios else None

    def change(self, places: Sequence[Place]) -> Average | None:
        """The mean difference over the fairly compared cells among `places`."""
        pairs = [
            (self.controls[place][0].scores, self.cells[place].pooled[0])
            for place in places
            if self.is_fair(place)
        ]
        return average_change(pairs) if pairs and not self.ratios else None

    def tally(self, places: Iterable[Place]) -> Tally:
        """The counts over some of the cells."""
        cells = [self.cells[place] for place in places]
        compared = {
            repr(c.place): c.against[self.control] for c in cells if self.control in c.against
        }
        items = {
            repr(c.place): frozenset(
                f"{a.benchmark}\n{i}" for a in c.parts for i in a.scores.item_ids
            )
            for c in cells
            if self.control in c.against
        }
        same = {repr(c.place) for c in cells if self.control in c.same_weights}
        run = sum(c.state == "measured" for c in cells)
        absent = sum(c.state in ("no checkpoint", "not in the search") for c in cells)
        return tally(compared, run, len(cells) - run - absent, items, same)


def margins(
    view: View,
    layout: Layout,
    rows: Sequence[Value],
    columns: Sequence[Value],
    layers: Sequence[Place],
) -> Iterator[Margin]:
    """Averages by row and by column of every layer, and of the layer."""
    for layer in layers:
        groups = [(layout.rows, r, [(r, c, *layer) for c in columns]) for r in rows]
        if layout.columns:
            groups += [(layout.columns, c, [(r, c, *layer) for r in rows]) for c in columns]
        groups.append(("", None, [(r, c, *layer) for r in rows for c in columns]))
        for key, value, places in groups:
            searched = sum(view.cells[place].state != "not in the search" for place in places)
            yield Margin(key, value, layer, view.average(places), searched)


def blocks(layout: Layout, views: Mapping[str, View]) -> Iterator[Block]:
    """A block for each control and arm; none for cells that are what others are compared with."""
    axis = next((key for key in layout.layers if key in CHECKPOINT_KEYS), "")
    first = next(iter(views), "")
    for name, view in views.items():
        groups: dict[tuple[tuple[str, Value], ...], list[Place]] = {}
        for place in view.cells:
            layers = zip(layout.layers, place[2:], strict=True)
            groups.setdefault(tuple(pair for pair in layers if pair[0] != axis), []).append(place)
        for where, places in groups.items():
            cells = [view.cells[p] for p in places]
            baseline = name == first and any(cell.is_baseline for cell in cells)
            if not baseline and not all(cell.is_control for cell in cells):
                yield _block(view, layout, axis, where, places)


def _block(
    view: View,
    layout: Layout,
    axis: str,
    where: tuple[tuple[str, Value], ...],
    places: Sequence[Place],
) -> Block:
    by_step: dict[Value, list[Place]] = {}
    for place in places:
        by_step.setdefault(layout.values(place)[axis] if axis else None, []).append(place)

    def changes(key: str, value: Value, index: int | None) -> Changes:
        parts = {
            step: [p for p in part if index is None or p[index] == value]
            for step, part in by_step.items()
        }
        means = tuple(view.change(part) for part in parts.values())
        return Changes(key, value, means, _trend(view, parts))

    rows, columns = (dict.fromkeys(place[at] for place in places) for at in (0, 1))
    return Block(
        control=view.control,
        where=where,
        axis=axis,
        steps=tuple(by_step),
        tallies=tuple(view.tally(part) for part in by_step.values()),
        overall=changes("", None, None),
        rows=tuple(changes(layout.rows, value, 0) for value in rows),
        columns=tuple(changes(layout.columns, v, 1) for v in columns if layout.columns),
    )


def _trend(view: View, parts: Mapping[Value, Sequence[Place]]) -> Trend | None:
    """The change of the mean difference between the first and the last step with differences, over
    the cells that both have; None for ratios, of which an item has no difference."""
    fair = {step: [p for p in part if view.is_fair(p)] for step, part in parts.items()}
    steps = [step for step, part in fair.items() if part]
    if len(steps) < 2 or view.ratios:
        return None
    before = {place[:2]: place for place in fair[steps[0]]}
    pairs = [
        (_gains(view, before[place[:2]]), _gains(view, place))
        for place in fair[steps[-1]]
        if place[:2] in before
    ]
    change = average_change(pairs) if pairs else None
    return Trend(change, steps[0], steps[-1]) if change is not None else None


def _gains(view: View, place: Place) -> ItemScores:
    """The gain of each item of a cell over its control."""
    (arm,), (other,) = view.controls[place], view.cells[place].pooled
    control, other = on_shared_items(*on_one_scale(arm.scores, other))
    before = dict(zip(control.item_ids, control.item_means, strict=True))
    gained_I = other.item_means - np.array([before[item] for item in other.item_ids])
    width = other.bounds[1] - other.bounds[0]
    return ItemScores(other.item_ids, gained_I[:, None], other.clusters, (-width, width))


def build(units: Sequence[Unit], ask: Question) -> Matrix:
    """The matrix of the units. Raises InputError for an unknown key or baseline and for two units
    in one cell, InputError."""
    layout = ask.layout
    for key in layout.keys:
        check_key(key, [unit.coordinates for unit in units])
    values = {key: _values(units, key, ask) for key in layout.keys}
    for baseline in ask.controls.values():
        _check_where(baseline, values)
    rows, columns = values[layout.rows], values[layout.columns] if layout.columns else (None,)
    layers = _layers(units, ask, values)
    places = [(r, c, *layer) for layer in layers for r in rows for c in columns]
    cells = _placed(units, layout, places, "not in the search" if ask.chosen_points else "not run")
    ratios = tuple(ask.ratios_to.values())
    cells = {p: scored(c, ratios) if c.state == "measured" else c for p, c in cells.items()}
    controls: dict[str, Controls] = {}
    notes = [
        *ask.notes,
        *(finding("damaged", "warning", name=u.problem) for u in units if u.state == "damaged"),
    ]
    if ask.controls:
        terms = Terms(allow=ask.allow, axes=ask.declared)
        cells, controls, more = judge_cells(cells, layout, ask.controls, ratios, terms)
        notes += more
    runs = list(dict.fromkeys(run for unit in units for run in unit.runs))
    measured = {origin.run for unit in units for arm in unit.parts for origin in origins_of(arm)}
    reasons = {run: overridden(read_manifest(run)) for run in runs if run in measured}
    notes += [
        finding("made_despite", "warning", name=f"{run} ({why})")
        for run, why in reasons.items()
        if why
    ]
    notes += [each for run in runs if run in measured for each in unlearned(run)]
    compared = [arm for found in controls.values() for parts in found.values() for arm in parts]
    _check_one_metric([*(arm for unit in units for arm in unit.parts), *compared])
    views = {name: View(cells, found, ratios, name) for name, found in controls.items()}
    main = next(iter(views.values()), View(cells, {}, ratios, ""))
    advice = recommend(cells, main.controls, bool(views), ask.select, ask.select_ratios)
    points = sum(cell.state != "not in the search" for cell in cells.values())
    return Matrix(
        name=ask.name,
        about=ask.about,
        layout=layout,
        on=ask.on or tuple(dict.fromkeys(o.record.name for c in cells.values() for o in c.origins)),
        ratios_to=ask.ratios_to,
        baseline=next((each.words for each in ask.controls.values()), ""),
        controls={name: each.words for name, each in ask.controls.items()},
        rows=rows,
        columns=columns,
        layers=layers,
        cells=cells,
        margins=tuple(margins(main, layout, rows, columns, layers)),
        tally=main.tally(cells),
        blocks=tuple(blocks(layout, views)),
        trainings=tuple(trainings(runs)),
        data_files=tuple(data_files(runs)),
        recommendation=replace(advice, points=points if ask.sweep else 0),
        notes=tuple(notes),
    )


def _check_one_metric(arms: Iterable[Arm]) -> None:
    """Raise InputError where a fallback metric scored some answers to a benchmark and not others.

    Cells stand side by side and are averaged, so that all of them are checked together, whether
    they are compared or not.
    """
    by_benchmark: dict[str, dict[str, Arm]] = {}
    for member in (member for arm in arms for member in arm.members):
        for origin in origins_of(member):
            named = by_benchmark.setdefault(origin.record.benchmark, {})
            named.setdefault(f"{origin} on {origin.record.name}", member)
    for named in by_benchmark.values():
        check_one_metric(named)


def _check_where(baseline: Baseline, values: Mapping[str, tuple[Value, ...]]) -> None:
    for key, value in (baseline.where or {}).items():
        if key not in values:
            fix = "an axis of this table: " + ", ".join(values)
            raise InputError(f"the baseline's {key!r} is no axis", fix=fix)
        if place_value(value) not in values[key]:
            problem = f"no cell has the baseline's {key} = {value}"
            raise InputError(problem, fix=nearest(str(value), values[key]))


def _values(units: Sequence[Unit], key: str, ask: Question) -> tuple[Value, ...]:
    """The values of an axis in their order."""
    if ask.listed and key == ask.listed[0]:
        return (*ask.listed[1], *([None] if any(unit.stands for unit in units) else []))
    values = [place_value(u.coordinates.get(key)) for u in units if _has_place(u, (key,))]
    return tuple(dict.fromkeys(values)) if key == ARM else ordered(values) or (None,)


def _layers(
    units: Sequence[Unit], ask: Question, values: Mapping[str, tuple[Value, ...]]
) -> tuple[Place, ...]:
    """The combinations of layers that some unit has, or will have, in the order of the axes."""
    layout, listed = ask.layout, ask.listed[:1] if ask.listed else ()
    late = [index for index, key in enumerate(layout.layers) if key in listed]

    def without_late(layer: Place) -> Place:
        return tuple(value for index, value in enumerate(layer) if index not in late)

    there = {layout.place(u.coordinates)[2:] for u in units if _has_place(u, layout.layers)}
    # Where one checkpoint stands for all, none of the single ones is awaited.
    whole = {without_late(layer) for layer in there if any(layer[i] is None for i in late)}
    return tuple(
        layer
        for layer in product(*(values[key] for key in layout.layers))
        if layer in there
        or (late and all(layer[i] is not None for i in late) and without_late(layer) not in whole)
    )


def _has_place(unit: Unit, keys: Iterable[str]) -> bool:
    """Whether the unit has a place by these keys: an unmeasured one has no checkpoint."""
    late = [key for key in keys if is_late(key)]
    return unit.state in ("measured", "damaged") or all(key in unit.coordinates for key in late)


def _placed(
    units: Sequence[Unit], layout: Layout, places: Sequence[Place], absent: State
) -> dict[Place, Cell]:
    """The cells; `absent` is the state of a place whose settings no unit has."""
    placed: dict[Place, Unit] = {}
    for unit in units:
        if not _has_place(unit, layout.keys):
            continue
        place = layout.place(unit.coordinates)
        before = placed.get(place)
        if before is not None and (before.state == "measured") == (unit.state == "measured"):
            raise _shared(before, unit, layout)
        if before is None or unit.state == "measured":
            placed[place] = unit
    return {
        place: Cell(place, unit.state, unit, run=unit.waiting)
        if (unit := placed.get(place))
        else _empty_cell(units, layout, place, absent)
        for place in places
    }


def _shared(first: Unit, second: Unit, layout: Layout) -> InputError:
    """The error for two units in one cell, with a key that tells them apart."""
    one, two = ({k: place_value(v) for k, v in u.coordinates.items()} for u in (first, second))
    apart = [k for k in sorted(one | two) if one.get(k) != two.get(k) and k not in layout.keys]
    # The shortest path says most: a table differs because a value in it does.
    inner = [k for k in apart if not any(other.startswith(f"{k}.") for other in apart)]
    late = ("seed", "step", "stage")
    useful = [k for k in inner if k not in ("name", *late, *CHECKPOINT_KEYS)]
    useful = useful or [k for k in (*late, *inner) if k in inner]
    fix = f"add --layers {useful[0]}" if useful else "name one of them"
    more = f", which differ in {', '.join(useful[:5])}" if useful else ""
    return InputError(f"{first.name} and {second.name} fall into one cell{more}", fix=fix)


def _empty_cell(units: Sequence[Unit], layout: Layout, place: Place, absent: State) -> Cell:
    """A place without a unit: why it is empty, and the run whose settings it has."""
    values = layout.values(place)
    early = {key: value for key, value in values.items() if not is_late(key)}
    there = [
        unit
        for unit in units
        if all(place_value(unit.coordinates.get(k)) == v for k, v in early.items())
    ]
    run = there[0].name.partition("@")[0] if there else ""
    wanted = [value for key, value in values.items() if key in CHECKPOINT_KEYS]
    some_stand = any(unit.stands for unit in units)
    if some_stand and any(u.stands != (value is None) for u in there for value in wanted):
        return Cell(place, "not in the search", run=run)
    waiting: list[State] = [unit.state for unit in there if unit.state != "measured"]
    if waiting or not there or len(early) == len(values):
        return Cell(place, waiting[0] if waiting else absent, run=run)
    by_record = any(key.startswith(RECORD) for key in values)
    return Cell(place, "not measured" if by_record else "no checkpoint", run=run)
