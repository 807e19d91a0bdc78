"""All rules of the audit: here those about numbers that cannot be or contradict those beside them,
about few trials or steps and the best of many scores; in `claims` those about what is concluded.

A printed number stands for all values that round to it or are cut off to it (`cells`).
"""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import chain, pairwise, product
from math import ceil, floor, prod

import numpy as np
from scipy import special

from assay.data.reported.reported_record import Change, Reported, ReportedMetric
from assay.errors import Finding, worst_first
from assay.judge.audit import claims
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
)
from assay.judge.audit.claims import DECIDED, figures
from assay.judge.averages import harmonic_ratio
from assay.judge.binomial import Counts, compare_counts, new_counts
from assay.judge.intervals import LEVEL, Interval, wilson
from assay.judge.selection import expected_optimism

FEWEST_OFF = 4
MULTIPLIERS = range(2, 11)
"""Fractions that are looked for: a half to a tenth."""


def impossible_scores(report: Reported) -> Iterator[Finding]:
    """Scores that no number of right items gives, and whether a small whole number times them is
    possible. Where most scores are impossible, the step of one item is put in doubt instead."""
    graded = [(run, cell) for run in report.runs for cell in cells(report, run).values()]
    values = [(value, cell.unit) for _, cell in graded for value in cell.values if cell.unit]
    off = sum(not on_grid(value, unit) for value, unit in values)
    if off >= FEWEST_OFF and 2 * off > len(values):
        name = report.scoring.benchmark or report.about
        yield flaw("items_score_in_parts", "note", name, count=off, of=len(values))
        return
    for run, cell in graded:
        unit, name = cell.unit, at(run.name, cell.name)
        impossible = [value for value in cell.values if unit and not on_grid(value, unit)]
        if not unit or not impossible:
            continue
        below = floor(Fraction(impossible[0]) / unit) * float(unit)
        numbers = {
            "values": ", ".join(f"{value:f}" for value in impossible),
            "items": cell.items,
            "unit": float(unit),
            "below": below,
            "above": below + float(unit),
            "count": len(impossible),
            "of": len(cell.values),
        }
        yield flaw("impossible_granularity", "error", name, run.line, **numbers)
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
            }
            yield flaw("fraction_of_plausible", "error", name, run.line, **numbers)


def _fits(cell: PrintedCell, unit: Fraction, times: int) -> bool:
    """Whether all values times a number are possible, where that could have failed."""
    # What the value stands for reaches over 3 roundings, cut off or rounded: half a unit at most.
    sharp = all(6 * times * rounding(value) < unit for value in cell.values)
    inside = all(value * times <= cell.scale for value in cell.values)
    return sharp and inside and all(on_grid(value, unit, times) for value in cell.values)


def not_from_counts(report: Reported) -> Iterator[Finding]:
    """Percentages and scores that their own counts do not give."""
    for metric in report.metrics:
        for value, count, total in zip(metric.values, metric.counts, metric.totals, strict=False):
            yield from _counted(metric.name, value, 100, count, total, metric.line)
    scoring = report.scoring
    for run in report.runs if scoring.step == 1 else ():
        for cell, counts in run.right.items():
            items = items_of(report, run, cell) or 0
            values = run.scores.get(cell) or (None,) * len(counts)
            for value, count in zip(values, counts, strict=True) if items else ():
                name = at(run.name, cell)
                yield from _counted(name, value, scoring.highest, count, items, run.line)


def _counted(
    about: str, value: Decimal | None, scale: int, count: int, total: int, line: int | None
) -> Iterator[Finding]:
    """The flaw of a value that is not the share of a count."""
    share = Fraction(scale * count, total)
    if count > total or (value is not None and not prints(value, share)):
        shown = "–" if value is None else str(value)
        numbers = {"value": shown, "count": count, "total": total, "is_": float(share)}
        yield flaw("not_from_counts", "error", about, line, **numbers)


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


def _rows(report: Reported, *names: str) -> list[tuple[Decimal, ...]]:
    """The readings, values or counts, of metrics at every step that all of them have."""
    columns = [
        dict(zip(metric.steps, metric.values or map(Decimal, metric.counts), strict=False))
        for metric in map(report.metric, names)
    ]
    shared = [step for step in columns[0] if all(step in column for column in columns)]
    return [tuple(column[step] for column in columns) for step in shared]


