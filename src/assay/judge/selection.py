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

from assay.judge.averages import compare_harmonic, harmonic_score
from assay.judge.families import holm, judge_family
from assay.judge.intervals import DRAWS, LEVEL, SEED, Interval
from assay.judge.paired import check_same_items, compare, score_range, with_missing_at
from assay.judge.scores import Array, ItemScores, cluster_totals, on_one_scale
from assay.judge.trends import Trend, trend
from assay.judge.verdict import ALPHA, Comparison, Correction, adjusted

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
    looks = {step: corrected_for_looks(found, len(later)) for step, found in compared.items()}
    better = [step for step, found in looks.items() if found.verdict == "better"]
    return Promotion(_first_best(looks, better) if better else None, looks)


def _first_best(looks: Mapping[int, Comparison], steps: Sequence[int]) -> int:
    return max(steps, key=lambda step: (looks[step].lowest_score, -step))


def adjust_for_looks(p_value: float, looks: int) -> float:
    """The p-value of the most favourable of `looks` looks (Bonferroni: valid however related)."""
    return min(1.0, p_value * looks)


def corrected_for_looks(comparison: Comparison, looks: int) -> Comparison:
    """The comparison as the most favourable of `looks` looks, with the verdict that follows."""
    worst = comparison.worst_case
    by = [
        Correction(adjust_for_looks(p, looks), looks)
        for p in (comparison.p_value, worst.p_value if worst else 1.0)
    ]
    return adjusted(comparison, by[0], by[1], looks)


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
class Standing:
    """A candidate against the best on the dev items."""

    difference: float
    """Its score minus that of the best."""
    interval: Interval
    adjusted_p: float
    """Corrected for all candidates (Holm)."""
    worse: bool
    """Whether it is shown to be worse; else it is a rival."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The best of several on the dev items, and whether it beats its baseline."""

    candidate: str
    """Name of the best on dev, the earliest among equals."""
    chosen: bool
    """Whether it beats its baseline after the correction for looks."""
    comparison: Comparison | None
    """Candidate against its baseline on dev, corrected for looks; None: it is the baseline, or has
    none."""
    looks: int
    optimism: float
    """Upper bound on the expected optimism of the best of `looks` equally good candidates."""
    standings: Mapping[str, Standing]
    """Every other candidate against this one."""

    @property
    def rivals(self) -> tuple[str, ...]:
        """Those that the dev items do not show to be worse than the candidate."""
        return tuple(name for name, each in self.standings.items() if not each.worse)


def choose(
    cells: Mapping[str, ItemScores], baselines: Mapping[str, ItemScores | None], looks: int
) -> Choice:
    """Compare the best of `cells` on dev with its baseline; None: it has none or is one itself.

    `looks` counts every checkpoint that was looked at, chosen or not. Raises ItemsDifferError when
    the cells were not scored on the same items, ScoreError when nothing was scored.
    """
    best = max(cells, key=lambda name: score_range(cells[name])[0])
    others = {name: scores for name, scores in cells.items() if name != best}
    against = judge_family(cells[best], others)
    standings = {
        name: Standing(c.difference, c.interval, c.adjusted_p, c.verdict == "worse")
        for name, c in against.items()
    }
    optimism = expected_optimism(looks, len(cells[best].item_ids))
    baseline = baselines[best]
    if baseline is None:
        return Choice(best, False, None, looks, optimism, standings)
    found = corrected_for_looks(compare(baseline, cells[best]), looks)
    return Choice(best, found.verdict == "better", found, looks, optimism, standings)


Parts = Sequence[ItemScores]
"""The scores of one candidate on each benchmark."""
CHUNK = 500
"""Draws made at once."""
METHOD = "normal limits from 10 000 paired resamplings of items within benchmarks"


