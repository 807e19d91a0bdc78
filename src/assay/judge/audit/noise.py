"""Audit rules about differences between scores: which are larger than the items' sampling noise.

Scores came without their items, so every comparison is unpaired; a paired one would be sharper, and
`unpaired` reports that.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from assay.data.reported.reported_record import Comparison as Claim
from assay.data.reported.reported_record import Reported, Verdict
from assay.errors import Finding
from assay.judge.audit.cells import cells, flaw
from assay.judge.audit.pairs import Pair, pairs
from assay.judge.binomial import compare_counts, unpaired_items_needed
from assay.judge.verdict import ALPHA, Comparison

DECIDED = ("better", "worse")
MOST_ITEMS = 5000
"""Items for each run above which a difference is rarely measured; most benchmarks have fewer."""


def inside_noise(report: Reported) -> Iterator[Finding]:
    """Compares each of the report's verdicts with the test at the given number of items.

    A verdict on one cell is checked on that cell only. Between runs that are not comparable no
    difference decides anything; one inside the noise is reported all the same.
    """
    for pair in pairs(report):
        for cell, says in pair.says_of.items():
            found = pair.by_cell.get(cell) or pair.averages.get(cell)
            if found is not None:
                yield from _one(pair, found, says, cell)
        rest = {cell: c for cell, c in pair.by_cell.items() if cell not in pair.says_of}
        if len(rest) == 1:
            ((cell, comparison),) = rest.items()
            yield from _one(pair, comparison, pair.says, cell if pair.says_of else "")
        elif rest:
            yield _several(pair, rest)


def _one(pair: Pair, found: Comparison, says: Verdict | None, cell: str) -> Iterator[Finding]:
    """The flaw, or the note, of a comparison of one cell, unless the report tested it itself."""
    decided = found.verdict in DECIDED
    claim = pair.claim_of(cell)
    if decided and pair.confounded:
        return
    if decided and says in (None, "undecided", found.verdict):
        key, severity = found.verdict, "note"
    elif decided:
        key, severity = "contradicted", "error" if says in DECIDED else "warning"
    elif says in DECIDED:
        if claim is not None and tested(claim) is not None:
            return
        key, severity = "inside_noise", "warning"
    elif says == "same" and found.verdict != "equivalent":
        key, severity = "no_effect_not_shown", "warning"
    else:
        key, severity = found.verdict, "note"
    numbers = figures(found) | {"says": says or ""}
    about = f"{pair.name} · {cell}" if cell else pair.name
    yield flaw(key, severity, about, numbers, claim.line if claim else pair.line)


def _several(pair: Pair, by_cell: Mapping[str, Comparison]) -> Finding:
    """The same for several cells: how many of them decide, and which is nearest to noise.

    A claim about the whole is carried by every cell, or by the mean over all of them.
    """
    decided = [cell for cell, c in by_cell.items() if c.verdict in DECIDED]
    carried = [cell for cell in decided if by_cell[cell].verdict == pair.says]
    overall = pair.overall is not None and pair.overall.verdict == pair.says
    least = max(by_cell, key=lambda cell: by_cell[cell].p_value)
    claim = pair.claim_of("")
    numbers = figures(by_cell[least]) | {
        "cells": len(by_cell),
        "decided": len(decided),
        "which": ", ".join(decided) or "–",
        "cell": least,
        "says": pair.says or "",
        "fewest": min(c.items for c in by_cell.values()),
    }
    shown = overall or len(carried) == len(by_cell) or (claim and tested(claim) is not None)
    if pair.overall is not None and _opposed(pair.says, pair.overall) and not pair.confounded:
        turned = figures(pair.overall) | {"says": pair.says or ""}
        return flaw("contradicted", "error", pair.name, turned, pair.line)
    if pair.says in DECIDED and not shown:
        return flaw("cells_inside_noise", "warning", pair.name, numbers, pair.line)
    alike = pair.overall is not None and pair.overall.verdict == "equivalent" and not decided
    if pair.says == "same" and not alike:
        return flaw("cells_not_the_same", "warning", pair.name, numbers, pair.line)
    return flaw("cells_judged", "note", pair.name, numbers, pair.line)


def _opposed(says: Verdict | None, found: Comparison) -> bool:
    """Whether the scores decide against the report's verdict."""
    return says in DECIDED and found.verdict in DECIDED and found.verdict != says


def own_test_disagrees(report: Reported) -> Iterator[Finding]:
    """Claims of a difference that their own p-value or interval, printed beside, does not show."""
    for claim in report.comparisons:
        if claim.says in DECIDED and tested(claim) is False:
            numbers = {
                "says": claim.says or "",
                "printed": _printed(claim),
            }
            about = f"{claim.run} / {claim.control}"
            yield flaw("own_test_disagrees", "warning", about, numbers, claim.line)


def _printed(claim: Claim) -> str:
    """The interval, or the p-value, that a claim is printed with."""
    return f"[{', '.join(map(str, claim.interval))}]" if claim.interval else f"p = {claim.p}"


def tested(claim: Claim) -> bool | None:
    """Whether the report's own test shows the difference; None where it prints none."""
    if claim.interval:
        low, high = claim.interval
        return low > 0 or high < 0
    return None if claim.p is None else float(claim.p) < ALPHA


