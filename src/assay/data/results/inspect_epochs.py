"""What a log of inspect-ai made of a sample's epochs, where it took something else than their mean.

The reduced scores are read from the log, because the name of a reducer leaves out its threshold
("pass_at_2" has one). A mean of repeats is what the judge takes by itself, and is not read here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MEAN = "mean"


@dataclass(frozen=True)
class Reduced:
    """The scores of one metric, a value for each sample."""

    metric: str
    """Of a score that is a table: scorer, dot, key."""
    reducer: str
    values: Mapping[str, Any] = field(default_factory=dict)


def reducers(header: Mapping[str, Any]) -> list[str]:
    """The names of what the log asked for, `mean` where it asked for nothing."""
    config = header["eval"].get("config") or {}
    return [str(name) for name in config.get("epochs_reducer") or [MEAN]]


def reduced(
    header: Mapping[str, Any],
    reductions: Any,
    parts: Callable[[str, Any], Mapping[str, Any]],
) -> list[Reduced]:
    """One for each metric and each reducer but the mean, as the log has them.

    `parts` has the metrics of a scorer's value, by name.
    """
    wanted = [name for name in reducers(header) if name != MEAN]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for reducer, scorer, item, value in _scores(reductions or (), wanted):
        for metric, each in parts(scorer, value).items():
            found.setdefault((metric, reducer), {})[item] = each
    return [Reduced(metric, reducer, values) for (metric, reducer), values in found.items()]


def left_out(header: Mapping[str, Any], found: Sequence[Reduced]) -> tuple[str, ...]:
    """The reducers that the log asked for and has no scores of."""
    known = {MEAN, *(each.reducer for each in found)}
    return tuple(name for name in reducers(header) if name not in known)


def _scores(reductions: Any, wanted: Sequence[str]) -> Iterator[tuple[str, str, str, Any]]:
    """Reducer, scorer, sample and value; a log with one reducer may leave its name out."""
    for table in reductions:
        reducer = table.get("reducer") or (wanted[0] if len(wanted) == 1 else "")
        if reducer in wanted:
            for sample in table.get("samples") or ():
                yield reducer, str(table["scorer"]), str(sample["sample_id"]), sample.get("value")
