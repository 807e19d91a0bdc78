"""What rows, columns, layers and arms of a matrix come to: averages, counts, strengths.

Figures are `judge`'s; which cells belong together is decided here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from assay.compare.arm import Arm
from assay.judge.averages import Average, average, average_change
from assay.judge.families import Tally, tally
from assay.lab.sweep.matrix.judged_cells import pooled
from assay.lab.sweep.matrix.model import ArmView, Cell, Layout, Margin, Place, Value
from assay.lab.sweep.matrix.overlap import item_ids
from assay.lab.sweep.sweep_table import ARM

Controls = Mapping[Place, tuple[Arm, ...]]
"""What each compared cell is compared with."""


@dataclass(frozen=True, slots=True)
class View:
    """Cells with what averages need."""

    cells: Mapping[Place, Cell]
    controls: Controls
    ratios: tuple[float, ...]

    def average(self, places: Sequence[Place]) -> Average | None:
        """The mean over the measured cells among `places`; None where there is none."""
        units = [self.cells[p].unit for p in places if self.cells[p].state == "measured"]
        found = [pooled(unit.parts) for unit in units if unit is not None]
        return average(found, self.ratios) if found else None

    def change(self, places: Sequence[Place]) -> Average | None:
        """The mean difference over the fairly compared cells among `places`."""
        pairs = []
        for place in places:
            cell = self.cells[place]
            fair = cell.comparison is not None and cell.comparison.verdict != "not comparable"
            if fair and cell.unit is not None:
                pairs.append((pooled(self.controls[place]), pooled(cell.unit.parts)))
        return average_change(pairs, self.ratios) if pairs else None

    def tally(self, cells: Mapping[Place, Cell]) -> Tally:
        """The counts over some of the cells."""
        compared = {repr(p): c.comparison for p, c in cells.items() if c.comparison is not None}
        items = {repr(p): item_ids(c) for p, c in cells.items() if c.comparison is not None}
        run = sum(c.state == "measured" for c in cells.values())
        absent = sum(c.state == "no checkpoint" for c in cells.values())
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
    return Margin(key, value, layer, view.average(places), view.change(places), len(places))


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
