"""Audit rules about what a report compares and concludes: data, settings, labels, contradictions.

Also conditions that were never run and questions left open. The comparisons themselves are made in
`pairs`.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from assay.data.reported.printed_numbers import MODES, mean_of
from assay.data.reported.reported_record import Meaning, Metric, Reading, Reported, Run
from assay.errors import Finding, Severity
from assay.judge.audit.arithmetic import readings
from assay.judge.audit.cells import cells, flaw
from assay.judge.audit.pairs import BOOKKEEPING, Pair, absent, pairs, same_value

DATA = "data"
"""The setting that names the data a run was trained on."""
FEWEST_SAME = 4
"""Figures below which agreement to the last digit in all of them may be chance."""
FEWEST_MOSTLY_SAME = 8
"""Figures below which agreement in more than half of them may be chance."""
SHARE_SAME = 0.5

Values = tuple[Decimal, ...]


def several_factors(report: Reported) -> Iterator[Finding]:
    """Comparisons of runs that differ in more than one thing, or in more than what is varied.

    A note where the report says nothing of the two: a table of runs is no comparison yet.
    """
    for pair in pairs(report):
        found = pair.differs
        if pair.confounded:
            shown = "; ".join(f"{c.path}: {c.control} → {c.other}" for c in found)
            numbers = {
                "count": len(found),
                "what": shown,
                "vary": ", ".join(pair.vary) or "–",
            }
            yield flaw("several_factors", _severity(pair), pair.name, numbers, pair.line)


def different_data(report: Reported) -> Iterator[Finding]:
    """Comparisons that are not about data, of runs that were trained on different data."""
    for pair in pairs(report):
        data = [c for c in pair.differs if c.path == DATA]
        if data and pair.confounded:
            numbers = {"control": str(data[0].control), "other": str(data[0].other)}
            yield flaw("different_data", _severity(pair), pair.name, numbers, pair.line)


def label_disagrees(report: Reported) -> Iterator[Finding]:
    """Two places that give one run or file different values, whatever the notation."""
    said: dict[tuple[str, str | None], dict[str, tuple[object, str]]] = {}
    for run in report.runs:
        said[run.name, None] = {key: (value, "") for key, value in run.settings.items()}
    for mention in report.mentions:
        known = said.setdefault((mention.of, mention.cell), {})
        for key, value in mention.settings.items():
            first, place = known.setdefault(key, (value, mention.place))
            if not same_value(first, value) and not BOOKKEEPING.search(key):
                numbers = {
                    "setting": key,
                    "here": str(first),
                    "place": place,
                    "there": str(value),
                    "other": mention.place,
                }
                yield flaw("label_disagrees", "error", mention.of, numbers, mention.line)


def two_numbers(report: Reported) -> Iterator[Finding]:
    """One score of one run, or one average, that is printed twice with different numbers."""
    for mention in report.mentions:
        run = report.run(mention.of)
        scores = run.scores if run else {}
        for cell, values in mention.scores.items():
            if scores.get(cell) and not _agree(scores[cell], values):
                about = f"{mention.of} · {cell}" if cell else mention.of
                yield _twice(about, scores[cell], values, mention.place, mention.line)
    first: dict[tuple[str, str], Decimal] = {}
    for average in report.averages:
        printed = first.setdefault((average.run, average.name), average.says)
        if not _agree((printed,), (average.says,)):
            about = f"{average.run} · {average.name}"
            yield _twice(about, (printed,), (average.says,), "", average.line)


def _twice(about: str, here: Values, there: Values, other: str, line: int | None) -> Finding:
    shown = {"here": ", ".join(map(str, here)), "there": ", ".join(map(str, there))}
    return flaw("two_numbers", "error", about, {**shown, "other": other}, line)


def _agree(here: Values, there: Values) -> bool:
    """Whether two places may print the same: all values, one of them, or their mean."""
    for mode in MODES:
        known = [*map(mode, here), mean_of(here, mode)]
        if all(any(mode(v).meets(one) for one in known) for v in there):
            return True
        if mean_of(there, mode).meets(mean_of(here, mode)):
            return True
    return False


def same_values(report: Reported) -> Iterator[Finding]:
    """Conditions whose scores agree to the last digit in all cells, or in most of many.

    Scores of 0 and 100 % do not count as agreement, and equal repeats count as one figure.
    """
    scored = [(run, _printed(report, run)) for run in report.runs]
    for index, (first, before) in enumerate(scored):
        for second, after in scored[index + 1 :]:
            shared = before.keys() & after.keys()
            equal = [cell for cell in shared if before[cell] == after[cell]]
            figures = sum(len(set(before[cell])) for cell in shared)
            everything = len(equal) == len(shared)
            fewest = FEWEST_SAME if everything else FEWEST_MOSTLY_SAME
            if figures < fewest or len(equal) <= SHARE_SAME * len(shared):
                continue
            numbers = {"equal": len(equal), "cells": len(shared), "figures": figures}
            key = "same_values" if everything else "mostly_same_values"
            about = f"{first.name} / {second.name}"
            yield flaw(key, "error" if everything else "warning", about, numbers, second.line)


def never_run(report: Reported) -> Iterator[Finding]:
    """Comparisons with a condition that has no result in the report."""
    for claim in report.comparisons:
        for name in absent(report, claim):
            about = f"{claim.run} / {claim.control}"
            yield flaw("never_run", "error", about, {"name": name}, claim.line)


def _severity(pair: Pair) -> Severity:
    return "error" if pair.claimed else "note"


def _printed(report: Reported, run: Run) -> Mapping[str, Values]:
    """The printed values of each cell that has neither everything right nor nothing."""
    found = cells(report, run)
    return {name: cell.values for name, cell in found.items() if 0 < cell.mean < 1}


RISING_MEANS: dict[Meaning, Reading] = {
    "score": "better",
    "error rate": "worse",
    "loss": "worse",
    "distance": "away",
    "cost": "worse",
}
OPPOSITE: dict[Reading, Reading] = {
    "better": "worse",
    "worse": "better",
    "away": "towards",
    "towards": "away",
}
"""The meaning of a rise, and its opposite. A policy loss measures neither."""


def misread_direction(report: Reported) -> Iterator[Finding]:
    """Conclusions that contradict the direction in which their metric went."""
    for metric in report.metrics:
        course = _course(metric)
        if metric.reads in (None, "stable") or metric.meaning is None or course == 0:
            continue
        numbers = {"readings": readings(metric), "reads": metric.reads}
        if metric.meaning == "policy loss":
            yield flaw("policy_loss_read", "warning", metric.name, numbers, metric.line)
            continue
        rising = RISING_MEANS.get(metric.meaning)
        means = rising if course > 0 or rising is None else OPPOSITE[rising]
        if means is not None and metric.reads == OPPOSITE[means]:
            key = "distance_misread" if metric.meaning == "distance" else "misread_direction"
            severity = "error" if rising else "warning"
            yield flaw(key, severity, metric.name, numbers | {"means": means}, metric.line)


def _course(metric: Metric) -> int:
    """1 for a metric that ends above its start, -1 for one below, 0 for neither."""
    shown = metric.values or metric.counts
    return 0 if len(shown) < 2 else (shown[-1] > shown[0]) - (shown[-1] < shown[0])


def cause_without_effect(report: Reported) -> Iterator[Finding]:
    """A count of effects below the count of their stated cause."""
    for claim in report.causes:
        cause, effect = report.metric(claim.cause), report.metric(claim.effect)
        assert cause is not None and effect is not None, "the record was checked"
        before, after = _last(cause), _last(effect)
        if before is not None and after is not None and after < before:
            numbers = {"effects": after, "causes": before, "cause": claim.cause}
            yield flaw("cause_without_effect", "error", claim.effect, numbers, claim.line)


def _last(metric: Metric) -> int | None:
    """The last count of a metric, printed as a count or as a whole number."""
    if metric.counts:
        return metric.counts[-1]
    return int(metric.values[-1]) if metric.values else None


def effect_without_control(report: Reported) -> Iterator[Finding]:
    """Claims that something works, or does not, without a run that lacks it."""
    for claim in report.effects:
        if report.run(claim.control) is None:
            numbers = {"says": claim.says}
            yield flaw("effect_without_control", "warning", claim.what, numbers, claim.line)


def left_open(report: Reported) -> Iterator[Finding]:
    """Everything that was to be filled in, counted."""
    places = [(part.place, part.count) for part in report.open]
    places += [(run.name, 1) for run in report.runs if not run.finished]
    if places:
        shown = ", ".join(f"{place} ({count})" if count > 1 else place for place, count in places)
        total = sum(count for _, count in places)
        numbers = {"count": total, "places": len(places), "where": shown}
        yield flaw("left_open", "note", report.about, numbers)
