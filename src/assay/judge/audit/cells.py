"""The scores of a run cell by cell, as shares with the rounding that their digits allow.

A cell is a benchmark or a subset that was scored. No rule is here.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from assay.data.reported.record import Reported, Run
from assay.judge.binomial import compare_counts
from assay.judge.verdict import Comparison


@dataclass(frozen=True, slots=True)
class Cell:
    """The printed values of one run on one benchmark or subset."""

    name: str
    values: tuple[Decimal, ...]
    items: int | None
    scale: int
    """100 where percentages are printed, 1 where shares are."""
    step: Decimal
    """Smallest step of one item's score."""
    repeats: int = 1
    """Passes over the items that each value is the mean of."""

    @property
    def mean(self) -> float:
        """The mean share over the repeats."""
        return float(sum(self.values) / len(self.values) / self.scale)

    @property
    def successes(self) -> float:
        """The number of items that the mean stands for; needs `items`."""
        assert self.items is not None
        return self.mean * self.items


def cells(report: Reported, run: Run) -> dict[str, Cell]:
    """The scored cells of a run by name."""
    scoring, repeats = report.scoring, run.repeats or report.scoring.repeats
    printed = {name: values for name, values in run.scores.items() if values}
    printed = _from_counts(report, run) | printed
    return {
        name: Cell(
            name, values, items_of(report, run, name), scoring.highest, scoring.step, repeats
        )
        for name, values in printed.items()
    }


def _from_counts(report: Reported, run: Run) -> dict[str, tuple[Decimal, ...]]:
    """Scores worked out from the counts of cells; a count above its items gives none."""
    found = {}
    for name, counts in run.right.items():
        items = items_of(report, run, name)
        if items and counts and max(counts) <= items:
            scale = report.scoring.highest
            found[name] = tuple(Decimal(scale * count) / items for count in counts)
    return found


def items_of(report: Reported, run: Run, cell: str) -> int | None:
    """Items of one cell: the run's own number before the report's."""
    for items in (run.items, report.scoring.items):
        found = items.get(cell) if isinstance(items, dict) else items
        if found:
            return found
    return None


def unit_of(cell: Cell) -> Fraction | None:
    """The smallest step of a printed score: one step of one item once; None without items."""
    if cell.items is None:
        return None
    return Fraction(cell.step) * cell.scale / (cell.items * cell.repeats)


def compare_cells(control: Cell, other: Cell) -> Comparison | None:
    """Two cells as two binomials without items; None where the number of items is not known."""
    if control.items is None or other.items is None:
        return None
    return compare_counts(control.successes, control.items, other.successes, other.items)
