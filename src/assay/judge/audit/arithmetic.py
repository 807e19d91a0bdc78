"""The scores of a reported run by cell, what its printed numbers stand for, and the audit rules
about numbers that cannot be or contradict those beside them.

A cell is a benchmark or subset that was scored. A printed number is rounded or cut off: 2/3 may be
printed as 66.67, 66.7, 66.66 or 66.6; numbers of one place are compared as all rounded or as all
cut off.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from math import ceil, floor, nan, prod
from typing import Any

from assay.data.reported.reported_record import Change, Reported, ReportedRun
from assay.errors import Finding, Severity, finding
from assay.judge.averages import harmonic_ratio


@dataclass(frozen=True, slots=True)
class PrintedCell:
    """The printed values of one run on one benchmark or subset."""

    run: ReportedRun
    name: str
    values: tuple[Decimal, ...]
    items: int
    """0 where the number is unknown."""
    scale: int
    """100 where percentages are printed, 1 where shares are."""
    unit: Fraction
    """The smallest step of a printed score: one step of one item once; 0 without items."""

    @property
    def mean(self) -> float:
        """The mean share over the repeats."""
        return float(sum(self.values) / len(self.values) / self.scale)

    @property
    def successes(self) -> float:
        """The number of items that the mean stands for."""
        return self.mean * self.items

    @property
    def about(self) -> str:
        """What a finding about the cell is about."""
        return at(self.run.name, self.name)


def cells(report: Reported, *runs: ReportedRun) -> Iterator[PrintedCell]:
    """The scored cells of some runs, or of all."""
    scoring = report.scoring
    names = [(run, name) for run in runs or report.runs for name in {**run.right, **run.scores}]
    for run, name in names:
        items, counts = items_of(report, run, name), run.right.get(name, ())
        values = run.scores.get(name, ())
        # A count above its items gives no score.
        if not values and items and max(counts, default=0) <= items:
            values = tuple(Decimal(scoring.highest * count) / items for count in counts)
        if values:
            unit = Fraction(scoring.step) * scoring.highest / items if items else Fraction(0)
            yield PrintedCell(run, name, values, items, scoring.highest, unit)


def items_of(report: Reported, run: ReportedRun, cell: str) -> int:
    """Items of one cell, 0 where the number is unknown: the run's own number before the
    report's."""
    for items in (run.items, report.scoring.items):
        if count := items.get(cell) if isinstance(items, dict) else items:
            return count
    return 0


def at(name: str, cell: str) -> str:
    """What a finding about one cell is about."""
    return f"{name} · {cell}" if cell else name


def flaw(
    code: str, severity: Severity, about: str, line: int | None = None, /, **numbers: Any
) -> Finding:
    """A finding about a run, comparison or metric as the report names it, on a line of the report.

    An error cannot be true as printed; a warning is a conclusion that its numbers do not support; a
    note is a figure that a reader needs in addition. Differences, rates and limits are in percent.
    """
    return finding(code, severity, **numbers, about=about, line=line)


Ends = tuple[Fraction, Fraction]
"""The least and the greatest number that a printed one may stand for."""
Mode = Callable[[Decimal], Ends]


def rounding(value: Decimal) -> Fraction:
    """Half a unit of the last printed digit."""
    return Fraction(10) ** int(value.as_tuple().exponent) / 2


def rounded(value: Decimal) -> Ends:
    """The numbers that round to the value."""
    return Fraction(value) - rounding(value), Fraction(value) + rounding(value)


BELOW = 1 - Fraction(1, 10**9)
"""How far cut-off digits reach to the next number, which prints other digits; shares of fewer items
than a billion lie no nearer to it."""


def cut_off(value: Decimal) -> Ends:
    """The numbers that begin with its digits: further from 0 by less than the last of them."""
    number, reach = Fraction(value), 2 * rounding(value) * BELOW
    return (number - reach, number) if value.is_signed() else (number, number + reach)


def exactly(value: Decimal) -> Ends:
    """The one number."""
    return Fraction(value), Fraction(value)


MODES: tuple[Mode, ...] = (rounded, cut_off)


def may_be(value: Decimal, results: Callable[[Mode], Iterable[Fraction]]) -> bool:
    """Whether a result may be printed as the value. `results` works it out at every end of the
    numbers that it is printed with, which it is monotone in."""
    for mode in MODES:
        (low, high), ends = mode(value), [*results(mode)]
        if min(ends) <= high and low <= max(ends):
            return True
    return False


def prints(value: Decimal, number: Fraction) -> bool:
    """Whether a number may be printed as the value."""
    return may_be(value, lambda _: [number])


def on_grid(value: Decimal, unit: Fraction, times: int = 1) -> bool:
    """Whether `times` the printed value may be a whole number of units."""
    ends = (mode(value) for mode in MODES)
    return any(ceil(low * times / unit) * unit <= high * times for low, high in ends)


FEWEST_OFF = 4
MULTIPLIERS = range(2, 11)
"""Fractions that are looked for: a half to a tenth."""