def _adds_up(times: Fraction, total: Decimal, part: Decimal, term: Decimal) -> bool:
    return any((mode(part) + mode(term).times(times)).meets(mode(total)) for mode in MODES)


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
                "quotient": float(whole / number) if number else float("nan"),
                "implied": float(whole / printed) if printed else 0.0,
                "wrong": len(wrong),
                "rows": len(rows),
            }
            yield flaw("quotient", "error", claim.value, claim.line, **numbers)


def _divides(*row: Decimal) -> bool:
    """Whether total / count may round to the value; a count of 0 has no average."""
    value, total, count = row
    parts = ((mode(total).times(1 / Fraction(count)), mode(value)) for mode in MODES)
    return count != 0 and any(share.meets(shown) for share, shown in parts)


def wrong_change(report: Reported) -> Iterator[Finding]:
    """Printed changes that are not the difference of the numbers beside them."""
    for change in report.changes:
        if any(_is_change(change, mode) for mode in MODES):
            continue
        before, after, says = change.before, change.after, change.says
        actual = Fraction(after) - Fraction(before)
        if change.relative:
            actual = actual / abs(Fraction(before)) * 100
        numbers = {"before": str(before), "after": str(after), "says": str(says)}
        yield flaw("wrong_change", "error", change.of, change.line, **numbers, is_=float(actual))


def _is_change(change: Change, mode: Mode) -> bool:
    """Whether a printed number may be the difference of two, or that in percent of the first."""
    before, says = mode(change.before), mode(change.says)
    moved = mode(change.after) + before.times(-1)
    if not change.relative:
        return moved.meets(says)
    size = before if before.low >= 0 else before.times(-1)
    # A number that rounds to 0 has no percentages: every change may be right.
    return size.low <= 0 or moved.over(size).times(100).meets(says)


def mark_not_mean(report: Reported) -> Iterator[Finding]:
    """An overall mark or average that is not the mean of those it is printed with."""
    for rating in report.ratings:
        share = Fraction(1, len(rating.marks))
        ranges = (
            (sum(map(mode if rating.rounded else exactly, rating.marks), exactly(0)), mode)
            for mode in MODES
        )
        if not any(total.times(share).meets(mode(rating.says)) for total, mode in ranges):
            name, marks = rating.name or report.about, ", ".join(map(str, rating.marks))
            mean = float(sum(map(Fraction, rating.marks), Fraction(0)) * share)
            numbers = {"marks": marks, "mean": mean, "says": str(rating.says)}
            yield flaw("mark_not_mean", "error", name, rating.line, **numbers)


MOST_COUNTS = 10_000
"""Combinations of counts that are tried."""


def harmonic_from_counts(report: Reported) -> Iterator[Finding]:
    """The printed harmonic mean of ratios to a baseline, from counts."""
    for search in report.searches:
        says, chosen, baseline = search.says, report.run(search.chosen), report.run(search.baseline)
        if says is None or chosen is None or baseline is None:
            continue
        bases = cells(report, baseline)
        shared = [c for name, c in cells(report, chosen).items() if name in bases and c.items]
        possible = [_counts(cell) for cell in shared]
        if not shared or not 0 < prod(map(len, possible)) <= MOST_COUNTS:
            continue
        items = [cell.items or 0 for cell in shared]
        means = [bases[cell.name].mean for cell in shared]

        def score(counts: Sequence[float], items=items, means=means) -> float:
            return harmonic_ratio([*zip(counts, items, strict=True)], means)

        printed = float(says)
        best = min(product(*possible), key=lambda counts: abs(score(counts) - printed))
        holds = abs(score(best) - printed) <= float(rounding(says)) + 1e-15
        numbers = {
            "says": str(says),
            "counts": ", ".join(f"{c}/{n}" for c, n in zip(best, items, strict=True)),
            "value": repr(score(best)),
            "rounded": score([cell.successes for cell in shared]),
        }
        code, severity = ("harmonic_holds", "note") if holds else ("harmonic_fails", "error")
        yield flaw(code, severity, search.chosen, search.line, **numbers)


def _counts(cell: PrintedCell) -> range:
    """The numbers of right items that round to the printed score."""
    value, slack = Fraction(cell.values[0]), rounding(cell.values[0])
    ratio = Fraction(cell.items or 0, cell.scale)
    return range(ceil((value - slack) * ratio), floor((value + slack) * ratio) + 1)


