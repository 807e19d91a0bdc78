"""Tests how unlike a subset is to the rest: could it have been drawn at random?

Units are exchangeable under the null; the caller first groups those that belong together, such as
the rows of one conversation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse, stats

from assay.judge.intervals import SEED
from assay.judge.scores import Array

SUBSETS = 999
"""Random subsets that a mix of names is compared with."""
AT_ONCE = 111


@dataclass(frozen=True, slots=True)
class Unlike:
    """A distance between 0 (alike) and 1 (nothing in common) and how rare it is by chance."""

    distance: float
    p_value: float


def values_unlike(subset: Sequence[float], rest: Sequence[float]) -> Unlike:
    """The largest gap between the two distributions (Kolmogorov and Smirnov; scipy)."""
    found = stats.ks_2samp(subset, rest)
    return Unlike(float(found.statistic), float(found.pvalue))  # type: ignore[attr-defined]


def names_unlike(counts: Sequence[Mapping[str, int]], size: int) -> Unlike:
    """The total variation distance between the mix of names in the first `size` units and in the
    others, and the share of 999 random subsets of that size which are at least as far.

    `counts` holds, unit by unit, how often each name occurs; a unit without names counts as one
    name of its own. The observed subset counts as one draw (Phipson and Smyth 2010).
    """
    counts_UN = _matrix(counts)
    total_N = np.asarray(counts_UN.sum(0), np.float64).ravel()
    observed = _distance(np.asarray(counts_UN[:size].sum(0), np.float64).reshape(1, -1), total_N)
    generator = np.random.default_rng(SEED)
    farther = 0
    for _ in range(SUBSETS // AT_ONCE):
        order = np.argpartition(generator.random((AT_ONCE, len(counts))), size - 1, axis=1)
        chosen = np.zeros((AT_ONCE, len(counts)), np.float32)
        np.put_along_axis(chosen, order[:, :size], 1.0, axis=1)
        farther += int((_distance((counts_UN.T @ chosen.T).T, total_N) >= observed - 1e-9).sum())
    return Unlike(float(observed[0]), (farther + 1) / (SUBSETS + 1))


def _matrix(counts: Sequence[Mapping[str, int]]) -> sparse.csr_matrix:
    """Units by names; "" is the name of a unit without any."""
    filled = [unit or {"": 1} for unit in counts]
    column = {name: index for index, name in enumerate(sorted({n for u in filled for n in u}))}
    rows = [index for index, unit in enumerate(filled) for _ in unit]
    columns = [column[name] for unit in filled for name in unit]
    values = [float(value) for unit in filled for value in unit.values()]
    return sparse.csr_matrix((values, (rows, columns)), (len(filled), len(column)))


def _distance(subset_DN: Array, total_N: Array) -> Array:
    """Half the sum of the differences of the shares, for D subsets."""
    rest_DN = total_N - subset_DN
    shares = [part / part.sum(1, keepdims=True) for part in (subset_DN, rest_DN)]
    return np.abs(shares[0] - shares[1]).sum(1) / 2
