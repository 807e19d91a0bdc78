"""Drops training rows that share a question, a path of calls or a function with what tests them.

What counts as shared is `assay.data.leakage`; which items are the test is the caller's to say.
Items of a benchmark with worked examples hold the examples' questions too: pass it without.
"""

from collections import defaultdict
from collections.abc import Sequence

from assay.data.leakage import overlap
from assay.data.row import Row
from assay.tasks.task import Loaded

EXACT = "same question as a test item"
NORMALISED = "same question as a test item but for case, spaces and signs"
PATH = "same calls as a test item, one after another"
FUNCTION = "same function name as a test item"


def separate(rows: Sequence[Row], items: Sequence[Row]) -> Loaded:
    """`rows` without those that share something with `items`; each goes for its first reason."""
    shared = overlap(rows, items)
    reasons = {
        EXACT: {train for train, _ in shared.exact},
        NORMALISED: {train for train, _ in shared.normalised},
        PATH: {train for train, _ in shared.paths},
        FUNCTION: {train for ids in shared.functions.values() for train in ids},
    }
    kept, dropped = [], defaultdict(list)
    for row in rows:
        reason = next((why for why, ids in reasons.items() if row.id in ids), None)
        if reason is None:
            kept.append(row)
        else:
            dropped[reason].append(row.id)
    return Loaded(tuple(kept), {reason: tuple(ids) for reason, ids in dropped.items()})