def choose_harmonic(
    cells: Mapping[str, Parts],
    baselines: Mapping[str, Parts | None],
    looks: int,
    ratios_to: Sequence[float],
) -> Choice:
    """Compare the best of `cells` on dev with its baseline; None: it has none or is one itself.

    `looks` counts every checkpoint that was looked at. Raises ItemsDifferError when the cells were
    not scored on the same items.
    """
    names = list(cells)
    filled = [_failures(parts) for parts in cells.values()]
    scores_K = np.array([harmonic_score(parts, ratios_to) for parts in filled])
    best = int(scores_K.argmax())
    drawn_BK = resampled(filled, ratios_to)
    standings = _standings(names, scores_K, drawn_BK, best)
    optimism = optimism_of(drawn_BK, looks)
    baseline = baselines.get(names[best])
    if baseline is None:
        return Choice(names[best], False, None, looks, optimism, standings)
    compared = compare_harmonic(baseline, cells[names[best]], ratios_to)
    found = corrected_for_looks(compared, looks)
    return Choice(names[best], found.verdict == "better", found, looks, optimism, standings)


def _failures(parts: Parts) -> list[ItemScores]:
    return [with_missing_at(part, part.bounds[0]) for part in parts]


def resampled(candidates: Sequence[Parts], ratios_to: Sequence[float]) -> Array:
    """Harmonic scores of K candidates in B resamplings of the items (or their clusters): B x K.

    Raises ItemsDifferError.
    """
    inverse_BK = np.zeros((DRAWS, len(candidates)))
    for index, baseline in enumerate(ratios_to):
        parts = on_one_scale(*(parts[index] for parts in candidates))
        with np.errstate(divide="ignore"):
            inverse_BK += baseline / _means(parts, np.random.default_rng([SEED, index]))
    return len(ratios_to) / inverse_BK


def _means(parts: Sequence[ItemScores], generator: np.random.Generator) -> Array:
    """Means of K sets of scores over the same resampled items: B x K."""
    for part in parts[1:]:
        check_same_items(parts[0], part)
    order = [np.argsort(np.array(part.item_ids)) for part in parts]
    means_IK = np.stack([p.item_means[o] for p, o in zip(parts, order, strict=True)], 1)
    first = parts[0].clusters
    clusters = None if first is None else tuple(first[i] for i in order[0])
    totals_CK, sizes_C = cluster_totals(means_IK, clusters)
    count = len(sizes_C)
    found = []
    for _ in range(0, DRAWS, CHUNK):
        drawn = generator.integers(0, count, (CHUNK, count)) + count * np.arange(CHUNK)[:, None]
        times_BC = np.bincount(drawn.ravel(), minlength=CHUNK * count).reshape(CHUNK, count)
        found.append((times_BC @ totals_CK) / (times_BC @ sizes_C)[:, None])
    return np.concatenate(found)


def _standings(
    names: Sequence[str], scores_K: Array, drawn_BK: Array, best: int
) -> dict[str, Standing]:
    """The others against the best: normal tests with the standard errors of the resampled
    differences, Holm over all of them.

    Where few items differ, and all in one direction, percentiles would reject too often.
    """
    others = [k for k in range(len(names)) if k != best]
    change_BK = drawn_BK - drawn_BK[:, [best]]
    behind_K, errors_K = scores_K[best] - scores_K, change_BK.std(0)
    z_K = np.divide(behind_K, errors_K, out=np.zeros_like(behind_K), where=errors_K > 0)
    adjusted = holm([2 * float(special.ndtr(-z_K[k])) for k in others])
    reach_K = special.ndtri((1 + LEVEL) / 2) * errors_K
    found = {}
    for k, p in zip(others, adjusted, strict=True):
        ends = -behind_K[k] - reach_K[k], -behind_K[k] + reach_K[k]
        interval = Interval(float(ends[0]), float(ends[1]), METHOD, LEVEL, share=False)
        found[names[k]] = Standing(-float(behind_K[k]), interval, p, p < ALPHA)
    return found


def optimism_of(drawn_BK: Array, looks: int) -> float:
    """How much better the best of K equally good candidates looks than it is.

    The mean over resamplings of the largest deviation of any candidate from its own average: its
    noise as it is, with what items do to all candidates alike, and no difference between them.
    Where checkpoints were chosen among before, `looks` above K scale it as for normal deviations.
    """
    noise_BK = drawn_BK - drawn_BK.mean(0)
    count = noise_BK.shape[1]
    if count == 1:
        return float(noise_BK.std() * expected_maximum(looks))
    more = expected_maximum(looks) / expected_maximum(count) if looks > count else 1.0
    return float(noise_BK.max(1).mean() * more)
