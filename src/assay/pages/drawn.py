"""Draws curves in characters, for terminals and mail."""

from collections.abc import Sequence
from itertools import pairwise

from assay.pages.charts import Scale

CURVE_WIDTH = 48
HEIGHTS = "▁▂▃▄▅▆▇█"
BROKEN = "×"
"""Marks a value that is not finite."""


def curve_line(values: Sequence[float | None]) -> str:
    """A metric over its steps as a row of blocks, the lowest value the lowest block.

    If there are more steps than columns, a block is the mean of its finite steps, or a cross if it
    has none.
    """
    count = min(len(values), CURVE_WIDTH)
    bounds = [round(index * len(values) / count) for index in range(count + 1)]
    means = [_mean(values[start:end]) for start, end in pairwise(bounds)]
    known = [mean for mean in means if mean is not None]
    if not known:
        return BROKEN * count
    height = Scale(min(known), max(known), 0, len(HEIGHTS) - 1)
    return "".join(BROKEN if mean is None else HEIGHTS[round(height(mean))] for mean in means)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
