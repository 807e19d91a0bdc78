"""The verdict of a comparison, the figures it rests on, and plain words for both.

Tests and intervals are computed elsewhere. A sentence is a key with numbers; the catalogues of the
pages word it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from assay.judge.intervals import LEVEL, Interval
from assay.judge.templates import filled as filled_in

Verdict = Literal["better", "worse", "equivalent", "undecided", "not comparable"]

ALPHA = 0.05
MARGIN = 0.02
"""Two scores closer than this are equivalent for practical purposes: 2 points."""
EQUIVALENCE_ITEMS = 1000
"""Below this number of items an interval seldom fits inside the margin."""
FEW_UNSCORED = 0.02
"""A larger share of answers without a score is warned of."""

IntervalAt = Callable[[float], Interval]
"""The interval of a difference at a level."""
PlanAt = Callable[[float], tuple[float | None, int | None]]
"""The smallest difference that a test at some alpha sees with 80 % power, and the items that the
observed one takes."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a test and an interval found of two runs."""

    control_score: float
    score: float
    difference: float
    p_value: float
    interval_at: IntervalAt
    """It leaves out 0 exactly where the p-value is below 1 - level."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The figures with a value put in for every missing score."""

    control_score: float
    score: float
    difference: float
    interval: Interval
    p_value: float
    adjusted_p: float
    """`p_value` corrected for the family."""
    interval_at: IntervalAt = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class NonInferiority:
    """Whether a run is shown to be no worse than its control by more than a margin."""

    margin: float
    bound: float
    """Confidence bound of the difference on the side of the control, in the worst case of missing
    scores; below 0 where the run may be worse."""
    level: float
    """Of the one-sided test: 0.95, higher in a family (Bonferroni)."""
    shown: bool


