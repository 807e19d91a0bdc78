"""Whether what is chosen depends on what is asked: a permutation test over clusters.

A cluster is one prompt with the shares of its choices, and moves as a whole, so that its
completions do not pass for independent ones. Labels are exchanged only inside of a stratum: with
the type of the problem as stratum, dependence on type does not pass for one on difficulty.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from assay.judge.families import holm
from assay.judge.power import POWER
from assay.judge.scores import Array
from assay.judge.verdict import ALPHA

DRAWS = 2000
SEED = 42
MEDIUM = 0.3
"""Cohen's w (1988, Statistical Power Analysis, chapter 7) for which the needed clusters are given:
what he calls a medium dependence."""


@dataclass(frozen=True, slots=True)
class Dependence:
    """One test."""

    statistic: float
    p: float
    clusters: int
    choices: int
    labels: int
    depends: bool
    """Whether dependence is shown; `p` is adjusted for the tests made together (Holm)."""
    needed: int
    """Further clusters at which a medium dependence shows with 80 % power; 0: there are enough."""


@dataclass(frozen=True, slots=True)
class Table:
    """P clusters with the shares of their K choices, their labels, and their strata."""

    shares_PK: Array
    labels: Sequence[str]
    strata: Sequence[str]


def dependence_tests(tables: Sequence[Table], draws: int = DRAWS) -> list[Dependence]:
    """The tests of several tables, their p-values adjusted by Holm for each other."""
    found = [permutation_p(table, draws) for table in tables]
    adjusted = holm([p for _, p in found]) if found else ()
    return [
        _judged(table, statistic, p, len(tables))
        for table, (statistic, _), p in zip(tables, found, adjusted, strict=True)
    ]


def permutation_p(table: Table, draws: int = DRAWS) -> tuple[float, float]:
    """The chi-squared distance of the labels' mean shares from the whole's, and its p-value.

    p = (1 + exchanges with as large a distance) / (1 + draws), which is never 0. A table with one
    label or one choice has p = 1.
    """
    shares_PK = table.shares_PK[:, table.shares_PK.any(0)]
    _, labels_P = np.unique(table.labels, return_inverse=True)
    _, strata_P = np.unique(table.strata, return_inverse=True)
    if shares_PK.shape[1] < 2 or labels_P.max(initial=0) == 0:
        return 0.0, 1.0
    statistic = distance(shares_PK, labels_P)
    generator = np.random.default_rng(SEED)
    places_P = np.argsort(strata_P, kind="stable")
    exchanged_P = np.empty_like(labels_P)
    larger = 0
    for _ in range(draws):
        exchanged_P[places_P] = labels_P[np.lexsort((generator.random(len(labels_P)), strata_P))]
        # Equal tables may differ by rounding.
        larger += distance(shares_PK, exchanged_P) >= statistic * (1 - 1e-9)
    return statistic, (1 + larger) / (1 + draws)


def distance(shares_PK: Array, labels_P: NDArray[np.intp]) -> float:
    """Sum over labels and choices of n (mean of the label - mean)^2 / mean."""
    of_label_LP = labels_P == np.arange(labels_P.max() + 1)[:, None]
    sizes_L = of_label_LP.sum(1)
    means_LK = of_label_LP @ shares_PK / sizes_L[:, None]
    mean_K = shares_PK.mean(0)
    return float((sizes_L[:, None] * (means_LK - mean_K) ** 2 / mean_K).sum())


def _judged(table: Table, statistic: float, p: float, tests: int) -> Dependence:
    choices, labels = int(table.shares_PK.any(0).sum()), len(set(table.labels))
    clusters = len(table.labels)
    needed = clusters_needed(choices, labels, ALPHA / tests)
    return Dependence(statistic, p, clusters, choices, labels, p < ALPHA, max(needed - clusters, 0))


def clusters_needed(choices: int, labels: int, alpha: float) -> int:
    """Clusters at which the chi-squared test of independence sees MEDIUM with 80 % power.

    At most: a cluster of several completions says more than the single observation counted here.
    """
    degrees = max(choices - 1, 1) * max(labels - 1, 1)
    critical = special.chdtri(degrees, alpha)
    return int(np.ceil(special.chndtrinc(critical, degrees, 1 - POWER) / MEDIUM**2))
