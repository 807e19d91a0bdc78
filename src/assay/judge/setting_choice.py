"""Choosing one of many on the items that choose, by rule, or none.

The rule: the candidate is the one with the best score on dev items, where an answer without a
score counts as a failure; it is chosen if it beats its baseline there by the paired test, with the
p-value multiplied by the number of looks. What it scores on the items that report is shown
elsewhere and never asked here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from assay.judge.holm import judge_family
from assay.judge.missing import score_range
from assay.judge.paired import compare
from assay.judge.promotion import corrected_for_looks, expected_optimism
from assay.judge.scores import ItemScores
from assay.judge.verdict import Comparison


@dataclass(frozen=True, slots=True)
class Choice:
    """What the dev items say about the best of several."""

    candidate: str
    """Name of the best on dev, the earliest among equals."""
    chosen: bool
    """Whether it beats its baseline after the correction for looks."""
    comparison: Comparison | None
    """Candidate against its baseline on dev, corrected for looks; None: it is the baseline."""
    looks: int
    optimism: float
    """How much too good the best of so many equally good ones looks, expected at most."""
    rivals: tuple[str, ...]
    """Those that the dev items do not show to be worse than the candidate."""


def choose(
    cells: Mapping[str, ItemScores], baselines: Mapping[str, ItemScores | None], looks: int
) -> Choice:
    """The best of `cells` on dev against its own baseline; None as baseline: it is one itself.

    `looks` counts every checkpoint that was looked at, chosen or not. Raises ItemsDifferError when
    the cells were not scored on the same items, ScoreError when nothing was scored.
    """
    best = max(cells, key=lambda name: score_range(cells[name])[0])
    others = {name: scores for name, scores in cells.items() if name != best}
    against = judge_family(cells[best], others)
    rivals = tuple(name for name in others if against[name].verdict != "worse")
    optimism = expected_optimism(looks, len(cells[best].item_ids))
    baseline = baselines[best]
    if baseline is None:
        return Choice(best, False, None, looks, optimism, rivals)
    found = corrected_for_looks(compare(baseline, cells[best]), looks)
    return Choice(best, found.verdict == "better", found, looks, optimism, rivals)
