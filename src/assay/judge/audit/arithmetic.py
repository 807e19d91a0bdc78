"""Audit rules about numbers and averages that are impossible or contradict those beside them.

A printed number stands for all values that round to it or are cut off to it (`cells`).
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from math import floor

from assay.data.reported.printed_numbers import (
    MODES,
    exactly,
    is_change,
    mean_of,
    on_grid,
    prints,
    rounding,
)
from assay.data.reported.reported_record import Average, Identity, Metric, Reported, Run
from assay.errors import Finding
from assay.judge.audit.cells import Cell, cells, flaw, unit_of

FEWEST_OFF = 4
MULTIPLIERS = range(2, 11)
"""Fractions that are looked for: a half to a tenth."""


def impossible_granularity(report: Reported) -> Iterator[Finding]:
    """Scores that no number of right items gives."""
    if _partial_credit(report):
        return
    for name, cell, unit, line in _graded(report):
        off = [value for value in cell.values if not on_grid(value, unit)]
        if off:
            below = [floor(Fraction(v) / unit) * float(unit) for v in off]
            numbers = {
                "values": ", ".join(f"{value:f}" for value in off),
                "items": cell.items or 0,
                "unit": float(unit),
                "below": below[0],
                "above": below[0] + float(unit),
                "count": len(off),
                "of": len(cell.values),
            }
            yield flaw("impossible_granularity", "error", name, numbers, line)


def items_score_in_parts(report: Reported) -> Iterator[Finding]:
    """Most scores are no whole number of correct items: the item count or the step differs."""
    if _partial_credit(report):
        off, of = _off_grid(report)
        name = report.scoring.benchmark or report.about
        yield flaw("items_score_in_parts", "note", name, {"count": off, "of": of})


def _partial_credit(report: Reported) -> bool:
    """Whether most scores contradict the assumed step of one item, so that the step is wrong."""
    off, of = _off_grid(report)
    return off >= FEWEST_OFF and 2 * off > of


def _off_grid(report: Reported) -> tuple[int, int]:
    """Number of values that no number of right items gives, of all."""
    values = [(v, unit) for _, cell, unit, _ in _graded(report) for v in cell.values]
    return sum(not on_grid(value, unit) for value, unit in values), len(values)


def fraction_of_plausible(report: Reported) -> Iterator[Finding]:
    """Impossible scores that become possible when all are multiplied by a small whole number."""
    if _partial_credit(report):
        return
    categories = report.scoring.categories
    for name, cell, unit, line in _graded(report):
        if all(on_grid(value, unit) for value in cell.values):
            continue
        found = [times for times in MULTIPLIERS if _fits(cell, unit, times)]
        if found:
            times = categories if categories in found else found[0]
            numbers = {
                "times": times,
                "all": ", ".join(map(str, found)),
                "values": ", ".join(f"{value:f}" for value in cell.values),
                "restored": ", ".join(f"{value * times:f}" for value in cell.values),
                "missing": times - 1,
                "unit": float(unit),
            }
            yield flaw("fraction_of_plausible", "error", name, numbers, line)


def _fits(cell: Cell, unit: Fraction, times: int) -> bool:
    """Whether all values times a number are possible, where that could have failed."""
    # What the value stands for reaches over 3 roundings, cut off or rounded: half a unit at most.
    sharp = all(6 * times * rounding(value) < unit for value in cell.values)
    inside = all(value * times <= cell.scale for value in cell.values)
    return sharp and inside and all(on_grid(value, unit, times) for value in cell.values)


def _graded(report: Reported) -> Iterator[tuple[str, Cell, Fraction, int | None]]:
    """Name, cell, unit and line of all scores of a known number of items."""
    for run in report.runs:
        for cell in cells(report, run).values():
            unit = unit_of(cell)
            if unit is not None:
                yield f"{run.name} · {cell.name}" if cell.name else run.name, cell, unit, run.line


def not_from_counts(report: Reported) -> Iterator[Finding]:
    """Percentages that their counts, or any count of their trials, do not give."""
    for metric in report.metrics:
        if not metric.values or not metric.totals:
            continue
        for index, (value, total) in enumerate(zip(metric.values, metric.totals, strict=True)):
            count = metric.counts[index] if metric.counts else None
            unit = Fraction(100, total)
            exact = count is not None and prints(value, count * unit)
            if exact or (count is None and on_grid(value, unit)):
                continue
            numbers = {
                "value": str(value),
                "count": "?" if count is None else count,
                "total": total,
                "step": metric.steps[index],
                "is_": 100 * (count or 0) / total,
            }
            key = "no_count_gives_it" if count is None else "not_from_counts"
            yield flaw(key, "error", metric.name, numbers, metric.line)


def running_count_fell(report: Reported) -> Iterator[Finding]:
    """A running count or sum that fell: correct answers, wrong answers, costs."""
    for metric in report.metrics:
        summed = metric.meaning in ("count", "cost")
        counted = metric.counts or (metric.values if summed else ())
        if not metric.cumulative or len(counted) < 2:
            continue
        totals = metric.totals if metric.counts else ()
        shown = [f"{count}/{total}" for count, total in zip(counted, totals, strict=False)]
        rows: dict[str, Sequence[int | Decimal]] = {"running_count_fell": counted}
        if totals:
            wrong = [total - count for count, total in zip(metric.counts, totals, strict=True)]
            rows["running_rest_fell"] = wrong
        for key, row in rows.items():
            fell = [i for i in range(1, len(row)) if row[i] < row[i - 1]]
            if fell:
                yield _fell(key, metric, row, shown or list(map(str, counted)), fell[0])


def _fell(
    key: str, metric: Metric, row: Sequence[int | Decimal], shown: Sequence[str], at: int
) -> Finding:
    """A sum since the start that is smaller at a reading than at the one before it."""
    first, second = (
        float(value) if isinstance(value, Decimal) else value for value in row[at - 1 : at + 1]
    )
    numbers = {
        "before": shown[at - 1],
        "after": shown[at],
        "fell_from": first,
        "fell_to": second,
    }
    return flaw(key, "error", metric.name, numbers, metric.line)


def loss_identity(report: Reported) -> Iterator[Finding]:
    """Whether loss = part + coefficient x term on every row; both answers are worth knowing."""
    for identity in report.identities:
        rows = list(_identity_rows(report, identity))
        if not rows:
            continue
        wrong = [row for row in rows if not row[1]]
        terms = f"{identity.part} + {identity.coefficient} x {identity.term}"
        numbers = {"rows": len(rows), "wrong": len(wrong), "terms": terms}
        numbers |= {"example": (wrong or rows)[0][0]}
        key, severity = ("identity_fails", "error") if wrong else ("identity_holds", "note")
        yield flaw(key, severity, identity.loss, numbers, identity.line)


def _identity_rows(report: Reported, identity: Identity) -> Iterator[tuple[str, bool]]:
    """Each row in figures, and whether it adds up within rounding.

    The coefficient is a setting and taken as exact.
    """
    names = [identity.loss, identity.part, identity.term]
    constant = identity.coefficient if isinstance(identity.coefficient, Decimal) else None
    if constant is None:
        names.append(str(identity.coefficient))
    for total, first, second, *factor in _rows(report, names):
        times = factor[0] if factor else constant or Decimal(0)
        yield (
            f"{first} + {times} x {second} = {first + times * second} ~ {total}",
            any(
                (mode(first) + mode(second).times(Fraction(times))).meets(mode(total))
                for mode in MODES
            ),
        )


def _rows(
    report: Reported, names: Sequence[str], counted: str = ""
) -> Iterator[tuple[Decimal, ...]]:
    """The readings of several metrics at every step that all of them have; counts of `counted`."""
    columns = []
    for metric in map(report.metric, names):
        assert metric is not None, "the record was checked"
        counts = tuple(map(Decimal, metric.counts))
        read = counts or metric.values if metric.name == counted else metric.values or counts
        columns.append(dict(zip(metric.steps, read, strict=False)))
    for step in columns[0]:
        if all(step in column for column in columns):
            yield tuple(column[step] for column in columns)


def quotient(report: Reported) -> Iterator[Finding]:
    """Averages that are not their total over their count."""
    for claim in report.quotients:
        rows = list(_rows(report, (claim.value, claim.total, claim.count), claim.count))
        wrong = [row for row in rows if not _divides(*row)]
        if wrong:
            printed, whole, number = wrong[-1]
            numbers = {
                "value": str(printed),
                "total": str(whole),
                "count": str(number),
                "what": claim.count,
                "quotient": float(whole / number) if number else float("nan"),
                "implied": float(whole / printed) if printed else 0.0,
                "wrong": len(wrong),
                "rows": len(rows),
            }
            yield flaw("quotient", "error", claim.value, numbers, claim.line)


def _divides(*row: Decimal) -> bool:
    """Whether total / count may round to the value; a count of 0 has no average."""
    value, total, count = row
    if count == 0:
        return False
    return any(mode(total).times(1 / Fraction(count)).meets(mode(value)) for mode in MODES)


def wrong_change(report: Reported) -> Iterator[Finding]:
    """Printed changes that are not the difference of the numbers beside them."""
    for change in report.changes:
        if not is_change(change.before, change.after, change.says, change.relative):
            actual = Fraction(change.after) - Fraction(change.before)
            if change.relative:
                actual = actual / abs(Fraction(change.before)) * 100
            numbers = {
                "before": str(change.before),
                "after": str(change.after),
                "says": str(change.says),
                "is_": float(actual),
            }
            yield flaw("wrong_change", "error", change.of, numbers, change.line)


def mark_not_mean(report: Reported) -> Iterator[Finding]:
    """An overall mark that is not the mean of the marks it is printed with."""
    for rating in report.ratings:
        mean = sum(map(Fraction, rating.marks), Fraction(0)) / len(rating.marks)
        if not prints(rating.says, mean):
            numbers = {
                "marks": ", ".join(map(str, rating.marks)),
                "mean": float(mean),
                "says": str(rating.says),
            }
            yield flaw("mark_not_mean", "error", rating.name or report.about, numbers, rating.line)


def readings(metric: Metric) -> str:
    """The readings of a metric in a row."""
    shown = metric.values or tuple(map(Decimal, metric.counts))
    return " → ".join(map(str, shown))


ZERO = (Decimal("0"),)


def average_not_mean(report: Reported) -> Iterator[Finding]:
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
        if present and not _mean_fits(average.says, present):
            yield _flaw(average, run, present, missing)


def _flaw(average: Average, run: Run, present: list[Cell], missing: list[str]) -> Finding:
    """An average over these cells that does not follow from them."""
    zeros = [Cell(name, ZERO, None, present[0].scale, Decimal(1)) for name in missing]
    key = "average_not_mean"
    if zeros and _mean_fits(average.says, [*present, *zeros]):
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
    return flaw(key, "error", f"{run.name} · {average.name}", numbers, average.line or run.line)


def _left_out(says: Decimal, present: list[Cell]) -> str:
    """The one cell whose removal makes the average correct; empty where there is none."""
    if len(present) < 3:
        return ""
    rest = {cell.name: [other for other in present if other is not cell] for cell in present}
    return next((name for name, others in rest.items() if _mean_fits(says, others)), "")


def _mean(cell: Cell) -> float:
    return float(sum(cell.values) / len(cell.values))


def _mean_fits(says: Decimal, group: Sequence[Cell]) -> bool:
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
