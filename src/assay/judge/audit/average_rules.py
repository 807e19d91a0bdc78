"""Rules about printed averages: whether they follow from their columns, and what counted as 0."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

from assay.data.reported.reported_record import Average, Reported, Run
from assay.judge.audit.cells import Cell, cells
from assay.judge.audit.flaw import Flaw
from assay.judge.audit.printed import MODES, exactly, mean_of

ZERO = (Decimal("0"),)


def average_not_mean(report: Reported) -> Iterator[Flaw]:
    """Averages that are neither the mean of their cells nor the mean of all their items.

    An average that fits once the cells without a result count 0 says so instead.
    """
    for average in report.averages:
        run = report.run(average.run)
        assert run is not None, "the record was checked"
        scored = {k: cell for k, cell in cells(report, run).items() if k not in run.not_run}
        names = list(average.of) or [*scored, *run.not_run]
        present = [scored[name] for name in names if name in scored]
        missing = [name for name in names if name not in scored]
        if present and not _fits(average.says, present):
            yield _flaw(average, run, present, missing)


def _flaw(average: Average, run: Run, present: list[Cell], missing: list[str]) -> Flaw:
    """An average over these cells that does not follow from them."""
    zeros = [Cell(name, ZERO, None, present[0].scale, Decimal(1)) for name in missing]
    key = "average_not_mean"
    if zeros and _fits(average.says, [*present, *zeros]):
        key = "not_run_as_zero"
    values = [_mean(cell) for cell in present]
    numbers = {
        "says": str(average.says),
        "mean": float(sum(values) / len(values)),
        "cells": len(present),
        "values": ", ".join(f"{value:.4g}" for value in values),
        "missing": ", ".join(missing) or "–",
        "without": _left_out(average.says, present) or "–",
    }
    return Flaw(key, "error", f"{run.name} · {average.name}", numbers, average.line or run.line)


def _left_out(says: Decimal, present: list[Cell]) -> str:
    """The one cell without which the average would follow; empty where there is none."""
    if len(present) < 3:
        return ""
    rest = {cell.name: [other for other in present if other is not cell] for cell in present}
    return next((name for name, others in rest.items() if _fits(says, others)), "")


def _mean(cell: Cell) -> float:
    return float(sum(cell.values) / len(cell.values))


def _fits(says: Decimal, group: Sequence[Cell]) -> bool:
    """Whether a printed average may be the mean of the cells, or of all their items."""
    weights = [[1] * len(group)]
    items = [cell.items for cell in group]
    if all(items):
        weights.append([count or 1 for count in items])
    return any(_weighted(says, group, weighted) for weighted in weights)


def _weighted(says: Decimal, group: Sequence[Cell], weights: Sequence[int]) -> bool:
    for mode in MODES:
        parts = (mean_of(c.values, mode).times(w) for c, w in zip(group, weights, strict=True))
        total = sum(parts, exactly(0))
        if total.times(Fraction(1, sum(weights))).meets(mode(says)):
            return True
    return False
