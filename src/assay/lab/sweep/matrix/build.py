"""Builds a matrix from its units: the grid, cells, averages, counts, arms, the recommendation.

Figures come from `judged_cells` and `summary`; runs are found in `units`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from assay.compare.arm import Arm
from assay.compare.fairness import Terms, check_one_metric
from assay.errors import InputError, nearest
from assay.lab.sweep.matrix.control_blocks import blocks
from assay.lab.sweep.matrix.coordinates import (
    CHECKPOINT_KEYS,
    RECORD,
    check_key,
    ordered,
    place_value,
)
from assay.lab.sweep.matrix.judged_cells import BadBaseline, Baseline, Controls, judge_cells, scored
from assay.lab.sweep.matrix.model import (
    Cell,
    Layout,
    Matrix,
    Note,
    Place,
    State,
    Unit,
    Value,
    origins_of,
)
from assay.lab.sweep.matrix.recommendation import recommend
from assay.lab.sweep.matrix.summary import View, arms, margins, overlaps
from assay.lab.sweep.matrix.training_epochs import data_files, trainings
from assay.lab.sweep.read_sweep import ARM
from assay.runs.manifest_file import overridden, read_manifest
from assay.runs.run_directory import RunDirectory


class SharedCell(InputError):
    """Two runs or checkpoints fall into one cell."""


@dataclass(frozen=True, slots=True)
class Question:
    """Options of a matrix besides its layout."""

    name: str
    about: str
    on: tuple[str, ...]
    ratios_to: Mapping[str, float]
    controls: Mapping[str, Baseline]
    """What cells are compared with; cells show the first."""
    select: tuple[str, ...]
    """The evaluations that rank cells; empty: the only selecting one."""
    declared: tuple[str, ...]
    """Keys in which the units may differ: the axes, and what arms set."""
    allow: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    select_ratios: Mapping[str, float] = field(default_factory=dict)
    """Baseline scores of `select`, where it is several."""
    listed: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """The wanted values of a key of checkpoints."""
    sweep: bool = False
    """Whether the units are all points of one."""
    chosen_points: bool = False
    """Whether places without a unit are no part of the search; else their runs are missing."""


def build(units: Sequence[Unit], layout: Layout, ask: Question) -> Matrix:
    """The matrix of the units. Raises UnknownKey, SharedCell and BadBaseline."""
    for key in layout.keys:
        check_key(key, [unit.coordinates for unit in units])
    for each in ask.controls.values():
        _check_where(units, layout, ask, each)
    rows, columns, layers = _axes(units, layout, ask)
    places = [(r, c, *layer) for layer in layers for r in rows for c in columns]
    cells = _placed(units, layout, places, "not in the search" if ask.chosen_points else "not run")
    ratios = tuple(ask.ratios_to.values())
    cells = {p: scored(c, ratios) if c.state == "measured" else c for p, c in cells.items()}
    controls: dict[str, Controls] = {}
    notes = [*ask.notes, *(Note("damaged", u.problem) for u in units if u.state == "damaged")]
    if ask.controls:
        terms = Terms(allow=ask.allow, axes=ask.declared)
        cells, controls, more = judge_cells(cells, layout, ask.controls, ratios, terms)
        notes += more
    main = next(iter(ask.controls), "")
    measured = [unit.parts for unit in units if unit.state == "measured"]
    notes += overridden_runs(o.run for parts in measured for arm in parts for o in origins_of(arm))
    compared = [parts for found in controls.values() for parts in found.values()]
    _check_one_metric(arm for parts in (*measured, *compared) for arm in parts)
    view = View(cells, controls.get(main, {}), ratios)
    runs = list(dict.fromkeys(run for unit in units for run in unit.runs))
    return Matrix(
        name=ask.name,
        about=ask.about,
        layout=layout,
        on=ask.on or _measured_on(cells.values()),
        ratios_to=ask.ratios_to,
        baseline=ask.controls[main].words if ask.controls else "",
        controls={name: each.words for name, each in ask.controls.items()},
        rows=rows,
        columns=columns,
        layers=layers,
        cells=cells,
        margins=tuple(margins(view, layout, rows, columns, layers)),
        tally=view.tally(cells),
        arms=tuple(arms(view, layout)),
        overlaps=overlaps(layout, cells.values()),
        blocks=tuple(blocks(layout, cells, controls, ratios)),
        trainings=tuple(trainings(runs)),
        data_files=tuple(data_files(runs)),
        recommendation=replace(
            recommend(
                cells, controls.get(main, {}), bool(ask.controls), ask.select, ask.select_ratios
            ),
            points=_points(cells) if ask.sweep else 0,
        ),
        notes=tuple(notes),
    )


def _points(cells: Mapping[Place, Cell]) -> int:
    return sum(cell.state != "not in the search" for cell in cells.values())


def _check_one_metric(arms: Iterable[Arm]) -> None:
    """Raise Unfair where a fallback metric scored some answers to a benchmark and not others.

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


