"""What changed between two judgements of the same samples: the spread of values, and verdicts.

None is an unknown value and never counts as 0. Significance is not tested, because both judgements
are of the very same samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

EQUAL = 1e-6
"""Values that differ by no more than this stand in one bin, as they carry no signal in a group."""
MOST_VALUES = 10
"""With more different values than this, bins are of equal width."""

Turn = Literal["flipped", "raised", "silenced", "same", "silent", "unknown"]
"""Sign changed; was 0 and is not; is 0 and was not; sign kept; 0 twice; not known before or after.
"""
Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Distribution:
    """How the known values are spread; all None where there is none."""

    known: int
    unknown: int
    mean: float | None = None
    deviation: float | None = None
    """Of these values, not an estimate for others."""
    low: float | None = None
    quarter: float | None = None
    median: float | None = None
    three_quarters: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Bin:
    """How many values lie from `low` to `high`; one value where the two are equal."""

    low: float
    high: float
    before: int
    after: int


def distribution(values: Values) -> Distribution:
    """Count, mean, deviation and quartiles (linear between order statistics)."""
    known = np.array([v for v in values if v is not None])
    missing = len(values) - len(known)
    if not len(known):
        return Distribution(0, missing)
    quartiles = map(float, np.quantile(known, (0, 0.25, 0.5, 0.75, 1)))
    return Distribution(len(known), missing, float(known.mean()), float(known.std()), *quartiles)


def histogram(before: Values, after: Values) -> tuple[Bin, ...]:
    """The values of both sides in the same bins: one for each value, or ten of equal width."""
    sides = [np.array([v for v in side if v is not None], dtype=float) for side in (before, after)]
    both = np.sort(np.concatenate(sides))
    if not len(both):
        return ()
    starts = np.concatenate([[0], np.flatnonzero(np.diff(both) > EQUAL) + 1])
    if len(starts) <= MOST_VALUES:
        lows, highs = both[starts], both[np.append(starts[1:] - 1, len(both) - 1)]
        counts = [np.searchsorted(lows, side, side="right") - 1 for side in sides]
        columns = [np.bincount(index, minlength=len(lows)) for index in counts]
    else:
        edges = np.linspace(both[0], both[-1], MOST_VALUES + 1)
        lows, highs = edges[:-1], edges[1:]
        columns = [np.histogram(side, edges)[0] for side in sides]
    rows = zip(lows, highs, *columns, strict=True)
    return tuple(Bin(float(a), float(b), int(m), int(n)) for a, b, m, n in rows)


def turn(before: float | None, after: float | None) -> Turn:
    """What became of the sign of one value."""
    if before is None or after is None:
        return "unknown"
    if before == 0 or after == 0:
        return "silent" if before == after else "raised" if before == 0 else "silenced"
    return "same" if (before > 0) == (after > 0) else "flipped"
