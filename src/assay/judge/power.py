"""The power of a paired design: the smallest difference it detects, and the items it needs.

Plans the mid-p McNemar test on n items, of which a share, the discordance, changes between two
runs. No scores are read here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from assay.errors import InputError
from assay.judge.cluster_robust import FEW_CLUSTERS, item_mean
from assay.judge.intervals import LEVEL, quantile
from assay.judge.scores import Array, ItemScores
from assay.judge.seed_variance import aligned, left_over
from assay.judge.significance import mid_p_mcnemar
from assay.judge.verdict import ALPHA

POWER = 0.8
EXACT_ITEMS = 10_000


def binomial_mass(successes: Array, trials: Array | float, chance: Array | float) -> Array:
    """Probability of exactly `successes` of `trials` at `chance`."""
    log = special.gammaln(trials + 1.0) - special.gammaln(successes + 1.0)
    log = log - special.gammaln(trials - successes + 1.0)
    log = log + special.xlogy(successes, chance) + special.xlog1py(trials - successes, -chance)
    return np.exp(log)


def predicted_power(
    items: int, discordance: float, difference: float, alpha: float = ALPHA
) -> float:
    """Chance that mid-p McNemar rejects at `alpha`, exactly, by summing over the discordant counts.

    `discordance` is the probability that an item changes; a difference cannot exceed it, so it is
    raised to |difference| where it is smaller.
    """
    size = abs(difference)
    share = min(max(discordance, size), 1.0)
    if share == 0:
        return 0.0
    centre, spread = items * share, 8 * np.sqrt(items * share * (1 - share)) + 10
    low, high = max(0, int(centre - spread)), min(items, int(centre + spread))
    changed_M = np.arange(low, high + 1, dtype=np.float64)
    critical_M = _critical(low, high, alpha)
    gaining = (share + size) / (2 * share)
    # bdtr is the binomial distribution function; an empty region has critical count -1.
    reject_M = np.where(
        critical_M < 0,
        0.0,
        special.bdtr(np.maximum(critical_M, 0), changed_M, gaining)
        + special.bdtrc(changed_M - np.maximum(critical_M, 0) - 1, changed_M, gaining),
    )
    return float(np.sum(binomial_mass(changed_M, items, share) * reject_M))


@lru_cache(maxsize=256)
def _critical(low: int, high: int, alpha: float) -> Array:
    """Largest count of the rarer direction at which the test still rejects, for each number of
    changed items from `low` to `high`; -1 for none. A search for a size asks for the same again."""
    changed_M = np.arange(low, high + 1, dtype=np.float64)
    guess_M = np.floor(changed_M / 2 - quantile(1 - alpha) * np.sqrt(changed_M) / 2)
    candidates_KM = guess_M + np.arange(-3, 4)[:, None]
    usable_KM = (candidates_KM >= 0) & (candidates_KM < changed_M / 2)
    counts_KM = np.where(usable_KM, candidates_KM, 0.0)
    rejects_KM = usable_KM & (mid_p_mcnemar(counts_KM, changed_M - counts_KM) < alpha)
    return np.where(rejects_KM, candidates_KM, -1.0).max(0)


@lru_cache(maxsize=4096)
def minimum_detectable_difference(
    items: int, discordance: float, power: float = POWER, alpha: float = ALPHA
) -> float | None:
    """Smallest difference seen with `power`; None when even a change of every item is not."""
    if predicted_power(items, discordance, 1.0, alpha) < power:
        return None
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if predicted_power(items, discordance, middle, alpha) < power:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=4096)
def items_needed(
    discordance: float, difference: float, power: float = POWER, alpha: float = ALPHA
) -> int | None:
    """Items at which `difference` is seen with `power`; None for a difference of zero.

    Bisection on the exact power around the normal approximation, and the approximation itself
    beyond EXACT_ITEMS, where the two agree.
    """
    size = abs(difference)
    if size == 0:
        return None
    share = max(discordance, size)
    z = quantile(1 - alpha) + float(special.ndtri(power))
    approximate = share * (z / size) ** 2
    if approximate > EXACT_ITEMS:
        return int(np.ceil(approximate))
    low, high = int(approximate / 2), int(2 * approximate) + 20
    while high - low > 1:
        middle = (low + high) // 2
        if predicted_power(middle, share, size, alpha) < power:
            low = middle
        else:
            high = middle
    return high


def detectable_from_interval(half_width: float, most: float, level: float = LEVEL) -> float | None:
    """Smallest difference seen with 80 % power by a test whose interval has this half-width; None
    where that is more than `most`, the largest difference there is.

    The normal approximation (z_level + z_0.8) x standard error, for intervals put together from
    several, of which no test is planned.
    """
    z = quantile(level)
    smallest = half_width * (z + float(special.ndtri(POWER))) / z
    return smallest if smallest <= most else None


NODES = 32
"""Quantiles that stand for the distribution of an estimated standard error."""
KNOWN = 2000.0
"""Degrees of freedom from which on a standard error counts as known."""
HALVINGS = 30
MOST_TIMES = 2.0**40


@dataclass(frozen=True, slots=True)
class Precision:
    """How well an experiment knew its mean difference."""

    error: float
    """The standard error, as it was estimated."""
    degrees: float
    """Its degrees of freedom."""
    width: float
    """The distance between the lowest and the highest score: the largest difference there is."""
    clusters: int = 0
    """Independent units whose limits are widened where next to nothing varies
    (`cluster_robust.ClusterMeans.alike`); 0 where limits never are."""
    tied: float = 0.0
    """Chance that a unit's difference is the median one (`cluster_robust.tied_share`)."""