def _check_where(units: Sequence[Unit], layout: Layout, ask: Question, baseline: Baseline) -> None:
    for key, value in (baseline.where or {}).items():
        if key not in layout.keys:
            fix = "an axis of this table: " + ", ".join(layout.keys)
            raise BadBaseline(f"the baseline's {key!r} is no axis", fix=fix)
        known = _values(units, key, ask)
        if place_value(value) not in known:
            problem = f"no cell has the baseline's {key} = {value}"
            raise BadBaseline(problem, fix=nearest(str(value), known))


def _measured_on(cells: Iterable[Cell]) -> tuple[str, ...]:
    names = [o.record.name for c in cells for o in c.origins]
    return tuple(dict.fromkeys(names))


def _axes(
    units: Sequence[Unit], layout: Layout, ask: Question
) -> tuple[tuple[Value, ...], tuple[Value, ...], tuple[Place, ...]]:
    """The values of rows and columns, and the combinations that are layers."""
    known = {key: _values(units, key, ask) for key in layout.keys}
    columns = known[layout.columns] if layout.columns else (None,)
    found = {
        tuple(place_value(u.coordinates.get(key)) for key in layout.layers)
        for u in units
        if _placeable(u, layout.layers)
    }
    # In the order of the axes; only combinations that some unit has, or will have.
    every = product(*(known[key] for key in layout.layers))
    late = [index for index, key in enumerate(layout.layers) if key in ask.listed]
    whole = {_without(place, late) for place in found if any(place[i] is None for i in late)}
    layers = [place for place in every if place in found or _awaited(place, late, whole)]
    return known[layout.rows], columns, tuple(layers)


def _awaited(place: Place, late: Sequence[int], whole: Collection[Place]) -> bool:
    """Whether a layer of a wanted checkpoint is there though nothing of it is; not so where one
    checkpoint stands for all."""
    listed = bool(late) and all(place[index] is not None for index in late)
    return listed and _without(place, late) not in whole


def _values(units: Sequence[Unit], key: str, ask: Question) -> tuple[Value, ...]:
    if key in ask.listed:
        return (*ask.listed[key], None) if any(map(_of_all, units)) else ask.listed[key]
    values = [place_value(u.coordinates.get(key)) for u in units if _placeable(u, (key,))]
    if key == ARM:
        return tuple(dict.fromkeys(values))
    return ordered(values) or (None,)


def _late(key: str) -> bool:
    """Whether only measured units have a key."""
    return key in CHECKPOINT_KEYS or key.startswith(RECORD)


def _placeable(unit: Unit, keys: Iterable[str]) -> bool:
    """Whether the unit has a place by these keys: an unmeasured one has no checkpoint."""
    late = [key for key in keys if _late(key)]
    return unit.state in ("measured", "damaged") or all(key in unit.coordinates for key in late)


def _of_all(unit: Unit) -> bool:
    """Whether the unit's one checkpoint stands at every value of an axis of checkpoints."""
    return unit.coordinates.get("checkpoint", "") is None


def _without(place: Place, indices: Sequence[int]) -> Place:
    return tuple(value for index, value in enumerate(place) if index not in indices)


