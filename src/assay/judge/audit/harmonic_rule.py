"""Rule: whether a printed harmonic score follows from counts that round to the printed scores."""

import itertools
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

from assay.data.reported.reported_record import Reported, Search
from assay.judge.audit.cells import Cell, cells
from assay.judge.audit.flaw import Flaw
from assay.judge.audit.printed import rounding
from assay.judge.harmonic import harmonic_ratio

MOST_COUNTS = 10_000
"""Combinations of counts that are tried."""


def harmonic_from_counts(report: Reported) -> Iterator[Flaw]:
    """The printed harmonic mean of ratios to a baseline, from counts."""
    for search in report.searches:
        if search.says is not None and search.baseline:
            yield from _harmonic(report, search, search.says)


def _harmonic(report: Reported, search: Search, says: Decimal) -> Iterator[Flaw]:
    chosen, baseline = report.run(search.chosen), report.run(search.baseline)
    assert chosen is not None and baseline is not None, "the record was checked"
    scores, bases = cells(report, chosen), cells(report, baseline)
    shared = [cell for cell in scores if cell in bases and scores[cell].items]
    possible = [_counts(scores[cell]) for cell in shared]
    size = 1
    for counts in possible:
        size *= len(counts)
    if not shared or not 0 < size <= MOST_COUNTS:
        return
    items = [scores[cell].items or 0 for cell in shared]
    means = [bases[cell].mean for cell in shared]
    found = {
        counts: harmonic_ratio(list(zip(counts, items, strict=True)), means)
        for counts in itertools.product(*possible)
    }
    best = min(found, key=lambda counts: abs(found[counts] - float(says)))
    rounded = harmonic_ratio([(scores[c].successes, scores[c].items or 0) for c in shared], means)
    numbers = {
        "says": str(says),
        "counts": ", ".join(f"{c}/{n}" for c, n in zip(best, items, strict=True)),
        "value": repr(found[best]),
        "rounded": rounded,
    }
    fits = abs(found[best] - float(says)) <= float(rounding(says)) + 1e-15
    key, severity = ("harmonic_holds", "note") if fits else ("harmonic_fails", "error")
    yield Flaw(key, severity, search.chosen, numbers, search.line)


def _counts(cell: Cell) -> range:
    """The numbers of right items that round to the printed score."""
    value, slack = Fraction(cell.values[0]), rounding(cell.values[0])
    ratio = Fraction(cell.items or 0, cell.scale)
    return range(ceil((value - slack) * ratio), floor((value + slack) * ratio) + 1)
