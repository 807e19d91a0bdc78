"""One number for several benchmarks: the harmonic mean of ratios to a baseline.

Works on counts, because rounded percentages give another number. No interval is made here.
"""

import math
from collections.abc import Sequence

from assay.errors import InputError


class BaselineError(InputError):
    """Baselines that no ratio can be taken to."""


def harmonic_ratio(counts: Sequence[tuple[float, int]], baselines: Sequence[float]) -> float:
    """Harmonic mean of (successes / items) / baseline over benchmarks; 0 if any score is 0.

    Raises BaselineError when the numbers of benchmarks differ or a baseline is not above 0.
    """
    if len(counts) != len(baselines) or not counts:
        raise BaselineError(f"{len(counts)} benchmarks and {len(baselines)} baselines")
    if min(baselines) <= 0:
        raise BaselineError("a baseline of 0 has no ratio", fix="leave that benchmark out")
    if min(hits for hits, _ in counts) == 0:
        return 0.0
    inverse = [base * items / hits for (hits, items), base in zip(counts, baselines, strict=True)]
    return len(inverse) / math.fsum(inverse)
