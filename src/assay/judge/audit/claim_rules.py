"""Rules about words: what a report concludes, what it contradicts, and what it left open."""

from collections.abc import Iterator

from assay.data.reported.reported_record import Meaning, Metric, Reading, Reported
from assay.judge.audit.arithmetic import readings
from assay.judge.audit.flaw import Flaw

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
"""What a rise means, and what the opposite of it is. A policy loss measures neither."""


def misread_direction(report: Reported) -> Iterator[Flaw]:
    """Conclusions that contradict the direction in which their metric went."""
    for metric in report.metrics:
        course = _course(metric)
        if metric.reads in (None, "stable") or metric.meaning is None or course == 0:
            continue
        numbers = {"readings": readings(metric), "reads": metric.reads}
        if metric.meaning == "policy loss":
            yield Flaw("policy_loss_read", "warning", metric.name, numbers, metric.line)
            continue
        rising = RISING_MEANS.get(metric.meaning)
        means = rising if course > 0 or rising is None else OPPOSITE[rising]
        if means is not None and metric.reads == OPPOSITE[means]:
            key = "distance_misread" if metric.meaning == "distance" else "misread_direction"
            severity = "error" if rising else "warning"
            yield Flaw(key, severity, metric.name, numbers | {"means": means}, metric.line)


def _course(metric: Metric) -> int:
    """1 for a metric that ends above its start, -1 for one below, 0 for neither."""
    shown = metric.values or metric.counts
    return 0 if len(shown) < 2 else (shown[-1] > shown[0]) - (shown[-1] < shown[0])


def cause_without_effect(report: Reported) -> Iterator[Flaw]:
    """A count of effects below the count of what is said to lead to them."""
    for claim in report.causes:
        cause, effect = report.metric(claim.cause), report.metric(claim.effect)
        assert cause is not None and effect is not None, "the record was checked"
        before, after = _last(cause), _last(effect)
        if before is not None and after is not None and after < before:
            numbers = {"effects": after, "causes": before, "cause": claim.cause}
            yield Flaw("cause_without_effect", "error", claim.effect, numbers, claim.line)


def _last(metric: Metric) -> int | None:
    """The last count of a metric, printed as a count or as a whole number."""
    if metric.counts:
        return metric.counts[-1]
    return int(metric.values[-1]) if metric.values else None


def effect_without_control(report: Reported) -> Iterator[Flaw]:
    """Claims that something works, or does not, without a run that lacks it."""
    for claim in report.effects:
        if report.run(claim.control) is None:
            numbers = {"says": claim.says}
            yield Flaw("effect_without_control", "warning", claim.what, numbers, claim.line)


def left_open(report: Reported) -> Iterator[Flaw]:
    """Everything that was to be filled in, counted."""
    places = [(part.place, part.count) for part in report.open]
    places += [(run.name, 1) for run in report.runs if not run.finished]
    if places:
        shown = ", ".join(f"{place} ({count})" if count > 1 else place for place, count in places)
        total = sum(count for _, count in places)
        numbers = {"count": total, "places": len(places), "where": shown}
        yield Flaw("left_open", "note", report.about, numbers)
