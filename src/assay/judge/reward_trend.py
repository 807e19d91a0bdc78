"""Chooses a stage's checkpoint by its training rewards alone: the end of the longest shown rise.

For stages without dev items. Windows overlap and nothing is corrected for their number, so that the
choice is a guess about which checkpoint is best, not a verdict. Reads no files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from assay.judge.trends import Trend, trend

Window = tuple[int, int]
"""The steps after the first number, up to and with the second."""


@dataclass(frozen=True, slots=True)
class Rise:
    """Steps over which the reward is shown to have risen."""

    after: int
    """The checkpoint, or 0 for the stage's start, whose next step is the first."""
    until: int
    """The checkpoint after the last step: the choice."""
    trend: Trend
    """The line through the mean rewards of these steps."""


def longest_rise(
    steps: Sequence[int], rewards: Sequence[float | None], checkpoints: Sequence[int]
) -> Rise | None:
    """The longest rise between two checkpoints, the earliest among equals; None where none is
    shown.

    `rewards` are the mean rewards of the steps. A window between two checkpoints, or the start and
    one, rises where the 95 % interval of its slope lies above 0, and where no later part of it, cut
    at a checkpoint, is shown to fall: a reward that rose and collapsed ends before the collapse.
    """
    found = _trends(steps, rewards, [0, *sorted(checkpoints)])
    rising = [
        (after, until)
        for (after, until), line in found.items()
        if line.rises and not _falls_in_the_end(found, after, until)
    ]
    if not rising:
        return None
    after, until = max(rising, key=lambda window: (window[1] - window[0], -window[1]))
    return Rise(after, until, found[after, until])


def _trends(
    steps: Sequence[int], rewards: Sequence[float | None], cuts: Sequence[int]
) -> Mapping[Window, Trend]:
    """The line of every window between two cuts that has steps enough for one."""
    found = {}
    for after, until in combinations(cuts, 2):
        inside = [n for n, step in enumerate(steps) if after < step <= until]
        line = trend([steps[n] for n in inside], [rewards[n] for n in inside])
        if line is not None:
            found[after, until] = line
    return found


def _falls_in_the_end(found: Mapping[Window, Trend], after: int, until: int) -> bool:
    """Whether a later part of a window is shown to fall."""
    return any(a > after and b == until and line.falls for (a, b), line in found.items())