def forecast_total(
    steps: Sequence[int], totals: Sequence[float], target: int
) -> tuple[float, Interval | None]:
    """The predicted total at step `target`, with Student's prediction interval.

    `totals` are running totals at `steps`, both rising from 0 at step 0. The spread of one step is
    estimated from the mean per step of each stretch between readings (weighted least squares with
    an intercept only; Draper and Smith 1998, Applied Regression Analysis, 1.4). The limit below is
    never under what is already spent. Without two readings there is no interval.
    """
    sizes_K = np.diff([0, *steps]).astype(np.float64)
    sums_K = np.diff([0.0, *totals])
    done = steps[-1]
    mean = totals[-1] / done
    rest = target - done
    foretold = totals[-1] + rest * mean
    if len(sizes_K) < 2:
        return foretold, None
    variance = float(sizes_K @ (sums_K / sizes_K - mean) ** 2) / (len(sizes_K) - 1)
    student = -float(special.stdtrit(len(sizes_K) - 1, 0.5 - LEVEL / 2))
    reach = student * float(np.sqrt(variance * (rest**2 / done + rest)))
    low = max(foretold - reach, float(totals[-1]))
    return foretold, Interval(low, foretold + reach, "Student's t of steps")


FEW_TRIALS = 100
"""Below this many trials a rate's interval is 6 points wide even where nothing failed in half."""


def few_trials(report: Reported) -> Iterator[Finding]:
    """Rates of few trials, each with the interval of its last reading."""
    for metric in rates(report):
        count, total = metric.counts[-1], metric.totals[-1]
        if total < FEW_TRIALS:
            severity = "warning" if metric.reads else "note"
            numbers = {"count": count, "total": total, "rate": 100 * count / total}
            limits = limits_of(count, total)
            yield flaw("few_trials", severity, metric.name, metric.line, **numbers, **limits)


def few_items(report: Reported) -> Iterator[Finding]:
    """Scores on few items, each cell once, with the widest of its intervals.

    What is claimed of such scores is judged as every claim is.
    """
    by_name: dict[str, list[PrintedCell]] = {}
    for run in report.runs:
        for cell in cells(report, run).values():
            if cell.items is not None and cell.items < FEW_TRIALS:
                by_name.setdefault(cell.name, []).append(cell)
    for name, group in by_name.items():
        widest = max(group, key=lambda cell: wilson(cell.successes, cell.items or 1).half_width)
        numbers = {"runs": len(group), "items": widest.items, "score": widest.mean * 100}
        limits = limits_of(widest.successes, widest.items or 1)
        yield flaw("few_items", "note", name or report.scoring.benchmark, **numbers, **limits)


def rate_inside_noise(report: Reported) -> Iterator[Finding]:
    """Rates at two steps, read as a change that their trials do not show."""
    for metric in rates(report):
        if len(metric.counts) < 2 or metric.reads not in DECIDED:
            continue
        (before, *_, after), (first, *_, last) = metric.counts, metric.totals
        comparison = compare_counts(before, first, after, last)
        if comparison.verdict not in DECIDED:
            numbers = figures(comparison) | {
                "before": f"{before}/{first}",
                "after": f"{after}/{last}",
                **limits_of(before, first, "before_"),
                **limits_of(after, last, "after_"),
            }
            about, reads = metric.name, metric.reads
            yield flaw("rate_inside_noise", "warning", about, metric.line, **numbers, reads=reads)


def cumulative_as_rate(report: Reported) -> Iterator[Finding]:
    """Counts since the start, divided and read as if each reading were a sample of its own."""
    for metric in rates(report):
        ends = [Counts(metric.counts[i], metric.totals[i]) for i in (0, -1)]
        first, last = ends
        rates_differ = last.count * first.trials != first.count * last.trials
        # A running count that fell is an error of its own.
        if metric.cumulative and rates_differ and (new := new_counts(first, last)) is not None:
            severity = "warning" if metric.reads else "note"
            numbers = {
                "first": f"{first.count}/{first.trials}",
                "last": f"{last.count}/{last.trials}",
                "new": new.count,
                "trials": new.trials,
                **limits_of(new.count, new.trials),
            }
            yield flaw("cumulative_as_rate", severity, metric.name, metric.line, **numbers)


