"""Which values of an axis rest on the same, on nested or on overlapping rows and items.

Items are compared by the ids in the records. Training rows are known by the manifests: subsets of
one source, taken in one way, lie within each other. Figures are not touched here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.compare.fairness import ROWS
from assay.judge.families import relation
from assay.lab.sweep.matrix.coordinates import ordered
from assay.lab.sweep.matrix.model import Cell, Layout, Overlap, Value, origins_of

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
    """The items of a cell, told apart by benchmark."""
    assert cell.unit is not None
    records = [origin.record for arm in cell.unit.parts for origin in origins_of(arm)[:1]]
    return frozenset(f"{r.benchmark}\n{item}" for r in records for item in r.items)


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
    """What the manifest of the cell's first run says about its data sets."""
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