def impossible_scores(report: Reported) -> Iterator[Finding]:
    """Scores that no number of right items gives, and whether a small whole number times them is
    possible. Where most scores are impossible, the step of one item is put in doubt instead."""
    graded = [
        (cell, [value for value in cell.values if not on_grid(value, cell.unit)])
        for cell in cells(report)
        if cell.unit
    ]
    off = sum(len(impossible) for _, impossible in graded)
    values = sum(len(cell.values) for cell, _ in graded)
    if off >= FEWEST_OFF and 2 * off > values:
        yield flaw("items_score_in_parts", "note", report.subject, count=off, of=values)
        return
    for cell, impossible in graded:
        if not impossible:
            continue
        unit, line = float(cell.unit), cell.run.line
        below = floor(Fraction(impossible[0]) / cell.unit) * unit
        numbers = {
            "values": _listed(impossible),
            "items": cell.items,
            "unit": unit,
            "below": below,
            "above": below + unit,
            "count": len(impossible),
            "of": len(cell.values),
        }
        yield flaw("impossible_granularity", "error", cell.about, line, **numbers)
        multipliers = [times for times in MULTIPLIERS if _fits(cell, times)]
        if multipliers:
            categories = report.scoring.categories
            times = categories if categories in multipliers else multipliers[0]
            numbers = {
                "times": times,
                "all": ", ".join(map(str, multipliers)),
                "values": _listed(cell.values),
                "restored": _listed(value * times for value in cell.values),
                "missing": times - 1,
            }
            yield flaw("fraction_of_plausible", "error", cell.about, line, **numbers)


def _listed(values: Iterable[Decimal]) -> str:
    return ", ".join(f"{value:f}" for value in values)


def _fits(cell: PrintedCell, times: int) -> bool:
    """Whether all values times a number are possible, where that could have failed."""
    # What the value stands for reaches over 3 roundings, cut off or rounded: half a unit at most.
    sharp = all(6 * times * rounding(value) < cell.unit for value in cell.values)
    inside = all(value * times <= cell.scale for value in cell.values)
    return sharp and inside and all(on_grid(value, cell.unit, times) for value in cell.values)


def not_from_counts(report: Reported) -> Iterator[Finding]:
    """Percentages and scores that their own counts do not give."""
    scale, rows = report.scoring.highest, list[tuple[Any, ...]]()
    for m in report.metrics:
        printed = zip(m.counts, m.totals, m.values, strict=False)
        rows += [(m.name, m.line, 100, *each) for each in printed]
    for run in report.runs if report.scoring.step == 1 else ():
        for cell, counts in run.right.items():
            name, items = at(run.name, cell), items_of(report, run, cell)
            values = run.scores.get(cell) or (None,) * len(counts)
            printed = zip(counts, values, strict=True) if items else ()
            rows += [(name, run.line, scale, count, items, value) for count, value in printed]
    for name, line, scale, count, total, value in rows:
        share = Fraction(scale * count, total)
        if count > total or (value is not None and not prints(value, share)):
            numbers = {"count": count, "total": total, "is_": float(share)}
            shown = "–" if value is None else str(value)
            yield flaw("not_from_counts", "error", name, line, value=shown, **numbers)


def running_count_fell(report: Reported) -> Iterator[Finding]:
    """A running count or sum that fell: correct answers, wrong answers, costs."""
    for metric in (metric for metric in report.metrics if metric.cumulative):
        printed = metric.counts or (metric.values if metric.meaning in ("count", "cost") else ())
        counted = metric.counts or [*map(float, printed)]
        trials = [*zip(metric.counts, metric.totals, strict=False)]
        shown = [f"{count}/{total}" for count, total in trials] or [*map(str, printed)]
        wrong = [total - count for count, total in trials]
        for code, row in (("running_count_fell", counted), ("running_rest_fell", wrong)):
            steps = zip(pairwise(row), pairwise(shown), strict=False)
            if fall := next((step for step in steps if step[0][1] < step[0][0]), None):
                (high, low), (before, after) = fall
                numbers = {"before": before, "after": after, "fell_from": high, "fell_to": low}
                yield flaw(code, "error", metric.name, metric.line, **numbers)


def _rows(report: Reported, *names: str) -> list[tuple[Decimal, ...]]:
    """The readings, values or counts, of metrics at every step that all of them have."""
    columns = [
        dict(zip(metric.steps, metric.values or map(Decimal, metric.counts), strict=False))
        for metric in map(report.metric, names)
    ]
    shared = [step for step in columns[0] if all(step in column for column in columns)]
    return [tuple(column[step] for column in columns) for step in shared]


def loss_identity(report: Reported) -> Iterator[Finding]:
    """Whether loss = part + coefficient x term on every row, within rounding; both answers are
    worth knowing. The coefficient is a setting and taken as exact."""
    for identity in report.identities:
        times = identity.coefficient
        rows = _rows(report, identity.loss, identity.part, identity.term)
        wrong = [row for row in rows if not _adds_up(Fraction(times), *row)]
        if rows:
            total, part, term = (wrong or rows)[0]
            numbers = {
                "rows": len(rows),
                "wrong": len(wrong),
                "terms": f"{identity.part} + {times} x {identity.term}",
                "example": f"{part} + {times} x {term} = {part + times * term} ~ {total}",
            }
            code, severity = ("identity_fails", "error") if wrong else ("identity_holds", "note")
            yield flaw(code, severity, identity.loss, identity.line, **numbers)