def extrapolation(report: Reported) -> Iterator[Finding]:
    """Totals predicted from few steps, with the interval that these steps give."""
    for claim in report.forecasts:
        metric = report.metric(claim.metric)
        if not metric.values:
            continue
        totals = [float(value) for value in metric.values]
        foretold, interval = forecast_total(metric.steps, totals, claim.step)
        numbers = {
            "says": float(claim.says),
            "step": claim.step,
            "from_step": metric.steps[-1],
            "readings": len(totals),
            "foretold": foretold,
        }
        if interval is not None:
            numbers |= {"low": interval.low, "high": interval.high}
        key = "forecast_from_one" if interval is None else "forecast"
        yield flaw(key, "warning", metric.name, claim.line, **numbers)


def limit_not_shown(report: Reported) -> Iterator[Finding]:
    """Rates claimed beyond a limit that lies inside their interval, now or at a later step."""
    known = {metric.name: metric for metric in rates(report)}
    for claim in report.thresholds:
        metric = known.get(claim.metric)
        for limit, sign in ((claim.above, ">"), (claim.below, "<")):
            if metric is None or limit is None:
                continue
            count, total = metric.counts[-1], metric.totals[-1]
            limits = limits_of(count, total)
            if limits["low"] < float(limit) < limits["high"]:
                key = "limit_foretold" if claim.step else "limit_not_shown"
                numbers = {"limit": f"{sign} {limit}", "rate": f"{count}/{total}", **limits}
                step = claim.step or 0
                yield flaw(key, "warning", metric.name, claim.line, **numbers, step=step)


def best_of_many(report: Reported) -> Iterator[Finding]:
    """The best of several points, reported with the scores that chose it.

    Chosen on items apart from those reported it costs nothing. Without the number of points or of
    items the optimism has no size, and the choice is named all the same.
    """
    for search in report.searches:
        run, points = report.run(search.chosen), search.points
        assert run is not None, "the record was checked"
        if search.on == "dev" or points == 1:
            continue
        optimism = {
            cell: 100 * expected_optimism(points, cell.items, cell.mean * (1 - cell.mean))
            for cell in cells(report, run).values()
            if cell.items and points
        }
        if points is None or not optimism:
            numbers = {"points": points or "?"}
            yield flaw("chosen_on_test", "warning", search.chosen, search.line, **numbers)
            continue
        worst = max(optimism, key=lambda cell: optimism[cell])
        each = ", ".join(f"{c.name or search.chosen} {optimism[c]:.1f}" for c in optimism)
        numbers = {"points": points, "each": each, "worst": optimism[worst], "items": worst.items}
        yield flaw("best_of_many", "warning", search.chosen, search.line, **numbers)


def limits_of(count: float, total: int, prefix: str = "") -> dict[str, float]:
    """The limits of a share, in percent."""
    interval = wilson(count, total)
    return {f"{prefix}low": interval.low * 100, f"{prefix}high": interval.high * 100}


def rates(report: Reported) -> list[ReportedMetric]:
    """The metrics that are counts of trials."""
    return [metric for metric in report.metrics if metric.counts and metric.totals]


RULES = (
    impossible_scores,
    not_from_counts,
    running_count_fell,
    loss_identity,
    quotient,
    wrong_change,
    mark_not_mean,
    harmonic_from_counts,
    claims.not_comparable,
    claims.label_disagrees,
    claims.same_values,
    claims.never_run,
    claims.inside_noise,
    claims.difference_inside_noise,
    claims.unpaired,
    claims.repeats_alike,
    claims.nested_subsets,
    few_trials,
    few_items,
    rate_inside_noise,
    cumulative_as_rate,
    extrapolation,
    limit_not_shown,
    best_of_many,
    claims.misread_direction,
    claims.cause_without_effect,
    claims.effect_without_control,
    claims.left_open,
)


def audit(report: Reported) -> list[Finding]:
    """The findings of all rules in a record: errors first, then warnings, then notes."""
    return worst_first(chain.from_iterable(rule(report) for rule in RULES))


def audit_all(records: Iterable[Reported]) -> list[Finding]:
    """The findings of all tables of a file, each once."""
    findings: list[Finding] = []
    for each in chain.from_iterable(map(audit, records)):
        findings += [] if each in findings else [each]
    return worst_first(findings)
