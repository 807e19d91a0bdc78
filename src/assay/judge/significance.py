"""The paired tests: mid-p McNemar for 0/1 items, sign-flip permutation for everything else.

Two-sided p-values from counts or cluster totals; intervals and verdicts are made elsewhere.
"""

import numpy as np
from scipy import special

from assay.judge.intervals import DRAWS, SEED, TIE
from assay.judge.scores import Array

EXACT_CLUSTERS = 13
"""Up to this many non-zero totals all sign patterns are tried (8 192, under the 10 000 draws)."""


def mid_p_mcnemar(gained: Array | float, lost: Array | float) -> Array:
    """Two-sided mid-p value of McNemar's test; arrays of any one shape.

    Twice the binomial tail of the rarer direction with half the weight of the observed count
    (Fagerland, Lydersen and Laake 2013, BMC Medical Research Methodology 13:91).
    """
    rarer = np.minimum(gained, lost).astype(np.float64)
    changed = np.asarray(gained, np.float64) + lost
    log_mass = special.gammaln(changed + 1) - special.gammaln(rarer + 1)
    log_mass -= special.gammaln(changed - rarer + 1) + changed * np.log(2)
    return np.minimum(2 * special.bdtr(rarer, changed, 0.5) - np.exp(log_mass), 1.0)


def sign_flip(totals_C: Array) -> float:
    """Two-sided mid-p value of the mean of C cluster totals, symmetric about 0 under the null.

    Sums as far from 0 as the observed one count half, so that on 0/1 items this is mid-p McNemar.
    Exact over all sign patterns when few totals are non-zero; else 10 000 seeded draws with the
    observed pattern added (Phipson and Smyth 2010: a sampled p-value is never 0).
    """
    nonzero_M = totals_C[np.abs(totals_C) > TIE]
    if len(nonzero_M) <= EXACT_CLUSTERS:
        return _exact_sign_flip(nonzero_M)
    return float(sampled_sign_flip(totals_C))


def _exact_sign_flip(totals_M: Array) -> float:
    """The mid-p value over the 2^M sign patterns."""
    sums = np.zeros(1)
    for total in totals_M:
        sums = np.concatenate((sums + total, sums - total))
    return float(_mid_p_count(sums, totals_M.sum()) / len(sums))


def sampled_sign_flip(totals_C: Array, seed: int = SEED) -> Array:
    """The same by 10 000 draws; `totals_C` may be C x datasets, which share the sign patterns."""
    count = len(totals_C)
    raw = np.random.default_rng(seed).bytes(DRAWS * -(-count // 8))
    packed_D = np.frombuffer(raw, np.uint8).reshape(DRAWS, -1)
    flips_DC = np.unpackbits(packed_D, axis=1, count=count).astype(np.float64)
    observed = totals_C.sum(0)
    # A sum with some signs flipped is the observed sum less twice the flipped part.
    sums_D = observed - 2 * (flips_DC @ totals_C)
    return np.minimum((_mid_p_count(sums_D, observed) + 1) / (DRAWS + 1), 1.0)


def _mid_p_count(sums_D: Array, observed: Array) -> Array:
    """Number of sums farther from 0 than the observed one, those just as far counting half."""
    size = np.abs(observed)
    above = (sums_D > size + TIE).sum(0) + (sums_D >= size - TIE).sum(0)
    below = (sums_D < -size - TIE).sum(0) + (sums_D <= TIE - size).sum(0)
    return (above + below) / 2
