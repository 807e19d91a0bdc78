"""Corrects for choosing: many tests on the same items, and the best of many scores.

`promote` decides whether a later checkpoint replaces the start of training; `choose` takes the
candidate with the best dev score, where an answer without a score counts as a failure, if it beats
its baseline in the paired test with the p-value multiplied by the number of looks. Neither reads
report items or files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import special

from assay.judge.averages import compare_harmonic, harmonic_interval, value_of
from assay.judge.families import adjust_family
from assay.judge.intervals import LEVEL, quantile
from assay.judge.paired import compare, with_missing_at
from assay.judge.scores import ItemScores, on_one_scale
from assay.judge.trends import Trend, trend
from assay.judge.verdict import Comparison, Correction, adjusted

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
    by_window: dict[Window, Trend] = {}
    for after, until in combinations([0, *sorted(checkpoints)], 2):
        inside = [n for n, step in enumerate(steps) if after < step <= until]
        line = trend([steps[n] for n in inside], [rewards[n] for n in inside])
        if line is not None:
            by_window[after, until] = line
    falling = [window for window, line in by_window.items() if line.falls]
    rising = [
        (after, until)
        for (after, until), line in by_window.items()
        if line.rises and not any(a > after and b == until for a, b in falling)
    ]
    if not rising:
        return None
    after, until = max(rising, key=lambda window: (window[1] - window[0], -window[1]))
    return Rise(after, until, by_window[after, until])


@dataclass(frozen=True, slots=True)
class Promotion:
    """The result of comparing a stage's checkpoints on the dev items."""

    step: int | None
    """The checkpoint that takes the start's place; None: none was shown better, the start stays."""
    looks: Mapping[int, Comparison]
    """Every later checkpoint against the start, by step, corrected for the number of looks."""

    @property
    def favourite(self) -> int:
        """The step with the best score, the earliest among equals, shown better or not.

        Answers without a score count as failures.
        """
        return _first_best(self.looks, list(self.looks))

    @property
    def highest(self) -> int | None:
        """The step with the best score, corrected for nothing; None where the start has it.

        Answers without a score count as failures, those of the start as well.
        """
        best = self.looks[self.favourite]
        start = best.control_score if best.highest is None else best.highest.control_score
        return self.favourite if best.lowest_score > start else None


def promote(start: ItemScores, later: Mapping[int, ItemScores]) -> Promotion:
    """Whether a checkpoint of a stage may take the place of what the stage started from.

    It must be better than `start` on the same items at 0.05 after correction for `len(later)`
    looks, whatever its missing scores are; among those that are, the one with the best score, the
    earliest among equals, is taken. Answers without a score count as failures there.
    Raises what `judge.paired.compare` raises.
    """
    first, *others = on_one_scale(start, *later.values())
    compared = {step: compare(first, scores) for step, scores in zip(later, others, strict=True)}
    looks = {step: corrected_for_looks(each, len(later)) for step, each in compared.items()}
    better = [step for step, look in looks.items() if look.verdict == "better"]
    return Promotion(_first_best(looks, better) if better else None, looks)


def _first_best(looks: Mapping[int, Comparison], steps: Sequence[int]) -> int:
    return max(steps, key=lambda step: (looks[step].lowest_score, -step))


def corrected_for_looks(comparison: Comparison, looks: int) -> Comparison:
    """The comparison as the most favourable of `looks` looks, with the verdict that follows."""
    worst = comparison.worst_case
    values = comparison.p_value, worst.p_value if worst else 1.0
    # Bonferroni: valid however the looks are related.
    scored, filled = (Correction(min(1.0, p * looks), looks) for p in values)
    return adjusted(comparison, scored, filled, looks)


def expected_maximum(looks: int) -> float:
    """Expected maximum of `looks` independent standard normal values, by the trapezoid rule."""
    grid = np.linspace(0, 10, 4001)
    # E max = integral over x > 0 of P(max > x) - P(max < -x).
    beyond = 1 - special.ndtr(grid) ** looks - special.ndtr(-grid) ** looks
    return float(np.trapezoid(beyond, grid))


def expected_optimism(looks: int, items: int, item_variance: float = 0.25) -> float:
    """How much better the best of `looks` equally good checkpoints looks on n items than it is.

    `item_variance` is the variance of one item's score that differs between checkpoints, averaged
    over items: p (1 - p) when every item has chance p, less when items are easy or hard for all.
    """
    return expected_maximum(looks) * float(np.sqrt(item_variance / items))


@dataclass(frozen=True, slots=True)
class Choice:
    """The best of several on the dev items, and whether it beats its baseline."""

    candidate: str
    """Name of the best on dev, the earliest among equals."""
    comparison: Comparison | None
    """Candidate against its baseline on dev, corrected for looks; None: it is the baseline, or has
    none."""
    looks: int
    optimism: float
    """Upper bound on the expected optimism of the best of `looks` equally good candidates."""
    standings: Mapping[str, Comparison]
    """Every other candidate against this one, corrected for all of them (Holm)."""

    @property
    def chosen(self) -> bool:
        """Whether it beats its baseline after the correction for looks."""
        return self.comparison is not None and self.comparison.verdict == "better"

    @property
    def rivals(self) -> tuple[str, ...]:
        """Those that the dev items do not show to be worse than the candidate."""
        return tuple(name for name, c in self.standings.items() if c.verdict != "worse")


Parts = Sequence[ItemScores]
"""The scores of one candidate on each benchmark."""


def choose(
    cells: Mapping[str, Parts],
    baselines: Mapping[str, Parts | None],
    looks: int,
    ratios_to: Sequence[float] = (),
) -> Choice:
    """Compare the best of `cells` on dev with its baseline; None: it has none or is one itself.

    Candidates stand on one benchmark, or on several by the harmonic mean of the ratios to
    `ratios_to`. `looks` counts every checkpoint that was looked at, chosen or not. Raises
    InputError when the cells were not scored on the same items, and when nothing was.
    """

    def against(control: Parts, other: Parts) -> Comparison:
        if ratios_to:
            return compare_harmonic(control, other, ratios_to)
        return compare(control[0], other[0])

    filled = {n: [with_missing_at(p, p.bounds[0]) for p in parts] for n, parts in cells.items()}
    best = max(filled, key=lambda name: value_of(filled[name], ratios_to))
    others = {n: against(cells[best], parts) for n, parts in cells.items() if n != best}
    optimism = expected_optimism(looks, len(cells[best][0].item_ids))
    if ratios_to:
        interval = harmonic_interval(filled[best], ratios_to)
        optimism = expected_maximum(looks) * interval.half_width / quantile(LEVEL)
    baseline, comparison = baselines.get(best), None
    if baseline is not None:
        comparison = corrected_for_looks(against(baseline, cells[best]), looks)
    return Choice(best, comparison, looks, optimism, adjust_family(others))
