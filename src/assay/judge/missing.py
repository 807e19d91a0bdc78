"""What answers without a score could do to a figure: each is put at either end of its scale.

Whoever leaves failures unscored looks better than he is, so a verdict has to hold whatever the
missing scores are. The ends are the worst case for a difference and for the tests by counts and by
signs. What makes a verdict of the figures is `verdict`'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from assay.judge.scores import ItemScores
from assay.judge.verdict import Figures, Filled, filled

Runs = Sequence[ItemScores]


def with_missing_at(scores: ItemScores, value: float) -> ItemScores:
    """The scores with `value` for every answer that has none; answers that have one keep it."""
    if not scores.missing:
        return scores
    return replace(scores, scores=np.where(np.isnan(scores.scores), value, scores.scores))


def score_range(scores: ItemScores) -> tuple[float, float]:
    """The lowest and the highest score that the missing answers leave possible."""
    low, high = (with_missing_at(scores, end).mean for end in scores.bounds)
    return low, high


def fillings(
    figures: Callable[[Runs, Runs], Figures], control: Runs, other: Runs
) -> tuple[Filled | None, Filled | None]:
    """`figures` of (control, other) where the missing scores are least and most in favour of
    `other`: its own at the lower end and the control's at the upper, and the other way round.

    Two times None where no answer lacks a score.
    """
    if not any(run.missing for run in (*control, *other)):
        return None, None
    ends = [(_at(control, 1), _at(other, 0)), (_at(control, 0), _at(other, 1))]
    lowest, highest = (filled(figures(*runs)) for runs in ends)
    return lowest, highest


def unscored_shares(control: Runs, other: Runs) -> tuple[float, float]:
    """Share of the answers without a score, in the control and in the other."""
    first, second = (
        sum(run.missing for run in runs) / sum(run.scores.size for run in runs)
        for runs in (control, other)
    )
    return first, second


def _at(runs: Runs, end: int) -> list[ItemScores]:
    return [with_missing_at(run, run.bounds[end]) for run in runs]