@dataclass(frozen=True, slots=True)
class Looks:
    """How often the items of a benchmark were looked at in a lab, see `runs.registry`."""

    benchmark: str
    looks: int
    """Checkpoints measured, over all runs and evaluations, those of deleted runs included."""
    runs: int
    deleted: int
    """Looks of runs that were deleted since."""
    unknown: int = 0
    """Runs that are gone, or damaged, and whose looks cannot be known."""
    here: int = 0
    """Looks that the table at hand compares; its family is their correction."""

    @property
    def others(self) -> int:
        """Looks besides."""
        return max(self.looks - self.here, 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run against its control. Differences are the run's score minus the control's."""

    control_score: float
    score: float
    difference: float
    interval: Interval
    """Of the difference, at the level to which the family is corrected."""
    p_value: float
    adjusted_p: float
    """`p_value` corrected for the family; equal to it when there is one comparison."""
    method: str
    items: int
    """Items that have a score in both runs."""
    verdict: Verdict
    margin: float
    minimum_detectable_difference: float | None
    """Smallest difference seen with 80 % power by this design; None when no difference is. In a
    family for a test at ALPHA / family (Bonferroni), the least that Holm's correction allows."""
    items_needed: int | None
    """Items at which a difference of the size observed would be seen with 80 % power."""
    interval_at: IntervalAt = field(repr=False, compare=False)
    plan_at: PlanAt = field(repr=False, compare=False)
    gained: int | None = None
    """Items on which the run did better; None when scores came without items."""
    lost: int | None = None
    unchanged: int | None = None
    clusters: int | None = None
    """Independent sources of the items, when items share sources."""
    family: int = 1
    """Comparisons, or looks, for which this one is corrected."""
    repeats: tuple[int, int] = (1, 1)
    """Passes over the items: control, run."""
    changed_between_repeats: tuple[int, int] = (0, 0)
    """Items whose score changed between repeats: control, run."""
    unscored: int = 0
    """Items left out because one of the runs has no score for them."""
    unscored_shares: tuple[float, float] = (0.0, 0.0)
    """Share of the answers without a score: control, run."""
    lowest: Filled | None = None
    """Missing scores least in the run's favour: its own lowest, the control's highest. None where
    none is missing."""
    highest: Filled | None = None
    """Missing scores most in the run's favour."""
    skewed: bool = False
    """Whether so few independent items differ so lopsidedly that a t test errs more often."""
    control_only: int = 0
    """Items that only one of the runs was asked, because the other was measured on a part."""
    non_inferiority: NonInferiority | None = None
    """The answer where it was asked for."""
    confounds: tuple[str, ...] = ()
    """Paths of undeclared differences between the two runs."""
    looks: Looks | None = None
    """None for scores of other tools, and where the lab has no looks besides."""
    lower_is_better: bool = False
    """Whether of two scores the lower one is better, as with a loss."""

    @property
    def resolution(self) -> float | None:
        """N / N*: the items there are over those that the difference seen needs, below 1 where it
        is too small for them (arXiv 2605.30315); None where no number of items is known."""
        return self.items / self.items_needed if self.items_needed else None

    @property
    def worst_case(self) -> Filled | None:
        """The figures with missing scores at the ends that most reduce the difference as scored."""
        return self.highest if self.difference < 0 else self.lowest

    @property
    def lowest_score(self) -> float:
        """The run's score if all that it has no score for were failures."""
        return self.score if self.lowest is None else self.lowest.score


@dataclass(frozen=True, slots=True)
class Correction:
    """The correction of one test for a family or for many looks."""

    p_value: float
    """The adjusted one."""
    divisor: int
    """The test rejects where its own p-value is below ALPHA / divisor."""


def filled(figures: Figures) -> Filled:
    """The figures of a comparison whose missing scores were filled in."""
    return Filled(
        figures.control_score,
        figures.score,
        figures.difference,
        figures.interval_at(LEVEL),
        figures.p_value,
        figures.p_value,
        figures.interval_at,
    )


def judged(comparison: Comparison) -> Comparison:
    """The comparison with its verdict, which has to hold as scored and for any missing scores."""
    verdict = as_scored(comparison)
    return replace(comparison, verdict=verdict if _survives(comparison, verdict) else "undecided")


def as_scored(comparison: Comparison) -> Verdict:
    """The verdict if the missing scores did not matter."""
    return _decide(comparison, comparison)


def _survives(c: Comparison, verdict: Verdict) -> bool:
    """Better and worse hold in the worst case of the missing scores, equivalent at both ends."""
    ends = (c.lowest, c.highest) if verdict == "equivalent" else (c.worst_case,)
    return all(_decide(case, c) == verdict for case in ends if case is not None)


def _decide(case: Comparison | Filled, c: Comparison) -> Verdict:
    """The p-value decides; two one-sided tests at ALPHA show equivalence.

    Both reject where the interval of level 1 - 2 ALPHA lies within the margin (Schuirmann 1987,
    Journal of Pharmacokinetics and Biopharmaceutics 15:657). In a family ALPHA is divided by its
    size (Bonferroni).
    """
    if case.adjusted_p < ALPHA:
        return "better" if (case.difference > 0) != c.lower_is_better else "worse"
    within = case.interval_at(1 - 2 * ALPHA / c.family)
    return "equivalent" if -c.margin < within.low and within.high < c.margin else "undecided"


def adjusted(
    comparison: Comparison, as_scored: Correction, worst_case: Correction, family: int
) -> Comparison:
    """The comparison with corrected p-values, intervals of the levels at which it was tested, and
    the verdict that follows."""
    c = comparison
    lowest, highest = c.lowest, c.highest
    if c.difference < 0:
        highest = highest and _corrected(highest, worst_case)
    else:
        lowest = lowest and _corrected(lowest, worst_case)
    interval = c.interval_at(1 - ALPHA / as_scored.divisor)
    detectable, needed = c.plan_at(ALPHA / family)
    figures = replace(c, lowest=lowest, highest=highest, interval=interval, family=family)
    planned = replace(figures, minimum_detectable_difference=detectable, items_needed=needed)
    return judged(replace(planned, adjusted_p=as_scored.p_value))


def _corrected(case: Filled, by: Correction) -> Filled:
    interval = case.interval_at(1 - ALPHA / by.divisor)
    return replace(case, adjusted_p=by.p_value, interval=interval)


def with_lower_better(comparison: Comparison) -> Comparison:
    """The comparison judged as one of which the lower score is the better one."""
    c = comparison
    return judged(replace(c, lower_is_better=True, gained=c.lost, lost=c.gained))


def with_margin(comparison: Comparison, margin: float) -> Comparison:
    """The comparison judged with another margin of equivalence."""
    changed = replace(comparison, margin=margin)
    return changed if comparison.verdict == "not comparable" else judged(changed)


def asked_non_inferior(comparison: Comparison, margin: float) -> Comparison:
    """The comparison with the answer whether the run is worse by less than the margin.

    One-sided at ALPHA (Bonferroni in a family): shown where the lower limit of the interval of
    level 1 - 2 ALPHA lies above -margin, also with the missing scores at their worst.
    """
    c, alpha = comparison, ALPHA / comparison.family
    end = c.highest if c.lower_is_better else c.lowest
    intervals = [case.interval_at(1 - 2 * alpha) for case in (c, end) if case is not None]
    bound = min(-each.high if c.lower_is_better else each.low for each in intervals)
    shown = bound > -margin and c.verdict != "not comparable"
    return replace(c, non_inferiority=NonInferiority(margin, bound, 1 - alpha, shown))


def not_comparable(comparison: Comparison, confounds: Sequence[str]) -> Comparison:
    """The comparison of runs that differ in more than what was under test; figures are kept."""
    return replace(comparison, verdict="not comparable", confounds=tuple(confounds))


@dataclass(frozen=True, slots=True)
class Sentence:
    """One statement: the key of a template and the numbers that fill it."""

    key: str
    numbers: Mapping[str, float | int | str]


PLAIN = frozenset(
    {
        *("better", "worse", "equivalent", "undecided", "detectable", "margin rarely reachable"),
        *("within margin", "worst case", "worst case for equivalence"),
    }
)
"""Sentences that have other words, "KEY plain", for scores that do not run from 0 to 1, of which a
hundredth is no point."""
IN_POINTS = ("difference", "signed", "low", "high", "margin", "tost_low", "tost_high")
IN_POINTS += ("smallest", "lowest", "highest")
"""Numbers of sentences that are printed in points."""


def sentences(comparison: Comparison) -> tuple[Sentence, ...]:
    """The sentences that a page must show for a comparison, most important first.

    Numbers are in points, or unchanged where scores do not run from 0 to 1.
    """
    c = comparison
    lines = [Sentence(c.verdict, _numbers(c)), *_non_inferior(c)]
    if c.lower_is_better:
        lines.append(Sentence("lower is better", {}))
    claimed = as_scored(c)
    if c.verdict == "undecided":
        undone = claimed != "undecided"
        lines += [Sentence(f"missing undoes {claimed}", {})] if undone else _undecided(c)
    small = -c.margin < c.interval.low and c.interval.high < c.margin
    if small and c.verdict in ("better", "worse"):
        lines.append(Sentence("within margin", {"margin": c.margin * 100}))
    if c.interval.level != LEVEL and c.verdict != "not comparable":
        numbers = {"level": c.interval.level * 100, "family": c.family}
        lines.append(Sentence("family interval", numbers))
    if c.control_only:
        lines.append(Sentence("shared items", {"items": c.items, "more": c.control_only}))
    if max(c.repeats) > 1:
        control, run = c.changed_between_repeats
        lines.append(Sentence("repeats", {"control": control, "run": run, "items": c.items}))
    lines += [*_missing(c, claimed), *_looks(c)]
    if c.skewed:
        lines.append(Sentence("skewed", {"units": c.clusters or c.items}))
    if c.gained is None:
        lines.append(Sentence("without items", {}))
    return tuple(lines) if c.interval.share else tuple(map(_plain, lines))


def _plain(sentence: Sentence) -> Sentence:
    """The sentence with its numbers as they are, where it would have them in points."""
    if sentence.key not in PLAIN:
        return sentence
    numbers = {
        name: float(value) / 100 if name in IN_POINTS else value
        for name, value in sentence.numbers.items()
    }
    return Sentence(f"{sentence.key} plain", numbers)


def _numbers(c: Comparison) -> dict[str, float | int | str]:
    within = c.interval_at(1 - 2 * ALPHA / c.family)
    return {
        "difference": abs(c.difference) * 100,
        "signed": c.difference * 100,
        "low": c.interval.low * 100,
        "high": c.interval.high * 100,
        "p": c.adjusted_p,
        "items": c.items,
        "margin": c.margin * 100,
        "tost_low": within.low * 100,
        "tost_high": within.high * 100,
        "tost_level": round(within.level * 100, 2),
        "confounds": ", ".join(c.confounds),
    }


def _non_inferior(c: Comparison) -> list[Sentence]:
    """The answer to the question whether it got worse, where that was asked and may be."""
    margin = c.non_inferiority
    if margin is None or c.verdict == "not comparable":
        return []
    numbers = {
        "margin": margin.margin * 100,
        "bound": margin.bound * 100,
        "level": margin.level * 100,
    }
    return [Sentence("non-inferior" if margin.shown else "non-inferiority not shown", numbers)]


def _looks(c: Comparison) -> list[Sentence]:
    """The comparison as one of all looks of the lab at these items (Bonferroni)."""
    if c.looks is None or c.verdict == "not comparable":
        return []
    tests = c.looks.others + c.family
    corrected = min(1.0, c.p_value * tests)
    numbers: dict[str, float | int | str] = {
        "others": c.looks.others,
        "benchmark": c.looks.benchmark,
        "runs": c.looks.runs,
        "deleted": c.looks.deleted,
        "false": tests * ALPHA / 2,
        "all_p": corrected,
    }
    lines = [Sentence("looks", numbers)]
    if c.looks.unknown:
        lines.append(Sentence("looks unknown", {"unknown": c.looks.unknown}))
    if c.verdict in ("better", "worse") and corrected >= ALPHA:
        lines.append(Sentence("looks undo", {}))
    return lines


def with_looks(comparison: Comparison, looks: Looks) -> Comparison:
    """The comparison with the looks of its lab; unchanged where there are none besides."""
    return replace(comparison, looks=looks) if looks.others or looks.unknown else comparison


def _missing(c: Comparison, claimed: Verdict) -> list[Sentence]:
    """How much has no score, and what that could do."""
    lines = []
    if c.unscored:
        lines.append(Sentence("unscored", {"unscored": c.unscored}))
    worst = c.worst_case
    if worst is None or c.lowest is None or c.highest is None:
        return lines
    control, run = c.unscored_shares
    lines.append(Sentence("unscored answers", {"control": control, "run": run}))
    if claimed == "equivalent":
        ends = {"lowest": c.lowest.difference * 100, "highest": c.highest.difference * 100}
        return [*lines, Sentence("worst case for equivalence", ends)]
    low, high = worst.interval.low * 100, worst.interval.high * 100
    numbers = {"signed": worst.difference * 100, "low": low, "high": high, "p": worst.adjusted_p}
    return [*lines, Sentence("worst case", numbers)]


def _undecided(c: Comparison) -> list[Sentence]:
    """What it would take to decide."""
    lines = []
    if c.minimum_detectable_difference is None:
        lines.append(Sentence("nothing detectable", {}))
    else:
        smallest = c.minimum_detectable_difference * 100
        lines.append(Sentence("detectable", {"smallest": smallest}))
    if c.items_needed is not None:
        ratio = c.resolution or 0.0
        lines.append(Sentence("items needed", {"needed": c.items_needed, "ratio": ratio}))
    if c.items < EQUIVALENCE_ITEMS:
        numbers = {"margin": c.margin * 100, "threshold": EQUIVALENCE_ITEMS}
        lines.append(Sentence("margin rarely reachable", numbers))
    return lines


def explain(comparison: Comparison, templates: Mapping[str, str]) -> str:
    """The sentences of a comparison in words, joined by semicolons."""
    return templates["joint"].join(
        filled_in(templates[s.key], s.numbers) for s in sentences(comparison)
    )
