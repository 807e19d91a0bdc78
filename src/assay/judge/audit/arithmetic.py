"""Audit rules about numbers and averages that are impossible or contradict those beside them.

A printed number stands for all values that round to it or are cut off to it (`cells`).
"""

import itertools
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, prod

from assay.data.reported.reported_record import Change, Identity, Reported
from assay.errors import Finding
from assay.judge.audit.cells import (
    MODES,
    Mode,
    PrintedCell,
    at,
    cells,
    exactly,
    flaw,
    items_of,
    on_grid,
    prints,
    rounding,
    unit_of,
)
from assay.judge.averages import harmonic_ratio

FEWEST_OFF = 4
MULTIPLIERS = range(2, 11)
"""Fractions that are looked for: a half to a tenth."""


def impossible_scores(report: Reported) -> Iterator[Finding]:
    """Scores that no number of right items gives, and whether a small whole number times them is
    possible. Where most scores are impossible, the step of one item is put in doubt instead."""
    graded = list(_graded(report))
    values = [(value, unit) for _, cell, unit, _ in graded for value in cell.values]
    off = sum(not on_grid(value, unit) for value, unit in values)
    if off >= FEWEST_OFF and 2 * off > len(values):
        name = report.scoring.benchmark or report.about
        yield flaw("items_score_in_parts", "note", name, {"count": off, "of": len(values)})
        return
    for name, cell, unit, line in graded:
        impossible = [value for value in cell.values if not on_grid(value, unit)]
        if not impossible:
            continue
        below = floor(Fraction(impossible[0]) / unit) * float(unit)
        numbers = {
            "values": ", ".join(f"{value:f}" for value in impossible),
            "items": cell.items or 0,
            "unit": float(unit),
            "below": below,
            "above": below + float(unit),
            "count": len(impossible),
            "of": len(cell.values),
        }
        yield flaw("impossible_granularity", "error", name, numbers, line)
        multipliers = [times for times in MULTIPLIERS if _fits(cell, unit, times)]
        if multipliers:
            categories = report.scoring.categories
            times = categories if categories in multipliers else multipliers[0]
            numbers = {
                "times": times,
                "all": ", ".join(map(str, multipliers)),
                "values": ", ".join(f"{value:f}" for value in cell.values),
                "restored": ", ".join(f"{value * times:f}" for value in cell.values),
                "missing": times - 1,
                "unit": float(unit),
            }
            yield flaw("fraction_of_plausible", "error", name, numbers, line)


def _fits(cell: PrintedCell, unit: Fraction, times: int) -> bool:
    """Whether all values times a number are possible, where that could have failed."""
    # What the value stands for reaches over 3 roundings, cut off or rounded: half a unit at most.
    sharp = all(6 * times * rounding(value) < unit for value in cell.values)
    inside = all(value * times <= cell.scale for value in cell.values)
    return sharp and inside and all(on_grid(value, unit, times) for value in cell.values)


def _graded(report: Reported) -> Iterator[tuple[str, PrintedCell, Fraction, int | None]]:
    """Name, cell, unit and line of all scores of a known number of items."""
    for run in report.runs:
        for cell in cells(report, run).values():
            unit = unit_of(cell)
            if unit is not None:
                yield at(run.name, cell.name), cell, unit, run.line


def not_from_counts(report: Reported) -> Iterator[Finding]:
    """Percentages and scores that their own counts do not give, of all trials or of all passes over
    them."""
    for about, value, count, total, times, scale, line in _counted(report):
        shares = [Fraction(scale * count, of) for of in (total, total * times)]
        if count <= total * times and (value is None or any(prints(value, s) for s in shares)):
            continue
        numbers = {
            "value": "–" if value is None else str(value),
            "count": count,
            "total": total,
            "is_": float(shares[0]),
        }
        yield flaw("not_from_counts", "error", about, numbers, line)


Printed = tuple[str, Decimal | None, int, int, int, int, int | None]


def _counted(report: Reported) -> Iterator[Printed]:
    """What is printed beside a count: about what, value, count, trials, passes over them, the value
    where all are right, line."""
    for m in report.metrics:
        if m.counts and m.totals:
            for printed in zip(m.values, m.counts, m.totals, strict=False):
                yield m.name, *printed, 1, 100, m.line
    scoring = report.scoring
    for run in report.runs:
        for cell, counts in run.right.items():
            items = items_of(report, run, cell)
            if items is None or scoring.step != 1:
                continue
            values = run.scores.get(cell) or (None,) * len(counts)
            for value, count in zip(values, counts, strict=True):
                about = at(run.name, cell)
                yield about, value, count, items, scoring.repeats, scoring.highest, run.line


