"""All rules of the audit: here those about few trials or steps and the best of many scores; in
`arithmetic` those about numbers that cannot be, in `claims` those about what is concluded."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

import numpy as np
from scipy import special

from assay.data.reported.reported_record import Reported, ReportedMetric
from assay.errors import Finding, worst_first
from assay.judge.audit import arithmetic, claims
from assay.judge.audit.arithmetic import PrintedCell, cells, flaw
from assay.judge.audit.claims import DECIDED, figures
from assay.judge.binomial import Counts, compare_counts, new_counts
from assay.judge.intervals import LEVEL, Interval, wilson
from assay.judge.selection import expected_optimism


def forecast_total(
    steps: Sequence[int], totals: Sequence[float], target: int
) -> tuple[float, Interval | None]:
    """The predicted total at step `target`, with Student's prediction interval.

    `totals` are running totals at `steps`, both rising from 0 at step 0. The spread of one step is
    estimated from the mean per step of each stretch between readings (weighted least squares with
    an intercept only; Draper and Smith 1998, Applied Regression Analysis, 1.4). The limit below is
    never under what is already spent. Without two readings there is no interval.
    """
    sizes_K, sums_K = np.diff([0.0, *steps]), np.diff([0.0, *totals])
    done, freedom = steps[-1], len(sizes_K) - 1
    mean, rest = totals[-1] / done, target - done
    foretold = totals[-1] + rest * mean
    if not freedom:
        return foretold, None
    variance = float(sizes_K @ (sums_K / sizes_K - mean) ** 2) / freedom
    student = -float(special.stdtrit(freedom, 0.5 - LEVEL / 2))
    reach = student * float(np.sqrt(variance * (rest**2 / done + rest)))
    low = max(foretold - reach, float(totals[-1]))
    return foretold, Interval(low, foretold + reach, "Student's t of steps")


FEW_TRIALS = 100
"""Below this many trials a rate's interval is 6 points wide even where nothing failed in half."""


def few_trials(report: Reported) -> Iterator[Finding]:
    """Rates of few trials, each with the interval of its last reading."""
    for metric, _, last in rates(report):
        if last.trials < FEW_TRIALS:
            severity = "warning" if metric.reads else "note"
            count, total = last.count, last.trials
            numbers = {"count": count, "total": total, "rate": 100 * count / total}
            limits = limits_of(count, total)
            yield flaw("few_trials", severity, metric.name, metric.line, **numbers, **limits)


def few_items(report: Reported) -> Iterator[Finding]:
    """Scores on few items, each cell once, with the widest of its intervals.

    What is claimed of such scores is judged as every claim is.
    """
    by_name: dict[str, list[PrintedCell]] = {}
    for cell in cells(report):
        if 0 < cell.items < FEW_TRIALS:
            by_name.setdefault(cell.name, []).append(cell)
    for name, group in by_name.items():
        widest = max(group, key=lambda cell: wilson(cell.successes, cell.items).half_width)
        numbers = {"runs": len(group), "items": widest.items, "score": widest.mean * 100}
        limits = limits_of(widest.successes, widest.items)
        yield flaw("few_items", "note", name or report.scoring.benchmark, **numbers, **limits)


def rate_inside_noise(report: Reported) -> Iterator[Finding]:
    """Rates at two steps, read as a change that their trials do not show."""
    for metric, first, last in rates(report):
        if len(metric.counts) < 2 or metric.reads not in DECIDED:
            continue
        comparison = compare_counts(first.count, first.trials, last.count, last.trials)
        if comparison.verdict not in DECIDED:
            numbers = figures(comparison) | {
                "before": shown(first),
                "after": shown(last),
                **limits_of(first.count, first.trials, "before_"),
                **limits_of(last.count, last.trials, "after_"),
                "reads": metric.reads,
            }
            yield flaw("rate_inside_noise", "warning", metric.name, metric.line, **numbers)


