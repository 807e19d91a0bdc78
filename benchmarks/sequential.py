"""The level and the cost of `assay compare --sequential`: how often equal runs are told apart.

    python -m benchmarks.sequential

Pairs of runs on items that come in portions of 50, up to 2 000, compared after each. The fixed test
is McNemar's or Student's of `judge.paired`, once at the end and, as a warning, at every look. The
result lies in `benchmarks/results/sequential`.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from assay.compare.sequential import counted_units
from assay.judge.cluster_robust import cluster_means, p_value
from assay.judge.scores import Array
from benchmarks.results import machine, save_result
from benchmarks.worker import Record

PAIRS, PORTION, MOST = 1000, 50, 2000
ALPHA = 0.05
Units = tuple[Array, Array]
"""Sums of differences, and sizes, of units in order."""


def changes(rng: np.random.Generator, difference: float) -> Units:
    """0/1 items of which 20 % change."""
    chances = [0.1 + difference / 2, 0.1 - difference / 2, 0.8]
    return rng.choice([1.0, -1.0, 0.0], MOST, p=chances), np.ones(MOST)


def grades(rng: np.random.Generator, difference: float) -> Units:
    """Means of four answers to items of every difficulty."""
    chance = rng.uniform(0, 1 - difference, MOST)
    first, last = rng.binomial(4, chance) / 4, rng.binomial(4, chance + difference) / 4
    return last - first, np.ones(MOST)


def clusters(rng: np.random.Generator, difference: float) -> Units:
    """Sources of one to eight items that change together."""
    sizes = rng.integers(1, 9, MOST).astype(float)
    chances = [0.2 + difference / 2, 0.2 - difference / 2, 0.6]
    return rng.choice([1.0, -1.0, 0.0], MOST, p=chances) * sizes, sizes


CELLS: dict[str, Callable[[np.random.Generator, float], Units]] = {
    "0/1 items": changes,
    "four repeats": grades,
    "clusters": clusters,
}


def first_rejection(units: Units) -> int | None:
    """The number of units at the look at which the anytime-valid test rejects."""
    whole = counted_units(*units, 1.0)
    kinds_2K = np.stack([whole.totals_K, whole.sizes_K])
    # Sorting the units at every look would take nearly all of the time.
    is_kind_CK = (np.stack(units)[:, :, None] == kinds_2K[:, None, :]).all(0)
    for count in range(PORTION, MOST + 1, PORTION):
        counts_K = is_kind_CK[:count].sum(0).astype(np.float64)
        if replace(whole, counts_K=counts_K).log_capital(0.0) >= -np.log(ALPHA):
            return count
    return None


def fixed_rejects(units: Units, count: int) -> bool:
    """Whether Student's test rejects on the first units."""
    found = cluster_means(units[0][:count], units[1][:count], (-1.0, 1.0))
    return bool(p_value(found) < ALPHA)


def measure() -> Record:
    """Shares of pairs that are told apart, by kind of score and true difference."""
    before, cells = machine(), {}
    for name, draw in CELLS.items():
        for difference in (0.0, 0.02, 0.05, 0.1):
            rng = np.random.default_rng(0)
            drawn = [draw(rng, difference) for _ in range(PAIRS if difference == 0 else 200)]
            stops = [first_rejection(units) for units in drawn]
            some = drawn[:200]
            looks = range(PORTION, MOST + 1, PORTION)
            cells[f"{name}, {100 * difference:g} points"] = {
                "pairs": len(drawn),
                "told_apart": sum(stop is not None for stop in stops) / len(drawn),
                "mean_units": float(np.mean([stop or MOST for stop in stops])),
                "fixed_at_the_end": float(np.mean([fixed_rejects(u, MOST) for u in some])),
                "fixed_at_every_look": float(
                    np.mean([any(fixed_rejects(u, n) for n in looks) for u in some])
                ),
            }
    return {"cells": cells, "machine": before}


if __name__ == "__main__":
    result = measure()
    for name, cell in result["cells"].items():
        every = f"{cell['fixed_at_every_look']:.1%} if it is looked at {MOST // PORTION} times"
        print(
            f"{name}: told apart {cell['told_apart']:.1%} of {cell['pairs']} pairs after "
            f"{cell['mean_units']:.0f} units on average; fixed test {cell['fixed_at_the_end']:.1%} "
            f"at the end, {every}"
        )
    print(save_result("sequential", "sequential", result))
