"""How far a total may go after a few steps: a prediction interval from totals since the start.

Assumes that steps are alike and independent; two readings give one degree of freedom, and the
interval says so by its width.
"""

from collections.abc import Sequence

import numpy as np
from scipy import special

from assay.judge.intervals import LEVEL, Interval


def forecast_total(
    steps: Sequence[int], totals: Sequence[float], target: int
) -> tuple[float, Interval | None]:
    """The total foretold for step `target`, and Student's prediction interval of it.

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
