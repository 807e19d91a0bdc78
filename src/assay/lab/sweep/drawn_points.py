"""Draws the points of a random search from lists and ranges of values, by seed.

A value follows from the seed, the number of the draw and the key of its axis alone, so that more
points keep the earlier ones and every machine draws the same. Nothing is run here.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from assay.data.hashing import canonical_json
from assay.lab.sweep.sweep_tables import RangeSpec

Choices = Sequence[Any] | RangeSpec
"""The values of an axis: a list, or all between two ends."""
DIGITS = 3
"""Significant digits of a drawn number: few enough for a run's name, and to hide that the last
digits of powers differ between machines."""
FUTILE = 1000
"""Draws for each point, after which there are no further different ones."""


def drawn_points(axes: Mapping[str, Choices], points: int, seed: int) -> list[dict[str, Any]]:
    """Different points in the order of their draws; fewer than `points` where no more exist."""
    found: dict[str, dict[str, Any]] = {}
    for number in range(FUTILE * points):
        point = {key: value_at(uniform(seed, number, key), axes[key]) for key in axes}
        found.setdefault(canonical_json(point), point)
        if len(found) == points:
            break
    return list(found.values())


def uniform(seed: int, number: int, key: str) -> float:
    """A number from 0 to 1, 1 excluded, that no other axis or draw shares."""
    digest = hashlib.sha256(f"{seed}\n{number}\n{key}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def value_at(share: float, choices: Choices) -> Any:
    """The value at a share of the way through a list or a range."""
    if not isinstance(choices, RangeSpec):
        return choices[int(share * len(choices))]
    low, high = choices.low, choices.high
    above = high + 1 if choices.whole else high
    drawn = low * (above / low) ** share if choices.scale == "log" else low + (above - low) * share
    rounded = int(drawn) if choices.whole else float(f"{drawn:.{DIGITS}g}")
    return min(max(rounded, low), high)
