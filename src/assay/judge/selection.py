"""Chooses checkpoints by scores and by trends, and corrects for choosing among many.

`promote` decides whether a later checkpoint replaces the start of training; `choose` takes the
candidate with the best dev score, where an answer without a score counts as a failure, if it beats
its baseline in the paired test with the p-value multiplied by the number of looks. Neither reads
report items or files.

A trend is a line over a metric's steps whose deviations follow a first-order autoregression. Its
correlation is unknown and is averaged over, weighted by how well it explains the values: with few
steps an interval from a single estimate would be too narrow. Every forecast names its assumption;
which metric to fit is the caller's choice. LIM scores prompts by how closely their learning curve,
the share of right answers in each epoch, follows the mean curve (arXiv 2502.11886, and
`lim_selection.py` of GAIR-NLP/LIMR).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import special

from assay.errors import InputError
from assay.judge.averages import compare_harmonic, harmonic_interval, value_of
from assay.judge.families import adjust_family
from assay.judge.intervals import LEVEL, Interval, quantile
from assay.judge.paired import compare, with_missing_at
from assay.judge.power import least
from assay.judge.scores import Array, ItemScores, on_one_scale
from assay.judge.verdict import Comparison, Correction, adjusted

RANGES = np.logspace(0, 2, 25)
"""1 / (1 - correlation) of one step and the next: about how many steps a deviation lasts."""
CORRELATIONS = 1 - 1 / RANGES
INDEPENDENT = 0.5
"""Chance before any value is seen that the steps are independent. The rest is spread evenly over
the logarithm of RANGES."""
ROUNDING = 1e-12
"""Deviations this small beside the values are no scatter."""


@dataclass(frozen=True, slots=True)
class StudentMixture:
    """A quantity as K Student distributions, one for each correlation, and their weights."""

    centres_K: Array
    scales_K: Array
    weights_K: Array
    freedom: float

    @property
    def mean(self) -> float:
        """The mean of the centres."""
        return float(self.weights_K @ self.centres_K)

    def limits(self, level: float) -> tuple[float, float]:
        """The limits that leave (1 - level) / 2 on either side."""
        tail = 0.5 - level / 2
        return self._quantile(tail), self._quantile(1 - tail)

    def _quantile(self, share: float) -> float:
        """By bisection: between the least and the greatest quantile of the K distributions."""
        each_K = self.centres_K + self.scales_K * special.stdtrit(self.freedom, share)
        each_K = each_K[self.weights_K > 0]
        low, high = float(each_K.min()), float(each_K.max())
        return least(lambda value: self._below(value) >= share, low, high, 60)

    def _below(self, value: float) -> float:
        scales_K = np.where(self.scales_K > 0, self.scales_K, 1.0)
        student_K = special.stdtr(self.freedom, (value - self.centres_K) / scales_K)
        certain_K = (self.centres_K <= value).astype(np.float64)
        return float(self.weights_K @ np.where(self.scales_K > 0, student_K, certain_K))


@dataclass(frozen=True, slots=True)
class Resembling:
    """A regression with P coefficients at each of K correlations."""

    coefficients_KP: Array
    covariances_KPP: Array
    """Of the coefficients, for deviations of variance 1."""
    variances_K: Array
    """Of one deviation."""
    last_K: Array
    """The deviation of the last value."""
    last_P: Array
    """Its row of the design."""
    weights_K: Array
    freedom: float

    def mixture(self, row_P: Array) -> StudentMixture:
        """The regression's value at this row of the design, without scatter."""
        return self._mixture(row_P, 0.0, row_P, 0.0)

    def next_sum(self, row_P: Array, count: int) -> StudentMixture:
        """The sum of the `count` values after the last, one typical step apart, all at this row."""
        kept_K = CORRELATIONS * (1 - CORRELATIONS**count) * RANGES
        spread_K = count * (1 + CORRELATIONS) * RANGES - 2 * kept_K * RANGES
        error_KP = count * row_P - np.multiply.outer(kept_K, self.last_P)
        return self._mixture(count * row_P, kept_K, error_KP, spread_K - kept_K**2)

    def _mixture(
        self, row_P: Array, kept_K: Array | float, error_P: Array, scatter_K: Array | float
    ) -> StudentMixture:
        """A row's value with the share of the last deviation that is left (Goldberger 1962)."""
        centres_K = self.coefficients_KP @ row_P + kept_K * self.last_K
        rows_KP = np.broadcast_to(error_P, self.coefficients_KP.shape)
        spread_K = np.einsum("kp,kpq,kq->k", rows_KP, self.covariances_KPP, rows_KP)
        scales_K = np.sqrt(self.variances_K * (spread_K + scatter_K))
        return StudentMixture(centres_K, scales_K, self.weights_K, self.freedom)


