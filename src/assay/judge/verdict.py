"""What a comparison says: the verdict, the figures it rests on, and plain words for both.

Tests and intervals are computed elsewhere. Sentences are a key with numbers, so that a page in
another language brings its own templates; the English ones are here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from assay.judge.intervals import Interval
from assay.judge.plural import filled

Verdict = Literal["better", "worse", "equivalent", "undecided", "not comparable"]

ALPHA = 0.05
MARGIN = 0.02
"""Two scores closer than this are equivalent for practical purposes: 2 points."""
EQUIVALENCE_ITEMS = 1000
"""Below this number of items an interval seldom fits inside the margin."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run against its control. Differences are the run's score minus the control's."""

    control_score: float
    score: float
    difference: float
    interval: Interval
    """Of the difference, for this comparison alone."""
    p_value: float
    adjusted_p: float
    """`p_value` corrected for the family; equal to it when there is one comparison."""
    method: str
    items: int
    """Items that have a score in both runs."""
    verdict: Verdict
    margin: float
    minimum_detectable_difference: float | None
    """Smallest difference seen with 80 % power by this design; None when no difference is."""
    items_needed: int | None
    """Items at which a difference of the size observed would be seen with 80 % power."""
    gained: int | None = None
    """Items on which the run scored higher; None when scores came without items."""
    lost: int | None = None
    unchanged: int | None = None
    clusters: int | None = None
    """Independent sources of the items, when items share sources."""
    repeats: tuple[int, int] = (1, 1)
    """Passes over the items: control, run."""
    changed_between_repeats: tuple[int, int] = (0, 0)
    """Items whose score changed between repeats: control, run."""
    unscored: int = 0
    """Items left out because one of the runs has no score for them."""
    confounds: tuple[str, ...] = ()
    """Paths of undeclared differences between the two runs."""


def decide(difference: float, interval: Interval, p_value: float, margin: float) -> Verdict:
    """The verdict of a fair comparison. The p-value decides, the interval shows equivalence."""
    if p_value < ALPHA:
        return "better" if difference > 0 else "worse"
    if -margin < interval.low and interval.high < margin:
        return "equivalent"
    return "undecided"


def adjusted(comparison: Comparison, p_value: float) -> Comparison:
    """The comparison with a corrected p-value and the verdict that follows from it."""
    verdict = decide(comparison.difference, comparison.interval, p_value, comparison.margin)
    return replace(comparison, adjusted_p=p_value, verdict=verdict)


def not_comparable(comparison: Comparison, confounds: Sequence[str]) -> Comparison:
    """The comparison of runs that differ in more than what was under test; figures are kept."""
    return replace(comparison, verdict="not comparable", confounds=tuple(confounds))


@dataclass(frozen=True, slots=True)
class Sentence:
    """One statement: the key of a template and the numbers that fill it."""

    key: str
    numbers: Mapping[str, float | int | str]


ENGLISH = {
    "better": "better by {difference:.1f} points ({low:+.1f} to {high:+.1f}), p = {p:.2g}",
    "worse": "worse by {difference:.1f} points ({low:+.1f} to {high:+.1f}), p = {p:.2g}",
    "equivalent": "equivalent: the difference of {signed:+.1f} points ({low:+.1f} to {high:+.1f}) "
    "lies within {margin:g} points",
    "undecided": "undecided: {signed:+.1f} points ({low:+.1f} to {high:+.1f}) on {items:items}, "
    "p = {p:.2g}",
    "not comparable": "not comparable: differs in {confounds}",
    "detectable": "this design sees differences of {smallest:.1f} points or more with 80 % power",
    "nothing detectable": "this design cannot detect any difference: too few independent items",
    "items needed": "a difference of this size would take about {needed:items}",
    "margin rarely reachable": "the equivalence margin of {margin:g} points is rarely reachable "
    "under {threshold} items",
    "within margin": "the interval lies within the margin of {margin:g} points: a real difference, "
    "but a small one",
    "repeats": "{control} and {run} of {items:items} changed between repeats; repeats that do not "
    "change are not further samples",
    "unscored": "{unscored:items} had no score in one of the runs, hence left out",
    "without items": "compared as two binomials: the scores came without their items",
}


def sentences(comparison: Comparison) -> tuple[Sentence, ...]:
    """What a page must say about a comparison, most important first. Numbers are in points."""
    c = comparison
    figures: dict[str, float | int | str] = {
        "difference": abs(c.difference) * 100,
        "signed": c.difference * 100,
        "low": c.interval.low * 100,
        "high": c.interval.high * 100,
        "p": c.adjusted_p,
        "items": c.items,
        "margin": c.margin * 100,
        "confounds": ", ".join(c.confounds),
    }
    said = [Sentence(c.verdict, figures)]
    if c.verdict == "undecided":
        said += _undecided(c)
    small = -c.margin < c.interval.low and c.interval.high < c.margin
    if small and c.verdict in ("better", "worse"):
        said.append(Sentence("within margin", {"margin": c.margin * 100}))
    if max(c.repeats) > 1:
        control, run = c.changed_between_repeats
        said.append(Sentence("repeats", {"control": control, "run": run, "items": c.items}))
    if c.unscored:
        said.append(Sentence("unscored", {"unscored": c.unscored}))
    if c.gained is None:
        said.append(Sentence("without items", {}))
    return tuple(said)


def _undecided(c: Comparison) -> list[Sentence]:
    """What it would take to decide."""
    said = []
    if c.minimum_detectable_difference is None:
        said.append(Sentence("nothing detectable", {}))
    else:
        smallest = c.minimum_detectable_difference * 100
        said.append(Sentence("detectable", {"smallest": smallest}))
    if c.items_needed is not None:
        said.append(Sentence("items needed", {"needed": c.items_needed}))
    if c.items < EQUIVALENCE_ITEMS:
        numbers = {"margin": c.margin * 100, "threshold": EQUIVALENCE_ITEMS}
        said.append(Sentence("margin rarely reachable", numbers))
    return said


def explain(comparison: Comparison, templates: Mapping[str, str] = ENGLISH) -> str:
    """The sentences of a comparison in words, joined by semicolons."""
    return "; ".join(filled(templates[s.key], s.numbers) for s in sentences(comparison))