def running_count_fell(report: Reported) -> Iterator[Finding]:
    """A running count or sum that fell: correct answers, wrong answers, costs."""
    for metric in report.metrics:
        summed = metric.meaning in ("count", "cost")
        counted = metric.counts or (metric.values if summed else ())
        if not metric.cumulative or len(counted) < 2:
            continue
        totals = metric.totals if metric.counts else ()
        shown = [f"{count}/{total}" for count, total in zip(counted, totals, strict=False)]
        shown = shown or list(map(str, counted))
        rows: dict[str, Sequence[int | Decimal]] = {"running_count_fell": counted}
        if totals:
            wrong = [total - count for count, total in zip(metric.counts, totals, strict=True)]
            rows["running_rest_fell"] = wrong
        for key, row in rows.items():
            at = next((i for i in range(1, len(row)) if row[i] < row[i - 1]), 0)
            if at:
                first, second = (
                    float(v) if isinstance(v, Decimal) else v for v in row[at - 1 : at + 1]
                )
                numbers = {
                    "before": shown[at - 1],
                    "after": shown[at],
                    "fell_from": first,
                    "fell_to": second,
                }
                yield flaw(key, "error", metric.name, numbers, metric.line)


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
    times = identity.coefficient
    for total, first, second in _rows(report, [identity.loss, identity.part, identity.term]):
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
        if any(_is_change(change, mode) for mode in MODES):
            continue
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


def _is_change(change: Change, mode: Mode) -> bool:
    """Whether a printed number may be the difference of two, or that in percent of the first."""
    before, says = mode(change.before), mode(change.says)
    moved = mode(change.after) + -before
    if not change.relative:
        return moved.meets(says)
    size = before if before.low >= 0 else -before
    # A number that rounds to 0 has no percentages: every change may be right.
    return size.low <= 0 or moved.over(size).times(100).meets(says)


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


def average_not_mean(report: Reported) -> Iterator[Finding]:
    """Averages that are neither the mean of their cells nor the mean of all their items."""
    for average in report.averages:
        run = report.run(average.run)
        assert run is not None, "the record was checked"
        scored = {k: cell for k, cell in cells(report, run).items() if k not in run.not_run}
        names = list(average.of) or [*scored, *run.not_run]
        present = [scored[name] for name in names if name in scored]
        if not present or _mean_fits(average.says, present):
            continue
        values = [float(sum(cell.values) / len(cell.values)) for cell in present]
        numbers = {
            "says": str(average.says),
            "mean": sum(values) / len(values),
            "cells": len(present),
            "values": ", ".join(f"{value:.4g}" for value in values),
            "missing": ", ".join(name for name in names if name not in scored) or "–",
        }
        line = average.line or run.line
        yield flaw("average_not_mean", "error", f"{run.name} · {average.name}", numbers, line)


def _mean_fits(says: Decimal, group: Sequence[PrintedCell]) -> bool:
    """Whether a printed average may be the mean of the cells, or of all their items."""
    items = [cell.items or 0 for cell in group]
    for weights in ([1] * len(group), items if all(items) else []):
        for mode in MODES if weights else ():
            total = exactly(0)
            for cell, weight in zip(group, weights, strict=True):
                share = Fraction(weight, len(cell.values))
                total += sum(map(mode, cell.values), exactly(0)).times(share)
            if total.times(Fraction(1, sum(weights))).meets(mode(says)):
                return True
    return False


MOST_COUNTS = 10_000
"""Combinations of counts that are tried."""


def harmonic_from_counts(report: Reported) -> Iterator[Finding]:
    """The printed harmonic mean of ratios to a baseline, from counts."""
    for search in report.searches:
        says, chosen, baseline = search.says, report.run(search.chosen), report.run(search.baseline)
        if says is None or chosen is None or baseline is None:
            continue
        scores, bases = cells(report, chosen), cells(report, baseline)
        shared = [cell for name, cell in scores.items() if name in bases and cell.items]
        possible = [_counts(cell) for cell in shared]
        if not shared or not 0 < prod(map(len, possible)) <= MOST_COUNTS:
            continue
        items = [cell.items or 0 for cell in shared]
        means = [bases[cell.name].mean for cell in shared]
        candidates = {
            counts: harmonic_ratio(list(zip(counts, items, strict=True)), means)
            for counts in itertools.product(*possible)
        }
        printed = float(says)
        best = min(candidates, key=lambda counts: abs(candidates[counts] - printed))
        rounded = [(cell.successes, cell.items or 0) for cell in shared]
        numbers = {
            "says": str(says),
            "counts": ", ".join(f"{c}/{n}" for c, n in zip(best, items, strict=True)),
            "value": repr(candidates[best]),
            "rounded": harmonic_ratio(rounded, means),
        }
        fits = abs(candidates[best] - printed) <= float(rounding(says)) + 1e-15
        key, severity = ("harmonic_holds", "note") if fits else ("harmonic_fails", "error")
        yield flaw(key, severity, search.chosen, numbers, search.line)


def _counts(cell: PrintedCell) -> range:
    """The numbers of right items that round to the printed score."""
    value, slack = Fraction(cell.values[0]), rounding(cell.values[0])
    ratio = Fraction(cell.items or 0, cell.scale)
    return range(ceil((value - slack) * ratio), floor((value + slack) * ratio) + 1)