def resembling(design_NP: Array, values_N: Array, gaps: Array) -> Resembling:
    """The regression of N > P values on the design; `gaps` are the N - 1 distances between them,
    in typical steps, over which a correlation is raised to their power.

    Generalised least squares at each correlation, and the posterior of the correlations under the
    usual flat prior of coefficients and log deviation (Zellner 1971, An Introduction to Bayesian
    Inference in Econometrics, 4.1).
    """
    count, width = design_NP.shape
    design_KNP, values_KN, log_K = _whitened(design_NP, values_N, gaps)
    inner_KPP = np.einsum("knp,knq->kpq", design_KNP, design_KNP)
    covariances_KPP = np.linalg.inv(inner_KPP)
    moments_KP = np.einsum("knp,kn->kp", design_KNP, values_KN)
    coefficients_KP = np.einsum("kpq,kq->kp", covariances_KPP, moments_KP)
    left_KN = values_KN - np.einsum("knp,kp->kn", design_KNP, coefficients_KP)
    squares_K = (left_KN**2).sum(1)
    last_K = values_N[-1] - coefficients_KP @ design_NP[-1]
    freedom = count - width
    weights_K = np.full(len(RANGES), (1 - INDEPENDENT) / (len(RANGES) - 1))
    weights_K[0] = INDEPENDENT
    if squares_K[0] <= (ROUNDING**2) * max(1.0, float(values_N @ values_N)):
        squares_K, last_K = np.zeros_like(squares_K), np.zeros_like(last_K)
        weights_K = np.eye(len(RANGES))[0]
    else:
        log_K = log_K - np.linalg.slogdet(inner_KPP)[1] - freedom * np.log(squares_K)
        weights_K = weights_K * np.exp((log_K - log_K.max()) / 2)
    return Resembling(
        coefficients_KP,
        covariances_KPP,
        squares_K / freedom,
        last_K,
        design_NP[-1],
        weights_K / weights_K.sum(),
        float(freedom),
    )


def _whitened(design_NP: Array, values_N: Array, gaps: Array) -> tuple[Array, Array, Array]:
    """Design and values of independent deviations, and minus the log determinant, at each of K
    correlations (Prais and Winsten 1954, for gaps of any length)."""
    kept_KM = CORRELATIONS[:, None] ** gaps
    new_KM = np.sqrt(1 - kept_KM**2)
    table_NQ = np.concatenate((design_NP, values_N[:, None]), 1)
    first_KQ = np.broadcast_to(table_NQ[0], (len(RANGES), 1, table_NQ.shape[1]))
    later_KMQ = (table_NQ[1:] - kept_KM[..., None] * table_NQ[:-1]) / new_KM[..., None]
    table_KNQ = np.concatenate((first_KQ, later_KMQ), 1)
    return table_KNQ[..., :-1], table_KNQ[..., -1], -2 * np.log(new_KM).sum(1)


