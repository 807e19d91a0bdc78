"""Summarises the cells of a matrix: averages, counts, arms, shared items.

Decides which cells belong together; figures come from `judge`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.compare.fairness import ROWS
from assay.judge.averages import Average, average, average_change
from assay.judge.families import Tally, relation, tally
from assay.judge.verdict import Comparison
from assay.lab.sweep.matrix.coordinates import ordered
from assay.lab.sweep.matrix.judged_cells import Controls, pooled
from assay.lab.sweep.matrix.model import (
    ArmView,
    Cell,
    Layout,
    Margin,
    Overlap,
    Place,
    Value,
)
from assay.lab.sweep.read_sweep import ARM

EXAMPLES = "options.examples"
"""Worked examples in a prompt: a benchmark takes the first ones, so fewer lie within more."""


def overlaps(layout: Layout, cells: Iterable[Cell]) -> tuple[Overlap, ...]:
    """For every axis with two values or more: how their items lie, and their rows where known."""
    measured = [cell for cell in cells if cell.unit is not None and cell.state == "measured"]
    found = []
    places = {key: index for index, key in enumerate(layout.keys)}
    for key, index in places.items():
        at = index if layout.columns or index == 0 else index + 1
        groups: dict[Value, list[Cell]] = {}
        for value in ordered(cell.place[at] for cell in measured):
            groups[value] = [cell for cell in measured if cell.place[at] == value]
        if len(groups) > 1:
            found += _of_axis(key, groups)
    return tuple(found)


def item_ids(cell: Cell) -> frozenset[str]:
    """The items of a cell, with their benchmarks in the ids."""
    assert cell.unit is not None
    return frozenset(
        f"{arm.benchmark}\n{item}" for arm in cell.unit.parts for item in arm.scores.item_ids
    )


def _of_axis(key: str, groups: Mapping[Value, Sequence[Cell]]) -> list[Overlap]:
    items = {value: frozenset().union(*map(item_ids, cells)) for value, cells in groups.items()}
    sizes = tuple((value, len(ids)) for value, ids in items.items())
    found = [Overlap(key, "items", relation(list(items.values())), sizes)]  # type: ignore[arg-type]
    if key.endswith(EXAMPLES):
        numbers = tuple((value, value) for value in groups if isinstance(value, int))
        found.append(Overlap(key, "examples", "nested", numbers))
    rows = {value: taken(cells[0]) for value, cells in groups.items()}
    names = {name for tables in rows.values() for name in tables}
    for name in sorted(names):
        found += _nested_rows(
            key, {v: tables[name] for v, tables in rows.items() if name in tables}
        )
    return found


def taken(cell: Cell) -> dict[str, Mapping[str, Any]]:
    """The data sets in the manifest of the cell's first run."""
    assert cell.unit is not None
    return cell.origins[0].manifest.get("data", {})


def _nested_rows(key: str, tables: Mapping[Value, Mapping[str, Any]]) -> list[Overlap]:
    """Subsets of different sizes of one source, taken in one way."""
    counts = {value: table.get("train", {}).get("rows", 0) for value, table in tables.items()}
    sources = [
        {k: v for k, v in table.items() if k not in (*ROWS, "take")} for table in tables.values()
    ]
    ways = {table["take"]["how"] for table in tables.values() if table.get("take")}
    one_source = all(source == sources[0] for source in sources)
    if len(set(counts.values())) < 2 or len(ways) != 1 or not one_source:
        return []
    return [Overlap(key, "rows", "nested", tuple(counts.items()))]


@dataclass(frozen=True, slots=True)
class View:
    """Cells with the inputs of averages."""

    cells: Mapping[Place, Cell]
    controls: Controls
    ratios: tuple[float, ...]
    control: str = ""
    """The name of the control; "" for the baseline."""

    def comparison(self, cell: Cell) -> Comparison | None:
        """The cell's comparison with the control."""
        return cell.against.get(self.control) if self.control else cell.comparison

    def is_fair(self, place: Place) -> bool:
        """Whether the cell has a fair comparison with the control."""
        found = self.comparison(self.cells[place])
        return found is not None and found.verdict != "not comparable"

    def average(self, places: Sequence[Place]) -> Average | None:
        """The mean over the measured cells among `places`; None where there is none."""
        units = [self.cells[p].unit for p in places if self.cells[p].state == "measured"]
        found = [pooled(unit.parts) for unit in units if unit is not None]
        return average(found, self.ratios) if found else None

    def change(self, places: Sequence[Place]) -> Average | None:
        """The mean difference over the fairly compared cells among `places`."""
        pairs = []
        for place in places:
            unit = self.cells[place].unit
            if self.is_fair(place) and unit is not None:
                pairs.append((pooled(self.controls[place]), pooled(unit.parts)))
        return average_change(pairs, self.ratios) if pairs else None

    def tally(self, cells: Mapping[Place, Cell]) -> Tally:
        """The counts over some of the cells."""
        found = {p: self.comparison(c) for p, c in cells.items()}
        compared = {repr(p): c for p, c in found.items() if c is not None}
        items = {repr(p): item_ids(c) for p, c in cells.items() if found[p] is not None}
        run = sum(c.state == "measured" for c in cells.values())
        absent = sum(c.state in ("no checkpoint", "not in the search") for c in cells.values())
        return tally(compared, run, len(cells) - run - absent, items)


def margins(
    view: View,
    layout: Layout,
    rows: Sequence[Value],
    columns: Sequence[Value],
    layers: Sequence[Place],
) -> Iterable[Margin]:
    """Averages by row and by column of every layer, and of the layer."""
    for layer in layers:
        for row in rows:
            yield _margin(view, layout.rows, row, layer, [(row, c, *layer) for c in columns])
        for column in columns if layout.columns else ():
            places = [(row, column, *layer) for row in rows]
            yield _margin(view, layout.columns or "", column, layer, places)
        yield _margin(view, "", None, layer, [(r, c, *layer) for r in rows for c in columns])


def _margin(view: View, key: str, value: Value, layer: Place, places: Sequence[Place]) -> Margin:
    searched = sum(view.cells[place].state != "not in the search" for place in places)
    return Margin(key, value, layer, view.average(places), view.change(places), searched)


def arms(view: View, layout: Layout) -> Iterable[ArmView]:
    """Strengths and weaknesses: by arm where there are arms, else by layer, else by row."""
    key = next((k for k in (ARM, *layout.layers) if k in layout.keys), layout.rows)
    keys = [layout.rows, layout.columns, *layout.layers]
    at = keys.index(key)
    for value in dict.fromkeys(place[at] for place in view.cells):
        cells = {p: c for p, c in view.cells.items() if p[at] == value}
        yield ArmView(
            key=key,
            value=value,
            tally=view.tally(cells),
            strengths=_by_verdict(cells.values(), "better"),
            weaknesses=_by_verdict(cells.values(), "worse"),
            change=view.change(list(cells)),
            baselines=sum(c.is_baseline for c in cells.values()),
        )


def _by_verdict(cells: Iterable[Cell], verdict: str) -> tuple[Cell, ...]:
    found = [(c, c.comparison) for c in cells if c.comparison and c.comparison.verdict == verdict]
    return tuple(c for c, _ in sorted(found, key=lambda pair: -abs(pair[1].difference)))