def _adds_up(times: Fraction, total: Decimal, part: Decimal, term: Decimal) -> bool:
    return may_be(total, lambda mode: [p + times * t for p in mode(part) for t in mode(term)])


def quotient(report: Reported) -> Iterator[Finding]:
    """Averages that are not their total over their count."""
    for claim in report.quotients:
        rows = _rows(report, claim.value, claim.total, claim.count)
        wrong = [row for row in rows if not _divides(*row)]
        if wrong:
            printed, whole, number = wrong[-1]
            numbers = {
                "value": str(printed),
                "total": str(whole),
                "count": str(number),
                "what": claim.count,
                "quotient": float(whole / number) if number else nan,
                "implied": float(whole / printed) if printed else 0.0,
                "wrong": len(wrong),
                "rows": len(rows),
            }
            yield flaw("quotient", "error", claim.value, claim.line, **numbers)


def _divides(value: Decimal, total: Decimal, count: Decimal) -> bool:
    """Whether total / count may be the value; a count of 0 has no average."""
    return count != 0 and may_be(value, lambda mode: [t / Fraction(count) for t in mode(total)])


def wrong_change(report: Reported) -> Iterator[Finding]:
    """Printed changes that are not the difference of the numbers beside them. What may be 0 has no
    percentages: every relative change of it may be right."""
    for change in report.changes:
        free = change.relative and prints(change.before, Fraction(0))
        if free or may_be(change.says, partial(_steps, change)):
            continue
        before, after, says = map(str, (change.before, change.after, change.says))
        numbers = {"before": before, "after": after, "says": says}
        (step, *_) = map(float, _steps(change, exactly))
        yield flaw("wrong_change", "error", change.of, change.line, **numbers, is_=step)


def _steps(change: Change, mode: Mode) -> list[Fraction]:
    """The difference of the printed numbers, in points or in percent of the first, at their
    ends."""
    before, after = mode(change.before), mode(change.after)
    bases = [*map(abs, before)] if change.relative else [Fraction(100)]
    return [(last - first) / base * 100 for last in after for first in before for base in bases]


def mark_not_mean(report: Reported) -> Iterator[Finding]:
    """An overall mark or average that is not the mean of those it is printed with."""
    for rating in report.ratings:
        (mean, _), says = _means(rating.marks, exactly), rating.says
        means = partial(_means, rating.marks)
        if not (may_be(says, means) if rating.rounded else prints(says, mean)):
            name, marks = rating.name or report.about, ", ".join(map(str, rating.marks))
            numbers = {"marks": marks, "mean": float(mean), "says": str(says)}
            yield flaw("mark_not_mean", "error", name, rating.line, **numbers)


def _means(marks: Sequence[Decimal], mode: Mode) -> list[Fraction]:
    return [sum(ends, Fraction(0)) / len(marks) for ends in zip(*map(mode, marks), strict=True)]


MOST_COUNTS = 10_000
"""Combinations of counts that are tried."""


def harmonic_from_counts(report: Reported) -> Iterator[Finding]:
    """The printed harmonic mean of ratios to a baseline, from counts."""
    for search in report.searches:
        says, chosen, baseline = search.says, report.run(search.chosen), report.run(search.baseline)
        if says is None or chosen is None or baseline is None:
            continue
        bases = {cell.name: cell.mean for cell in cells(report, baseline)}
        shared = [c for c in cells(report, chosen) if c.name in bases and c.items]
        possible = [_counts(cell) for cell in shared]
        if not shared or not 0 < prod(map(len, possible)) <= MOST_COUNTS:
            continue
        items, means = [cell.items for cell in shared], [bases[cell.name] for cell in shared]
        scores = {
            counts: harmonic_ratio([*zip(counts, items, strict=True)], means)
            for counts in product(*possible)
        }
        off = {counts: abs(score - float(says)) for counts, score in scores.items()}
        best = min(off, key=off.__getitem__)
        holds = off[best] <= float(rounding(says)) + 1e-15
        numbers = {
            "says": str(says),
            "counts": ", ".join(f"{c}/{n}" for c, n in zip(best, items, strict=True)),
            "value": repr(scores[best]),
            "rounded": harmonic_ratio([(cell.successes, cell.items) for cell in shared], means),
        }
        code, severity = ("harmonic_holds", "note") if holds else ("harmonic_fails", "error")
        yield flaw(code, severity, search.chosen, search.line, **numbers)


def _counts(cell: PrintedCell) -> range:
    """The numbers of right items that round to the printed score."""
    low, high = (end * cell.items / cell.scale for end in rounded(cell.values[0]))
    return range(ceil(low), floor(high) + 1)