def power_at(
    found: Precision, difference: float, alpha: float = ALPHA, times: float = 1.0
) -> float:
    """Chance that the test rejects at `alpha` with `times` as many units, in this direction.

    The estimated error says little about the true one where units are few, so the noncentral t of a
    known error is averaged over the errors that the estimate leaves possible: an experiment with
    this power shows the stated difference that often, however the estimate came out. Where a new
    experiment may find its units alike, the mean has to leave their wider limits as well.
    """
    critical = -float(special.stdtrit(found.degrees * times, alpha / 2))
    new_N = critical * _errors(found.degrees * times)
    if found.error == 0:
        return float(difference > _floor(found, alpha, times))
    scale_M1 = _errors(found.degrees)[:, None] * times**0.5 / found.error
    seen = special.ndtr(difference * scale_M1 - new_N).mean()
    alike = _chance_alike(found, times)
    if alike:
        least_M1 = _floor(found, alpha, times) * scale_M1
        both = special.ndtr(difference * scale_M1 - np.maximum(new_N, least_M1)).mean()
        seen = (1 - alike) * seen + alike * both
    return float(seen)


def _errors(degrees: float) -> Array:
    """Equally likely ratios of an estimated standard error to the true one, by chi-squared."""
    if degrees >= KNOWN:
        return np.ones(1)
    beyond = 1 - (np.arange(NODES) + 0.5) / NODES
    return np.sqrt(special.chdtri(degrees, beyond) / degrees)


def _floor(found: Precision, alpha: float, times: float) -> float:
    """The mean at which limits of units that are alike leave 0, see `cluster_robust.p_value`."""
    return found.width * quantile(1 - alpha) ** 2 / (found.clusters * times)


def _chance_alike(found: Precision, times: float) -> float:
    """Chance that fewer units than FEW_CLUSTERS, and than all but one, leave the median."""
    if not found.clusters or not found.tied:
        return 0.0
    units = round(found.clusters * times)
    others = units - 1
    return float(special.bdtr(min(FEW_CLUSTERS, others) - 1, others, 1 - found.tied))


@lru_cache(maxsize=4096)
def smallest_seen(found: Precision, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """The smallest difference seen with `power`; None where the largest possible one is not."""
    low, high = 0.0, found.width
    if power_at(found, high, alpha) < power:
        return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if power_at(found, middle, alpha) < power:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=4096)
def times_needed(
    found: Precision, difference: float, alpha: float = ALPHA, power: float = POWER
) -> float | None:
    """How many times as many units would show `difference` with `power`; None for none."""
    least = 2 / found.clusters if found.clusters else 1.0

    def seen(times: float) -> bool:
        return power_at(found, abs(difference), alpha, times) >= power

    high = 1.0
    while not seen(high):
        high *= 2
        if difference == 0 or high > MOST_TIMES:
            return None
    low = least if high == 1 else high / 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


MOST_ITEMS = 100_000
"""More items than this are not planned for."""


class PlanError(InputError):
    """Numbers that no design can be planned from."""


