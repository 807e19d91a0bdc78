"""Audit rules about the counts behind scores: correct answers, items, and items without an answer.

One rule checks a harmonic score against all counts that round to the printed scores.
"""

import itertools
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

from assay.data.reported.printed_numbers import on_grid, prints, rounding
from assay.data.reported.reported_record import Reported, Run, Search
from assay.errors import Finding
from assay.judge.audit.cells import Cell, cells, flaw, items_of
from assay.judge.audit.pairs import Pair, pairs
from assay.judge.averages import harmonic_ratio

LEFT_OUT = 0.02
"""Share of items without a score above which a score may move by more than its rounding."""


def score_not_from_counts(report: Reported) -> Iterator[Finding]:
    """Scores that their own counts do not give, whatever is done with items without an answer."""
    for run, cell, items in _counted(report):
        scores, counts = run.scores.get(cell, ()), run.right[cell]
        for index, count in enumerate(counts):
            value = scores[index] if scores else None
            passes = run.repeats or report.scoring.repeats
            if value is None and count <= items * passes:
                continue
            if value is not None and _explained(report, run, cell, value, count):
                continue
            numbers = {
                "value": "–" if value is None else str(value),
                "count": count,
                "total": items,
                "is_": float(report.scoring.highest * Fraction(count, items)),
                "fits": _totals(report, value, count, items),
            }
            yield flaw(
                "score_not_from_counts", "error", _about(run, cell), numbers, _line(run, cell)
            )


def _counted(report: Reported) -> Iterator[tuple[Run, str, int]]:
    """The runs and cells with a printed number of correct items, and all their items."""
    for run in report.runs:
        for cell in run.right:
            items = items_of(report, run, cell)
            if items is not None and report.scoring.step == 1:
                yield run, cell, items


def _explained(report: Reported, run: Run, cell: str, value: Decimal, count: int) -> bool:
    """Whether a count gives a score, of all items, of all passes or of the answered ones."""
    items = items_of(report, run, cell) or 1
    passes = run.repeats or report.scoring.repeats
    totals = (items, items * passes, items - _unanswered(run, cell))
    if count > items * passes:
        return False
    highest = report.scoring.highest
    return any(prints(value, Fraction(highest * count, total)) for total in totals if total > 0)


def _totals(report: Reported, value: Decimal | None, count: int, items: int) -> str:
    """The numbers of items for which the count gives the score."""
    if value is None or not value or count > items:
        return "–"
    middle = report.scoring.highest * count / float(value)
    near = range(max(count, int(middle) - 3, 1), int(middle) + 5)
    found = [n for n in near if prints(value, Fraction(report.scoring.highest * count, n))]
    return ", ".join(map(str, found)) or "–"


def failures_left_out(report: Reported) -> Iterator[Finding]:
    """Scores over answered items only, so that timeouts, parse failures and refusals do not count.

    Stated by the report, or visible in the counts. A note where it is at most 2 % of the items.
    """
    for run in report.runs:
        for cell in dict.fromkeys((*run.failed, *run.left_out)):
            items, lost = items_of(report, run, cell), _unanswered(run, cell)
            if not items or not 0 < lost < items:
                continue
            seen, said = _dropped(report, run, cell, items, lost), run.left_out.get(cell, 0)
            if seen or said:
                yield _left_out(report, run, cell, items, lost, seen)


def _left_out(report: Reported, run: Run, cell: str, items: int, lost: int, seen: bool) -> Finding:
    # The stated number of items may or may not include those that were left out.
    among = seen or cell in run.failed or not run.right.get(cell)
    total = items if among else items + lost
    share = lost / total
    values, highest = run.scores.get(cell, ()), report.scoring.highest
    mean = float(sum(values) / len(values)) if values else highest * run.right[cell][0] / items
    numbers = {
        "lost": lost,
        "total": total,
        "share": 100 * share,
        "score": 100 * mean / highest,
        "worst": 100 * mean / highest * (1 - share),
    }
    severity = "warning" if share > LEFT_OUT else "note"
    return flaw("failures_left_out", severity, _about(run, cell), numbers, _line(run, cell))


def _dropped(report: Reported, run: Run, cell: str, items: int, lost: int) -> bool:
    """Whether a score follows from the answered items and not from all of them."""
    highest, values = report.scoring.highest, run.scores.get(cell, ())
    for count, value in zip(run.right.get(cell, ()), values, strict=False):
        among, of_all = Fraction(highest * count, items - lost), Fraction(highest * count, items)
        if prints(value, among) and not prints(value, of_all):
            return True
    if run.right.get(cell) or not values:
        return False
    unit, fewer = Fraction(highest, items), Fraction(highest, items - lost)
    sharp = all(6 * rounding(value) < unit for value in values)
    fits = all(on_grid(value, fewer) for value in values)
    return sharp and fits and not all(on_grid(value, unit) for value in values)


def _unanswered(run: Run, cell: str) -> int:
    return max(run.failed.get(cell, 0), run.left_out.get(cell, 0))


def different_items(report: Reported) -> Iterator[Finding]:
    """Compared runs that were measured on different numbers of items of one benchmark.

    A note where the report says nothing of the two.
    """
    for pair in pairs(report):
        if any(claim.paired for claim in pair.claims):
            continue
        found = [(cell, *both) for cell in pair.by_cell if (both := _items(report, pair, cell))]
        if found:
            cell, before, after = found[0]
            numbers = {"control": before, "other": after, "cell": cell, "count": len(found)}
            severity = "error" if pair.claimed else "note"
            about = f"{pair.name} · {cell}" if cell else pair.name
            yield flaw("different_items", severity, about, numbers, pair.line)


def _items(report: Reported, pair: Pair, cell: str) -> tuple[int, int] | None:
    """The items of control and run, where they are not the same."""
    before, after = (items_of(report, run, cell) for run in (pair.control, pair.run))
    return (before, after) if before and after and before != after else None


def _about(run: Run, cell: str) -> str:
    return f"{run.name} · {cell}" if cell else run.name


def _line(run: Run, cell: str) -> int | None:
    return run.lines.get(cell, run.line)


MOST_COUNTS = 10_000
"""Combinations of counts that are tried."""


def harmonic_from_counts(report: Reported) -> Iterator[Finding]:
    """The printed harmonic mean of ratios to a baseline, from counts."""
    for search in report.searches:
        if search.says is not None and search.baseline:
            yield from _harmonic(report, search, search.says)


def _harmonic(report: Reported, search: Search, says: Decimal) -> Iterator[Finding]:
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
    yield flaw(key, severity, search.chosen, numbers, search.line)


def _counts(cell: Cell) -> range:
    """The numbers of right items that round to the printed score."""
    value, slack = Fraction(cell.values[0]), rounding(cell.values[0])
    ratio = Fraction(cell.items or 0, cell.scale)
    return range(ceil((value - slack) * ratio), floor((value + slack) * ratio) + 1)
