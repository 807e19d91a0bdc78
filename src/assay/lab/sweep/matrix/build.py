"""Builds a matrix: units by their coordinates in a grid, compared with their controls, summarised.

Figures come from `judged_cells` and `summary`; runs are found in `units`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from assay.compare.arm import Arm
from assay.compare.fairness import Terms, check_one_metric
from assay.errors import Finding, InputError, finding, nearest
from assay.lab.sweep.matrix.coordinates import (
    CHECKPOINT_KEYS,
    RECORD,
    Layout,
    Place,
    Value,
    check_key,
    is_late,
    ordered,
    place_value,
)
from assay.lab.sweep.matrix.judged_cells import Baseline, Controls, judge_cells, scored
from assay.lab.sweep.matrix.model import Cell, Matrix, State, Unit, origins_of
from assay.lab.sweep.matrix.recommendation import recommend
from assay.lab.sweep.matrix.summary import View, arms, blocks, margins, overlaps
from assay.lab.sweep.matrix.training_epochs import data_files, trainings
from assay.lab.sweep.read_sweep import ARM
from assay.runs.manifest_file import overridden, read_manifest


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
    notes: tuple[Finding, ...] = ()
    select_ratios: Mapping[str, float] = field(default_factory=dict)
    """Baseline scores of `select`, where it is several."""
    listed: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """The wanted values of a key of checkpoints."""
    sweep: bool = False
    """Whether the units are all points of one."""
    chosen_points: bool = False
    """Whether places without a unit are no part of the search; else their runs are missing."""


def build(units: Sequence[Unit], layout: Layout, ask: Question) -> Matrix:
    """The matrix of the units. Raises InputError for an unknown key or baseline and for two units
    in one cell, Unfair."""
    for key in layout.keys:
        check_key(key, [unit.coordinates for unit in units])
    values = {key: _values(units, key, ask) for key in layout.keys}
    for baseline in ask.controls.values():
        _check_where(baseline, values)
    rows, columns = values[layout.rows], values[layout.columns] if layout.columns else (None,)
    layers = _layers(units, layout, ask, values)
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
    notes += _overridden(units)
    compared = [arm for found in controls.values() for parts in found.values() for arm in parts]
    _check_one_metric([*(arm for unit in units for arm in unit.parts), *compared])
    views = {name: View(cells, found, ratios, name) for name, found in controls.items()}
    main = next(iter(views.values()), View(cells, {}, ratios, ""))
    runs = list(dict.fromkeys(run for unit in units for run in unit.runs))
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
        arms=tuple(arms(main, layout)),
        overlaps=tuple(overlaps(layout, cells.values())),
        blocks=tuple(blocks(layout, views)),
        trainings=tuple(trainings(runs)),
        data_files=tuple(data_files(runs)),
        recommendation=replace(advice, points=points if ask.sweep else 0),
        notes=tuple(notes),
    )


def _overridden(units: Sequence[Unit]) -> list[Finding]:
    """A note on each run that was made although its checks ended with errors."""
    runs = (origin.run for unit in units for arm in unit.parts for origin in origins_of(arm))
    reasons = {run: overridden(read_manifest(run)) for run in dict.fromkeys(runs)}
    return [
        finding("made_despite", "warning", name=f"{run} ({reason})")
        for run, reason in reasons.items()
        if reason
    ]


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
    if key in ask.listed:
        return (*ask.listed[key], *([None] if any(unit.stands for unit in units) else []))
    values = [place_value(u.coordinates.get(key)) for u in units if _has_place(u, (key,))]
    return tuple(dict.fromkeys(values)) if key == ARM else ordered(values) or (None,)


def _layers(
    units: Sequence[Unit], layout: Layout, ask: Question, values: Mapping[str, tuple[Value, ...]]
) -> tuple[Place, ...]:
    """The combinations of layers that some unit has, or will have, in the order of the axes."""
    late = [index for index, key in enumerate(layout.layers) if key in ask.listed]

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
        place: Cell(place, placed[place].state, placed[place])
        if place in placed
        else _empty_cell(units, layout, place, absent)
        for place in places
    }


def _shared(first: Unit, second: Unit, layout: Layout) -> InputError:
    """The error for two units in one cell, with a key that tells them apart."""
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