@dataclass(frozen=True, slots=True)
class Variances:
    """What the mean difference of two arms varies by. None: unknown, and counted as 0."""

    items: float
    """Of one item's difference, without what further repeats and seeds average away."""
    sampling: float | None = None
    """Of one answer around its item's mean, both arms together."""
    luck: float | None = None
    """Of one seed's own luck on an item, both arms together."""
    seeds: float | None = None
    """Of one seed's mean beyond that, both arms together."""
    discordance: float | None = None
    """Share of the items that change, where one answer to an item is 0 or 1 and no item shares its
    source: then a design of one repeat and one seed is McNemar's test."""
    width: float = 1.0
    """Of the scale of scores: the largest difference there is."""


@dataclass(frozen=True, slots=True)
class Design:
    """One way to spend answers."""

    items: int
    repeats: int = 1
    seeds: int = 1
    """Trainings of each arm."""
    arms: int = 2
    """The control among them."""

    @property
    def answers(self) -> int:
        """Answers to be generated."""
        return self.items * self.repeats * self.seeds * self.arms

    @property
    def alpha(self) -> float:
        """The level of each comparison with the control (Bonferroni)."""
        return ALPHA / (self.arms - 1)


@dataclass(frozen=True, slots=True)
class Planned:
    """A design, and what it sees."""

    design: Design
    smallest: float | None
    """The smallest difference seen with the wanted power; None where none is."""
    enough: bool
    """Whether that is the wanted difference or less."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Designs for a wanted difference."""

    difference: float
    power: float
    variances: Variances
    designs: tuple[Planned, ...]

    @property
    def cheapest(self) -> Planned | None:
        """The design of the fewest answers that sees the difference, of fewer trainings among
        equals; None where none does."""
        found = [each for each in self.designs if each.enough]
        return min(found, key=lambda p: (p.design.answers, p.design.seeds), default=None)


def given_discordance(discordance: float) -> Variances:
    """Variances from a given share of items that change. The part of sampling in it is unknown, so
    no gain from repeats is assumed."""
    return Variances(discordance, discordance=discordance)


def given_score(score: float) -> Variances:
    """Variances where only a score is known: the two arms answer independently of each other."""
    return given_discordance(2 * score * (1 - score))


