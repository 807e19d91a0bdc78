"""Rule: training steps whose groups teach nothing, as the training log itself prints them."""

from collections.abc import Iterator

from assay.data.reported.reported_record import Metric, Reported
from assay.judge.audit.flaw import Flaw

MOST = 0.5
"""Share of groups, or of steps, without signal from which most of the work is lost."""


def no_signal(report: Reported) -> Iterator[Flaw]:
    """Groups whose rewards are all equal, or readings of 0 where a gradient should be."""
    for metric in report.metrics:
        shares = _shares(metric)
        if not shares:
            continue
        mean, last = sum(shares) / len(shares), shares[-1]
        if max(mean, last) < MOST:
            continue
        numbers = {
            "mean": 100 * mean,
            "last": 100 * last,
            "first": 100 * shares[0],
            "readings": len(shares),
        }
        key = "no_signal" if metric.meaning == "groups without signal" else "signal_is_zero"
        if key == "signal_is_zero":
            numbers["zeros"] = sum(value == 0 for value in metric.values)
        yield Flaw(key, "warning", metric.name, numbers, metric.line)


def _shares(metric: Metric) -> list[float]:
    """The share without signal at each reading; nothing of other metrics."""
    if metric.meaning == "groups without signal":
        if metric.counts and metric.totals:
            return [c / t for c, t in zip(metric.counts, metric.totals, strict=True)]
        return [float(value) / _whole(metric) for value in metric.values]
    if metric.meaning == "signal" and metric.values:
        zeros = sum(value == 0 for value in metric.values) / len(metric.values)
        return [zeros]
    return []


def _whole(metric: Metric) -> int:
    """What all groups are printed as: 1 or 100."""
    if metric.unit is not None:
        return 1 if metric.unit == "share" else 100
    return 1 if max(metric.values) <= 1 else 100
