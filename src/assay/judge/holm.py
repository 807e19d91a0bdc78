"""Several runs against one control: Holm's correction and the verdicts that follow from it.

Intervals stay per comparison; only p-values and verdicts know the family.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from assay.judge.paired import compare
from assay.judge.scores import ItemScores
from assay.judge.verdict import MARGIN, Comparison, adjusted


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values, in the order given (Holm 1979, Scandinavian Journal of Statistics 6:65).

    The k-th smallest of m is multiplied by m - k + 1, and none is smaller than the one before it.
    """
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * np.arange(count, 0, -1)
    result = np.empty(count)
    result[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return tuple(float(p) for p in result)


def adjust_family(comparisons: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """The comparisons of one family with Holm-adjusted p-values and their verdicts.

    Comparisons already found not comparable stay so and are no part of the family.
    """
    fair = {n: c for n, c in comparisons.items() if c.verdict != "not comparable"}
    corrected = dict(zip(fair, holm([c.p_value for c in fair.values()]), strict=True))
    return {n: adjusted(c, corrected[n]) if n in fair else c for n, c in comparisons.items()}


def judge_family(
    control: ItemScores, others: Mapping[str, ItemScores], margin: float = MARGIN
) -> dict[str, Comparison]:
    """Every other run against `control`, by name. Raises what `compare` raises."""
    return adjust_family({n: compare(control, scores, margin) for n, scores in others.items()})