def variances_of(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> Variances:
    """Variances of a pilot: S >= 1 seeds of each arm, R >= 1 repeats, on the same items.

    The components of the layout of items crossed with seeds, with repeats in the cells, by their
    mean squares; none is below 0. Raises ScoreError and ItemsDifferError as a comparison does.
    """
    (first_SI, second_SI), clusters = aligned(control, other)
    arms = first_SI, second_SI
    differences_I = arms[0].mean(0) - arms[1].mean(0)
    low, high = control[0].bounds
    width = high - low
    spread = float(item_mean(differences_I, clusters, (-width, width)).standard_error) ** 2
    count = len(differences_I)
    sampling = _sampling(control, other)
    counts = min(len(control), len(other)), min(control[0].repeats, other[0].repeats)
    per_answer = (sampling or 0.0) / counts[1]
    luck = seeds = None
    left = per_answer / counts[0]
    if counts[0] > 1:
        shares = [left_over(arm_SI, clusters) for arm_SI in arms]
        left = count * sum(shares)
        luck = max(
            count * sum(s * len(a) for s, a in zip(shares, arms, strict=True)) - per_answer, 0
        )
        between = [
            float(a.mean(1).var(ddof=1)) - s * len(a) for a, s in zip(arms, shares, strict=True)
        ]
        seeds = max(sum(between), 0.0)
    single = counts == (1, 1) and control[0].binary and other[0].binary and clusters is None
    changed = float((differences_I != 0).mean()) if single else None
    return Variances(max(spread * count - left, 0.0), sampling, luck, seeds, changed, width)


def _sampling(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> float | None:
    """Variance of an answer around its item's mean, summed over the arms; None where a run has no
    item with two scores."""
    within = [[_within(run.scores) for run in arm] for arm in (control, other)]
    if any(np.isnan(variances_I).all() for arm in within for variances_I in arm):
        return None
    return sum(float(np.mean([np.nanmean(each) for each in arm])) for arm in within)


def _within(scores_IR: Array) -> Array:
    """I variances over the repeats that have a score; NaN for fewer than two."""
    counts = np.logical_not(np.isnan(scores_IR)).sum(1)
    means_I = np.nansum(scores_IR, 1) / np.maximum(counts, 1)
    squares_I = np.nansum((scores_IR - means_I[:, None]) ** 2, 1)
    return np.where(counts > 1, squares_I / np.maximum(counts - 1, 1), np.nan)


@lru_cache(maxsize=4096)
def smallest_difference(variances: Variances, design: Design, power: float = POWER) -> float | None:
    """The smallest difference that a design sees with `power` in every comparison; None for none.

    McNemar's test exactly where it is the test; else Student's t of `seed_variance.crossed_error`,
    its degrees of freedom at their expectation.
    """
    v, n = variances, design.items
    if v.discordance is not None and design.repeats == design.seeds == 1:
        return minimum_detectable_difference(n, v.discordance, power, design.alpha)
    by_items, by_luck, by_seeds = _parts(variances, design)
    total = by_items + by_luck + by_seeds
    if n < 2 or total == 0:
        return None
    doubt = (by_items + by_luck) ** 2 / (n - 1)
    if design.seeds > 1 and v.seeds is not None:
        doubt += (by_luck + by_seeds) ** 2 / (2 * (design.seeds - 1))
    found = _detectable(total**2 / doubt, power, design.alpha) * float(np.sqrt(total))
    return found if found <= v.width else None


def variance_of(variances: Variances, design: Design, items: float | None = None) -> float:
    """The variance of the mean difference that a design leaves, on `items` where they are given."""
    by_items, by_luck, by_seeds = _parts(variances, design)
    return (by_items + by_luck) * design.items / (items or design.items) + by_seeds


def _parts(variances: Variances, design: Design) -> tuple[float, float, float]:
    """The variance of the mean difference by items, by what is left, and by seeds."""
    v, n = variances, design.items
    answers = (v.sampling or 0.0) / design.repeats
    luck = ((v.luck or 0.0) + answers) / design.seeds
    return v.items / n, luck / n, (v.seeds or 0.0) / design.seeds


def _detectable(freedom: float, power: float, alpha: float) -> float:
    """How many standard errors Student's test at `alpha` sees with `power`."""
    critical = -float(special.stdtrit(freedom, alpha / 2))
    # The other tail rejects next to never at such differences.
    low, high = 0.0, 100.0 + 2 * critical
    for _ in range(60):
        middle = (low + high) / 2
        if 1 - special.nctdtr(freedom, middle, critical) < power:
            low = middle
        else:
            high = middle
    return high


def items_for(
    variances: Variances, design: Design, difference: float, power: float = POWER
) -> int | None:
    """Items at which the design sees `difference`; None for more than MOST_ITEMS."""
    if variances.discordance is not None and design.repeats == design.seeds == 1:
        found = items_needed(variances.discordance, difference, power, design.alpha)
        return found if found is not None and found <= MOST_ITEMS else None
    low, high = 1, MOST_ITEMS
    if not _sees(variances, _with(design, high), difference, power):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _sees(variances, _with(design, middle), difference, power):
            high = middle
        else:
            low = middle
    return high


def _with(design: Design, items: int) -> Design:
    return Design(items, design.repeats, design.seeds, design.arms)


def _sees(variances: Variances, design: Design, difference: float, power: float) -> bool:
    smallest = smallest_difference(variances, design, power)
    return smallest is not None and smallest <= difference


def plan(
    variances: Variances,
    difference: float,
    designs: Sequence[Design],
    power: float = POWER,
) -> Plan:
    """Each design with the items needed for the wanted difference, and, where it has items already,
    the difference that these detect. A design of 0 items asks only for the number needed."""
    if not 0 < difference <= 1:
        raise PlanError(f"a difference of {100 * difference:g} points", fix="above 0, at most 100")
    if not 0.5 <= power < 1:
        raise PlanError(f"a power of {power:g}", fix="from 0.5 to below 1, such as 0.8")
    found = []
    for design in designs:
        items = design.items or items_for(variances, design, difference, power)
        if items is None:
            found.append(Planned(_with(design, 0), None, False))
            continue
        whole = _with(design, items)
        smallest = smallest_difference(variances, whole, power)
        # Exact power has steps: what was asked for holds where the items were found for it.
        enough = not design.items or (smallest is not None and smallest <= difference)
        found.append(Planned(whole, smallest, enough))
    return Plan(difference, power, variances, tuple(found))
