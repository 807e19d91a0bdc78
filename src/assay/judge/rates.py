"""Rates and means of one step with their intervals, and the difference between two steps.

Two steps see different prompts, so they are independent samples; two checkpoints on the same items
are not, and belong to `paired`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.judge.intervals import Interval, mean_interval, wilson


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value that was counted or averaged, with how well it is known."""

    value: float
    interval: Interval | None
    """None where nothing says how many trials are behind the value."""
    trials: int | None = None
    clusters: int | None = None
    """Groups of trials that are not independent; None where every trial is its own."""


def counted(share: float, trials: int) -> Estimate:
    """A share of independent trials, with Wilson's interval."""
    return Estimate(share, wilson(share * trials, trials), trials)


def grouped(
    values: Sequence[float], groups: Sequence[str], bounds: tuple[float, float]
) -> Estimate:
    """A mean over trials that come in groups (the completions of one prompt), robust to clusters.

    Trials with a common group name are one cluster; values lie within `bounds`.
    """
    interval = mean_interval(np.asarray(values, np.float64), tuple(groups), bounds)
    return Estimate(float(np.mean(values)), interval, len(values), len(set(groups)))


def change(before: Estimate, after: Estimate) -> Interval | None:
    """The interval of after - before for independent estimates; None where one has none."""
    if before.interval is None or after.interval is None:
        return None
    return independent_difference(before.value, before.interval, after.value, after.interval)


def independent_difference(
    before: float, around: Interval, after: float, around_after: Interval
) -> Interval:
    """The interval of after - before from the intervals of both.

    Their reaches are squared and added, each on the side where it matters (Zou and Donner 2008,
    Statistics in Medicine 27:1693); of two Wilson intervals this makes Newcombe's.
    """
    low = np.hypot(after - around_after.low, around.high - before)
    high = np.hypot(around_after.high - after, before - around.low)
    step = after - before
    method = f"{around_after.method}, reaches squared and added"
    return Interval(float(step - low), float(step + high), method, around.level)
