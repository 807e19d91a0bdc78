"""Summarises the cells of a matrix: averages, counts, arms, blocks by control, shared items.

A block holds the cells of one arm (of one place of the layers) over all of its checkpoints. Decides
which cells belong together; figures come from `judge`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.compare.fairness import ROWS
from assay.judge.averages import Average, average, average_change
from assay.judge.families import Tally, relation, tally
from assay.judge.scores import ItemScores, on_one_scale, on_shared_items
from assay.lab.sweep.matrix.coordinates import CHECKPOINT_KEYS, Layout, Place, Value, ordered
from assay.lab.sweep.matrix.judged_cells import Controls
from assay.lab.sweep.matrix.model import ArmView, Block, Cell, Changes, Margin, Overlap, Trend
from assay.lab.sweep.read_sweep import ARM

EXAMPLES = "options.examples"
"""Worked examples in a prompt: a benchmark takes the first ones, so fewer lie within more."""


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
        """The mean over the measured cells among `places`; None where there is none."""
        scores = [self.cells[p].pooled for p in places if self.cells[p].state == "measured"]
        return average(scores, self.ratios) if scores else None

    def change(self, places: Sequence[Place]) -> Average | None:
        """The mean difference over the fairly compared cells among `places`."""
        pairs = [
            ([arm.scores for arm in self.controls[place]], self.cells[place].pooled)
            for place in places
            if self.is_fair(place)
        ]
        return average_change(pairs, self.ratios) if pairs else None

    def tally(self, places: Iterable[Place]) -> Tally:
        """The counts over some of the cells."""
        cells = [self.cells[place] for place in places]
        compared = {
            repr(c.place): c.against[self.control] for c in cells if self.control in c.against
        }
        items = {repr(c.place): item_ids(c) for c in cells if self.control in c.against}
        run = sum(c.state == "measured" for c in cells)
        absent = sum(c.state in ("no checkpoint", "not in the search") for c in cells)
        return tally(compared, run, len(cells) - run - absent, items)


def item_ids(cell: Cell) -> frozenset[str]:
    """The items of a cell, with their benchmarks in the ids."""
    ids = (f"{arm.benchmark}\n{item}" for arm in cell.parts for item in arm.scores.item_ids)
    return frozenset(ids)


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
            yield Margin(key, value, layer, view.average(places), view.change(places), searched)


def arms(view: View, layout: Layout) -> Iterator[ArmView]:
    """Strengths and weaknesses: by arm where there are arms, else by layer, else by row."""
    key = next((k for k in (ARM, *layout.layers) if k in layout.keys), layout.rows)
    groups: dict[Value, list[Place]] = {}
    for place in view.cells:
        groups.setdefault(layout.values(place)[key], []).append(place)
    for value, places in groups.items():
        cells = [view.cells[place] for place in places]
        yield ArmView(
            key=key,
            value=value,
            tally=view.tally(places),
            strengths=_by_verdict(cells, "better"),
            weaknesses=_by_verdict(cells, "worse"),
            change=view.change(places),
            baselines=sum(c.is_baseline for c in cells),
        )


def _by_verdict(cells: Iterable[Cell], verdict: str) -> tuple[Cell, ...]:
    found = [(c, c.comparison) for c in cells if c.comparison and c.comparison.verdict == verdict]
    return tuple(c for c, _ in sorted(found, key=lambda pair: -abs(pair[1].difference)))


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
        ((_gains(view, before[place[:2]]),), (_gains(view, place),))
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


def overlaps(layout: Layout, cells: Iterable[Cell]) -> Iterator[Overlap]:
    """For every axis with two values or more: how their items lie, and their rows where known."""
    measured = [(cell, layout.values(cell.place)) for cell in cells if cell.state == "measured"]
    for key in layout.keys:
        groups: dict[Value, list[Cell]] = {
            value: [cell for cell, values in measured if values[key] == value]
            for value in ordered(values[key] for _, values in measured)
        }
        if len(groups) > 1:
            yield from _of_axis(key, groups)


def _of_axis(key: str, groups: Mapping[Value, Sequence[Cell]]) -> Iterator[Overlap]:
    items = {value: frozenset().union(*map(item_ids, cells)) for value, cells in groups.items()}
    sizes = tuple((value, len(ids)) for value, ids in items.items())
    yield Overlap(key, "items", relation(list(items.values())), sizes)
    if key.endswith(EXAMPLES):
        numbers = tuple((value, value) for value in groups if isinstance(value, int))
        yield Overlap(key, "examples", "nested", numbers)
    data = {value: cells[0].origins[0].manifest.get("data", {}) for value, cells in groups.items()}
    for name in sorted({name for tables in data.values() for name in tables}):
        tables = {value: found[name] for value, found in data.items() if name in found}
        if sizes := _nested_rows(tables):
            yield Overlap(key, "rows", "nested", sizes)


def _nested_rows(tables: Mapping[Value, Mapping[str, Any]]) -> tuple[tuple[Value, int], ...]:
    """The sizes of subsets of one source, taken in one way; empty where they are no such."""
    counts = {value: table.get("train", {}).get("rows", 0) for value, table in tables.items()}
    sources = [
        {k: v for k, v in table.items() if k not in (*ROWS, "take")} for table in tables.values()
    ]
    ways = {table["take"]["how"] for table in tables.values() if table.get("take")}
    one_source = all(source == sources[0] for source in sources)
    nested = len(set(counts.values())) > 1 and len(ways) == 1 and one_source
    return tuple(counts.items()) if nested else ()