METHOD = "line among steps that may resemble each other"
FEWEST = 3
"""A line through fewer points than this has no error that could be estimated."""
FORETELLING = 10
"""Nothing is foretold to a reader from fewer steps: a line through them may end anywhere."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through the values of some steps."""

    slope: float
    """Change of the value in one step."""
    interval: Interval
    """Of the slope."""
    first: int
    """The first and the last step of the line."""
    last: int
    start: float
    """The line at `first` and at `last`."""
    end: float
    steps: int
    """Steps that have a finite value."""

    @property
    def rises(self) -> bool:
        """Whether the interval of the slope lies above 0."""
        return self.interval.low > 0

    @property
    def falls(self) -> bool:
        """Whether the interval of the slope lies below 0."""
        return self.interval.high < 0


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a total will be, if the remaining steps cost what the steps seen cost, on average, with
    the same spread and the same resemblance of neighbours."""

    at: int
    """The step that it is about."""
    value: float
    interval: Interval
    """95 % of the outcomes, if that holds."""
    steps: int
    """Steps that it was made from."""


def trend(
    steps: Sequence[int], values: Sequence[float | None], level: float = LEVEL
) -> Trend | None:
    """The straight line through the finite values; None for fewer than three of them.

    Slope and interval allow for correlated neighbours (`resembling`), which carry less information
    than as many independent steps.
    """
    steps_N, values_N = _finite(steps, values)
    line = _line(steps_N, values_N)
    if line is None:
        return None
    first, last = int(steps_N[0]), int(steps_N[-1])
    if not np.ptp(values_N):  # rounding in the sums would pass for a slope
        level_line = Interval(0.0, 0.0, METHOD, level)
        value = float(values_N[0])
        return Trend(0.0, level_line, first, last, value, value, steps=len(steps_N))
    slope = line.mixture(np.array([0.0, 1.0]))
    start, end = (line.mixture(np.array([1.0, step - steps_N.mean()])) for step in (first, last))
    interval = Interval(*slope.limits(level), METHOD, level)
    return Trend(slope.mean, interval, first, last, start.mean, end.mean, steps=len(steps_N))


def forecast_total(
    costs: Sequence[float], remaining: int, at: int, before: float = 0.0, level: float = LEVEL
) -> Forecast | None:
    """The sum of all costs after `remaining` more steps; None for fewer than two costs.

    `before` was spent before the first of them, and counts in the sum alone. The interval holds the
    error of the mean cost and the spread of the steps to come; where neighbours resemble each
    other, the next steps cost more like the last. What is spent is spent: neither value nor
    interval reaches below the sum so far.
    """
    spent, count = before + float(np.sum(costs)), len(costs)
    if count < 2:
        return None
    model = resembling(np.ones((count, 1)), np.asarray(costs, np.float64), np.ones(count - 1))
    rest = model.next_sum(np.ones(1), remaining)
    low, high = (max(spent + end, spent) for end in rest.limits(level))
    interval = Interval(low, high, "prediction of a sum", level)
    return Forecast(at, max(spent + rest.mean, spent), interval, count)


def _finite(steps: Sequence[int], values: Sequence[float | None]) -> tuple[Array, Array]:
    """Steps and values where the value is a finite number."""
    steps_N = np.asarray(steps, np.float64)
    values_N = np.asarray([np.nan if value is None else value for value in values], np.float64)
    there = np.isfinite(values_N)
    return steps_N[there], values_N[there]


def _line(steps_N: Array, values_N: Array) -> Resembling | None:
    """A constant at the mean step and a slope; None where there is no line."""
    if len(steps_N) < FEWEST or steps_N.min() == steps_N.max():
        return None
    design_N2 = np.stack((np.ones(len(steps_N)), steps_N - steps_N.mean()), 1)
    gaps = np.diff(steps_N)
    return resembling(design_N2, values_N, gaps / np.median(gaps))


Curve = tuple[float, ...]
"""Share of right answers by epoch, each from 0 to 1."""
Gapped = Sequence[float | None]
"""The same; None for an epoch in which the prompt was not measured."""


@dataclass(frozen=True, slots=True)
class LearningImpact:
    """The scores of prompts, and the curve that theirs were compared with."""

    scores: Mapping[str, float]
    """By prompt, at most 1: 1 for the mean curve itself, 0 for right answers only."""
    mean: Curve


def fill_gaps(curve: Gapped) -> tuple[float | None, ...]:
    """The curve with a missing epoch before a measured one taken from that; one pass, first epoch
    first, so that of two missing in a row only the second is filled."""
    following = [*curve[1:], None]
    return tuple(after if one is None else one for one, after in zip(curve, following, strict=True))


def learning_impact(curves: Mapping[str, Gapped]) -> LearningImpact:
    """s_i = 1 - sum_k (r_i^k - rbar^k)^2 / sum_k (1 - rbar^k)^2, with rbar^k the mean over prompts.

    Curves are of one length. Prompts that lack an epoch after `fill_gaps` count nowhere.
    Raises InputError where no prompt has all epochs, and where every answer of every epoch is right
    (0/0).
    """
    filled = {prompt: fill_gaps(curve) for prompt, curve in curves.items()}
    whole = {
        prompt: rewards
        for prompt, curve in filled.items()
        if len(rewards := tuple(r for r in curve if r is not None)) == len(curve)
    }
    if not whole:
        fix = "make the epochs longer, or train for more of them"
        raise InputError("no prompt was measured in every epoch", fix=fix)
    mean = tuple(sum(shares) / len(whole) for shares in zip(*whole.values(), strict=True))
    scale = sum((1 - share) ** 2 for share in mean)
    if not scale:
        raise InputError("every answer of every epoch is right", fix="take harder prompts")
    scores = {
        prompt: 1 - sum((r - rbar) ** 2 for r, rbar in zip(curve, mean, strict=True)) / scale
        for prompt, curve in whole.items()
    }
    return LearningImpact(scores, mean)


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
