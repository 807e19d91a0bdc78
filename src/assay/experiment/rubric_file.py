"""Reads the file of a rubric: what a judge is asked about answers, and whose labels it is held to.

Problems are one line with file, line and the fix. `tasks.rubric` asks the judge.
"""

from typing import Annotated

from pydantic import Field

from assay.experiment.base_table import (
    Few,
    Many,
    Name,
    Positive,
    Refusals,
    Share,
    SpecTable,
    refused,
)
from assay.tasks.rubric import FIRST, PREFERENCE, REASON, SECOND, Criterion, Rubric

Point = Annotated[int, Field(ge=-100, le=100)]
RESERVED = (REASON, PREFERENCE, FIRST, SECOND, "label")


class CriterionSpec(SpecTable):
    """One thing that is graded."""

    about: str
    """What the grades mean."""
    scale: Annotated[Many[Point], Field(min_length=2, max_length=2)] = (1, 5)
    """The lowest and the highest grade, whole numbers."""
    weight: Positive = 1.0
    """In the score, the mean of grades as shares."""

    def _conflicts(self) -> Refusals:
        low, high = self.scale
        if not low < high <= low + 100:
            problem = f"{low} to {high} is no scale"
            yield refused("scale", problem, "write the lower grade first, at most 100 below")


class RubricFile(SpecTable):
    """The file `quality.toml` of the reward `rubric:quality.toml`."""

    model: Name
    """The helper model that judges."""
    about: str = ""
    """What is judged, for the judge."""
    criteria: dict[Name, CriterionSpec]
    """What is graded, or, of pairs, looked at."""
    pairs: bool = False
    """Whether the answer is better than the row's own: 1, 0, or 0.5 for a tie."""
    both_orders: bool = False
    """Ask about every pair twice; a verdict that flips is a tie."""
    reference: bool = False
    """One who grades sees the row's own answer."""
    attempts: Few = 3
    """How often it is asked until its verdict can be read."""
    longest: Few | None = None
    """Characters; a longer answer earns 0 without being judged."""
    labels: str | None = None
    """File of people's labels that the judge is held to before a run (docs/llm-judge.md)."""
    least_kappa: Share = 0.6
    """Verdicts of a judge with less are marked and pass no gate."""

    def _conflicts(self) -> Refusals:
        if not self.criteria:
            yield refused("criteria", "nothing is judged", "write [criteria.NAME] with about")
        for name in self.criteria:
            if name in RESERVED:
                yield refused(f"criteria.{name}", "is a word of verdicts", "give another name")
        if self.both_orders and not self.pairs:
            yield refused("both_orders", "is for pairs", "write pairs = true, or remove it")
        if self.pairs and self.reference:
            yield refused("reference", "a pair has no third answer", "remove it")

    def rubric(self) -> Rubric:
        """What the judge is asked."""
        criteria = {
            name: Criterion(each.about, each.scale[0], each.scale[-1], each.weight)
            for name, each in self.criteria.items()
        }
        own = {"criteria", "labels", "least_kappa"}
        same = {key: getattr(self, key) for key in RubricFile.model_fields.keys() - own}
        return Rubric(criteria=criteria, **same)
