"""Summarises cells against each control: counts, means by row and by column, and their trend.

A block holds the cells of one arm (of one place of the layers) over all of its checkpoints. Figures
come from `judge`; cells and their controls from `judged_cells`.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from assay.judge.averages import Average, average_change
from assay.judge.scores import ItemScores, on_one_scale, on_shared_items
from assay.lab.sweep.matrix.coordinates import CHECKPOINT_KEYS
from assay.lab.sweep.matrix.judged_cells import Controls, pooled
from assay.lab.sweep.matrix.model import Block, Cell, Changes, Layout, Place, Trend, Value
from assay.lab.sweep.matrix.summary import View


def blocks(
    layout: Layout,
    cells: Mapping[Place, Cell],
    controls: Mapping[str, Controls],
    ratios: tuple[float, ...],
) -> Iterator[Block]:
    """A block for each control and arm; none for cells that are what others are compared with."""
    axis = next((key for key in layout.layers if key in CHECKPOINT_KEYS), "")
    groups: dict[tuple[tuple[str, Value], ...], list[Place]] = {}
    for place in cells:
        where = [pair for pair in zip(layout.layers, place[2:], strict=True) if pair[0] != axis]
        groups.setdefault(tuple(where), []).append(place)
    first = next(iter(controls), "")
    for name, found in controls.items():
        view = View(cells, found, ratios, name)
        for where, places in groups.items():
            baseline = name == first and any(cells[p].is_baseline for p in places)
            if not baseline and not all(cells[p].is_control for p in places):
                yield _block(view, layout, axis, where, places)


def _block(
    view: View,
    layout: Layout,
    axis: str,
    where: tuple[tuple[str, Value], ...],
    places: Sequence[Place],
) -> Block:
    at = 2 + layout.layers.index(axis) if axis else None
    steps: tuple[Value, ...] = (None,)
    if at is not None:
        steps = tuple(dict.fromkeys(place[at] for place in places))
    of_step = [[p for p in places if at is None or p[at] == step] for step in steps]
    tallies = [view.tally({p: view.cells[p] for p in part}) for part in of_step]

    def changes(key: str, value: Value, index: int | None) -> Changes:
        parts = [[p for p in part if index is None or p[index] == value] for part in of_step]
        means = tuple(view.change(part) for part in parts)
        return Changes(key, value, means, _trend(view, parts, steps))

    return Block(
        control=view.control,
        where=where,
        axis=axis,
        steps=steps,
        tallies=tuple(tallies),
        overall=changes("", None, None),
        rows=tuple(changes(layout.rows, v, 0) for v in dict.fromkeys(p[0] for p in places)),
        columns=tuple(
            changes(layout.columns, v, 1)
            for v in dict.fromkeys(p[1] for p in places)
            if layout.columns
        ),
    )


def _trend(view: View, parts: Sequence[Sequence[Place]], steps: Sequence[Value]) -> Trend | None:
    """The change of the mean difference between the first and the last step with differences, over
    the cells that both have; None for ratios, of which an item has no difference."""
    compared = [
        (s, [p for p in part if view.is_fair(p)]) for s, part in zip(steps, parts, strict=True)
    ]
    there = [(step, part) for step, part in compared if part]
    if len(there) < 2 or view.ratios:
        return None
    (first, before), (last, after) = there[0], there[-1]
    by_cell = {place[:2]: place for place in before}
    pairs = [
        ((_differences(view, by_cell[place[:2]]),), (_differences(view, place),))
        for place in after
        if place[:2] in by_cell
    ]
    change: Average | None = average_change(pairs) if pairs else None
    return Trend(change, first, last) if change is not None else None


def _differences(view: View, place: Place) -> ItemScores:
    """What each item of a cell gained over its control."""
    unit = view.cells[place].unit
    assert unit is not None
    (control,), (other,) = pooled(view.controls[place]), pooled(unit.parts)
    control, other = on_shared_items(*on_one_scale(control, other))
    before = dict(zip(control.item_ids, control.item_means, strict=True))
    gained_I = other.item_means - np.array([before[item] for item in other.item_ids])
    width = other.bounds[1] - other.bounds[0]
    return ItemScores(other.item_ids, gained_I[:, None], other.clusters, (-width, width))