def _place(unit: Unit, layout: Layout) -> Place:
    column = place_value(unit.coordinates.get(layout.columns)) if layout.columns else None
    row, *layers = (place_value(unit.coordinates.get(key)) for key in (layout.rows, *layout.layers))
    return (row, column, *layers)


def _placed(
    units: Sequence[Unit], layout: Layout, places: Sequence[Place], absent: State
) -> dict[Place, Cell]:
    found: dict[Place, Unit] = {}
    for unit in units:
        if not _placeable(unit, layout.keys):
            continue
        place = _place(unit, layout)
        if place in found and not _replaces(unit, found[place]):
            if _replaces(found[place], unit):
                continue
            raise _shared(found[place], unit, layout)
        found[place] = unit
    return {
        place: Cell(place, found[place].state, found[place])
        if place in found
        else _empty_cell(units, layout, place, absent)
        for place in places
    }


def _replaces(new: Unit, old: Unit) -> bool:
    return new.state == "measured" and old.state != "measured"


def _shared(first: Unit, second: Unit, layout: Layout) -> SharedCell:
    """Names a key that tells the two apart."""
    keys = first.coordinates.keys() | second.coordinates.keys()
    apart = sorted(
        key
        for key in keys
        if place_value(first.coordinates.get(key)) != place_value(second.coordinates.get(key))
        and key not in layout.keys
    )
    # The shortest path says most: a table differs because a value in it does.
    inner = [k for k in apart if not any(other.startswith(f"{k}.") for other in apart)]
    settings = [k for k in inner if k not in ("name", "seed", *CHECKPOINT_KEYS)]
    useful = settings or [k for k in ("seed", "step", "stage", *inner) if k in inner]
    fix = f"add --layers {useful[0]}" if useful else "name one of them"
    more = f", which differ in {', '.join(useful[:5])}" if useful else ""
    return SharedCell(f"{first.name} and {second.name} fall into one cell{more}", fix=fix)


def _empty_cell(units: Sequence[Unit], layout: Layout, place: Place, absent: State) -> Cell:
    """A place without a unit, with the run whose settings it has."""
    there = _units_at(units, layout, place)
    state = _empty_state(there, layout, place, absent, standing=any(map(_of_all, units)))
    return Cell(place, state, run=there[0].name.partition("@")[0] if there else "")


def _units_at(units: Sequence[Unit], layout: Layout, place: Place) -> list[Unit]:
    """The units with the settings of a place, whatever their checkpoint and record."""
    keys = [layout.rows, layout.columns, *layout.layers]
    early = {k: v for k, v in zip(keys, place, strict=True) if k is not None and not _late(k)}
    return [
        unit
        for unit in units
        if all(place_value(unit.coordinates.get(k)) == v for k, v in early.items())
    ]


def _empty_state(
    there: Sequence[Unit], layout: Layout, place: Place, absent: State, *, standing: bool
) -> State:
    """Why a place is empty: `absent` where no unit has its settings, or the state of its run.

    `standing`: some arms have one checkpoint for all values of an axis of checkpoints.
    """
    keys = [layout.rows, layout.columns, *layout.layers]
    late = [key for key in layout.keys if _late(key)]
    wanted = [v for k, v in zip(keys, place, strict=True) if k in CHECKPOINT_KEYS]
    if standing and any(_of_all(u) != (value is None) for u in there for value in wanted):
        return "not in the search"
    waiting: list[State] = [unit.state for unit in there if unit.state != "measured"]
    if waiting:
        return waiting[0]
    if not there or not late:
        return absent
    return "not measured" if any(key.startswith(RECORD) for key in late) else "no checkpoint"


def overridden_runs(runs: Iterable[RunDirectory]) -> list[Note]:
    """A note on each run that was made although its checks ended with errors."""
    reasons = {run: overridden(read_manifest(run)) for run in dict.fromkeys(runs)}
    return [Note("despite", f"{run} ({reason})") for run, reason in reasons.items() if reason]