def cumulative_as_rate(report: Reported) -> Iterator[Finding]:
    """Counts since the start, divided and read as if each reading were a sample of its own."""
    for metric, first, last in rates(report):
        rates_differ = last.count * first.trials != first.count * last.trials
        # A running count that fell is an error of its own.
        if metric.cumulative and rates_differ and (new := new_counts(first, last)) is not None:
            severity = "warning" if metric.reads else "note"
            numbers = {
                "first": shown(first),
                "last": shown(last),
                "new": new.count,
                "trials": new.trials,
                **limits_of(new.count, new.trials),
            }
            yield flaw("cumulative_as_rate", severity, metric.name, metric.line, **numbers)


def extrapolation(report: Reported) -> Iterator[Finding]:
    """Totals predicted from few steps, with the interval that these steps give."""
    for claim in report.forecasts:
        metric = report.metric(claim.metric)
        read = {s: float(value) for s, value in zip(metric.steps, metric.values, strict=True) if s}
        # A total since the start is read at later and later steps, and foretold for one after them.
        ahead = all(a < b for a, b in pairwise([*metric.steps, claim.step]))
        if not (read and ahead and min(read) > 0):
            continue
        foretold, interval = forecast_total([*read], [*read.values()], claim.step)
        numbers = {
            "says": float(claim.says),
            "step": claim.step,
            "from_step": max(read),
            "readings": len(read),
            "foretold": foretold,
        }
        limits = {"low": interval.low, "high": interval.high} if interval else {}
        key = "forecast" if interval else "forecast_from_one"
        yield flaw(key, "warning", metric.name, claim.line, **numbers, **limits)


def limit_not_shown(report: Reported) -> Iterator[Finding]:
    """Rates claimed beyond a limit that lies inside their interval, now or at a later step."""
    known = {metric.name: last for metric, _, last in rates(report)}
    for claim in report.thresholds:
        last = known.get(claim.metric)
        for limit, sign in ((claim.above, ">"), (claim.below, "<")):
            if last is None or limit is None:
                continue
            limits = limits_of(last.count, last.trials)
            if limits["low"] < float(limit) < limits["high"]:
                key = "limit_foretold" if claim.step else "limit_not_shown"
                numbers = {"limit": f"{sign} {limit}", "rate": shown(last), **limits}
                numbers |= {"step": claim.step or 0}
                yield flaw(key, "warning", claim.metric, claim.line, **numbers)


def best_of_many(report: Reported) -> Iterator[Finding]:
    """The best of several points, reported with the scores that chose it.

    Chosen on items apart from those reported it costs nothing. Without the number of points or of
    items the optimism has no size, and the choice is named all the same.
    """
    for search in report.searches:
        run, points, code = report.run(search.chosen), search.points, "chosen_on_test"
        if run is None or search.on == "dev" or points == 1:
            continue
        optimism = [
            (100 * expected_optimism(points, cell.items, cell.mean * (1 - cell.mean)), cell)
            for cell in cells(report, run)
            if cell.items and points
        ]
        numbers = {"points": points or "?"}
        if optimism:
            (worst, cell), code = max(optimism, key=lambda each: each[0]), "best_of_many"
            each = ", ".join(f"{c.name or search.chosen} {size:.1f}" for size, c in optimism)
            numbers |= {"each": each, "worst": worst, "items": cell.items}
        yield flaw(code, "warning", search.chosen, search.line, **numbers)


def limits_of(count: float, total: int, prefix: str = "") -> dict[str, float]:
    """The limits of a share, in percent."""
    interval = wilson(count, total)
    return {f"{prefix}low": interval.low * 100, f"{prefix}high": interval.high * 100}


def shown(counts: Counts) -> str:
    """How often among how many."""
    return f"{counts.count}/{counts.trials}"


def rates(report: Reported) -> Iterator[tuple[ReportedMetric, Counts, Counts]]:
    """The metrics that are counts of trials, each with its first and last reading."""
    for metric in report.metrics:
        if metric.counts and metric.totals:
            readings = [*map(Counts, metric.counts, metric.totals)]
            yield metric, readings[0], readings[-1]


RULES = (
    arithmetic.impossible_scores,
    arithmetic.not_from_counts,
    arithmetic.running_count_fell,
    arithmetic.loss_identity,
    arithmetic.quotient,
    arithmetic.wrong_change,
    arithmetic.mark_not_mean,
    arithmetic.harmonic_from_counts,
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
    return worst_first(dict.fromkeys(chain.from_iterable(map(audit, records))))