def figures(found: Comparison) -> dict[str, float | int | str]:
    """What every sentence about a comparison needs, in points."""
    return {
        "control": found.control_score * 100,
        "score": found.score * 100,
        "difference": found.difference * 100,
        "low": found.interval.low * 100,
        "high": found.interval.high * 100,
        "p": found.adjusted_p,
        "items": found.items,
        "smallest": (found.minimum_detectable_difference or 0) * 100,
        "needed": found.items_needed or 0,
        "family": found.family,
        "level": found.interval.level * 100,
    }


def items_unknown(report: Reported) -> Iterator[Finding]:
    """Scores that would be compared if their numbers of items were known."""
    waiting = [pair for pair in pairs(report) if not pair.by_cell and pair.shared_cells]
    if waiting:
        name = report.scoring.benchmark or report.about
        yield flaw("items_unknown", "note", name, {"comparisons": len(waiting)})


def claim_without_items(report: Reported) -> Iterator[Finding]:
    """Claimed differences without a number of items, which need more than benchmarks have."""
    for pair in pairs(report):
        before, after = cells(report, pair.control), cells(report, pair.run)
        for cell in before.keys() & after.keys() - pair.by_cell.keys():
            whole = pair.says if pair.shared_cells == 1 else None
            says, claim = pair.says_of.get(cell, whole), pair.claim_of(cell)
            needed = unpaired_items_needed(before[cell].mean, after[cell].mean)
            if says not in DECIDED or (claim and tested(claim) is not None):
                continue
            if needed is not None and needed > MOST_ITEMS:
                numbers = {
                    "says": says or "",
                    "control": 100 * before[cell].mean,
                    "score": 100 * after[cell].mean,
                    "needed": needed,
                }
                about = f"{pair.name} · {cell}" if cell else pair.name
                line = claim.line if claim else pair.line
                yield flaw("claim_without_items", "warning", about, numbers, line)


def difference_inside_noise(report: Reported) -> Iterator[Finding]:
    """Differences printed without their scores, in the case that favours them most."""
    for claim in report.comparisons:
        if claim.points and claim.items and tested(claim) is None:
            yield _difference(claim)


def _difference(claim: Claim) -> Finding:
    """The largest difference on the most items; a score in the middle has the most noise."""
    largest = max(abs(float(points)) for points in claim.points)
    items, after = max(claim.items), float(claim.score or 50) / 100
    before = min(max(after - largest / 100, 0.0), 1.0)
    found = compare_counts(before * items, items, after * items, items)
    numbers = figures(found) | {
        "least": min(abs(float(points)) for points in claim.points),
        "largest": largest,
        "fewest": min(claim.items),
    }
    carried = found.verdict in DECIDED
    key = "difference_could_be_real" if carried else "difference_inside_noise"
    severity = "note" if carried or claim.says == "same" else "warning"
    return flaw(key, severity, f"{claim.run} / {claim.control}", numbers, claim.line)


def unpaired(report: Reported) -> Iterator[Finding]:
    """Scores of the same items, compared without pairing them."""
    found = [p for p in pairs(report) if p.by_cell and not any(c.paired for c in p.claims)]
    claims = [claim for claim in report.comparisons if claim.points and not claim.paired]
    count = len(found) + len(claims)
    if count:
        name = report.scoring.benchmark or report.about
        yield flaw("unpaired", "note", name, {"comparisons": count})


def repeats_alike(report: Reported) -> Iterator[Finding]:
    """Repeats that vary far less than samples would: they are not further items."""
    spreads, errors, same, repeats = [], [], [], 0
    for run in report.runs:
        for cell in cells(report, run).values():
            if len(cell.values) < 2 or cell.items is None or not 0 < cell.mean < 1:
                continue
            shares = np.array([float(value) / cell.scale for value in cell.values])
            spreads.append(shares.std(ddof=1))
            errors.append(np.sqrt(cell.mean * (1 - cell.mean) / cell.items))
            repeats = max(repeats, len(shares))
            if len(shares) > 2 and spreads[-1] == 0:
                same.append(run.name)
    if spreads and np.mean(spreads) < np.mean(errors) / 2:
        numbers = {
            "scores": len(spreads),
            "repeats": repeats,
            "spread": float(np.mean(spreads)) * 100,
            "error": float(np.mean(errors)) * 100,
            "identical": ", ".join(same) or "–",
        }
        name = report.scoring.benchmark or report.about
        yield flaw("repeats_alike", "note", name, numbers)


def nested_subsets(report: Reported) -> Iterator[Finding]:
    """Agreement over subsets that hold each other, taken as repeated evidence."""
    drawn = [p for p in pairs(report) if len(p.by_cell) > 1]
    sizes = {items for claim in report.comparisons for items in claim.items}
    sizes |= {c.items for pair in drawn for c in pair.by_cell.values()}
    if report.scoring.nested and len(sizes) > 1:
        shown = ", ".join(map(str, sorted(sizes)))
        numbers = {"sizes": shown, "largest": max(sizes)}
        yield flaw("nested_subsets", "warning", report.scoring.benchmark, numbers)
