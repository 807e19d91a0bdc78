"""The drawing of a difference: its interval beside zero and the margin of equivalence."""

from collections.abc import Sequence

from markupsafe import Markup

from assay.judge.verdict import Comparison
from assay.report.charts import Scale, dot, drawing, line, rect
from assay.report.words import Words, difference_text

CLASSES = {"better": "good", "worse": "bad", "undecided": "open"}
"""Verdict -> class of the colour; others are drawn plainly."""


def difference_scale(found: Sequence[Comparison]) -> tuple[float, float]:
    """A scale around zero that holds every interval and margin, the same for all rows."""
    ends = [abs(end) for c in found for end in (c.interval.low, c.interval.high, c.margin)]
    reach = max(ends, default=1.0)
    return -reach, reach


def difference_bar(found: Comparison, scale: tuple[float, float], words: Words) -> Markup:
    """A difference with its interval; the band is the margin of equivalence."""
    x = Scale(*scale, 4, 196)
    label = words(
        "table.difference",
        difference=difference_text(found.difference, found.interval),
        low=difference_text(found.interval.low, found.interval),
        high=difference_text(found.interval.high, found.interval),
    )
    margin = x(found.margin) - x(-found.margin)
    kind = CLASSES.get(found.verdict, "")
    width = max(x(found.interval.high) - x(found.interval.low), 1)
    marks = [
        rect(x(-found.margin), 2, margin, 18, "margin", words("compare.margin_band")),
        line(4, 11, 196, 11, "grid"),
        line(x(0), 2, x(0), 20, "zero"),
        rect(x(found.interval.low), 7, width, 8, f"range {kind}", label),
        dot(x(found.difference), 11, 4, f"mark {kind}", label),
    ]
    return drawing(200, 22, marks, label)
