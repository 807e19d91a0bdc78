"""Rules about what was compared: data, settings, labels, and conditions that were never run."""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from assay.data.reported.record import Reported, Run
from assay.judge.audit.cells import cells
from assay.judge.audit.flaw import Flaw
from assay.judge.audit.pairs import Pair, absent, pairs

DATA = "data"
"""The setting that names the data a run was trained on."""
FEWEST_SAME = 4
"""Cells below which agreement to the last digit may be chance."""
SHARE_SAME = 0.5


def several_factors(report: Reported) -> Iterator[Flaw]:
    """Comparisons of runs that differ in more than one thing, or in more than what is varied."""
    for pair in _compared(report):
        found = pair.differs
        if pair.confounded:
            shown = "; ".join(f"{c.path}: {c.control} → {c.other}" for c in found)
            numbers = {"count": len(found), "what": shown, "vary": ", ".join(pair.vary) or "–"}
            yield Flaw("several_factors", "error", pair.name, numbers, pair.line)


def different_data(report: Reported) -> Iterator[Flaw]:
    """Comparisons that are not about data, of runs that were trained on different data."""
    for pair in _compared(report):
        data = [c for c in pair.differs if c.path == DATA]
        if data and pair.confounded:
            numbers = {"control": str(data[0].control), "other": str(data[0].other)}
            yield Flaw("different_data", "error", pair.name, numbers, pair.line)


def label_disagrees(report: Reported) -> Iterator[Flaw]:
    """Two places that say different things of one run or file."""
    said: dict[str, dict[str, tuple[object, str]]] = {}
    for run in report.runs:
        said[run.name] = {key: (value, "") for key, value in run.settings.items()}
    for mention in report.mentions:
        known = said.setdefault(mention.of, {})
        for key, value in mention.settings.items():
            first, place = known.setdefault(key, (value, mention.place))
            if first != value:
                numbers = {
                    "setting": key,
                    "here": str(first),
                    "place": place,
                    "there": str(value),
                    "other": mention.place,
                }
                yield Flaw("label_disagrees", "error", mention.of, numbers, mention.line)


def same_values(report: Reported) -> Iterator[Flaw]:
    """Conditions whose scores agree to the last digit in all or most cells."""
    scored = [(run, _printed(report, run)) for run in report.runs]
    for index, (first, before) in enumerate(scored):
        for second, after in scored[index + 1 :]:
            shared = before.keys() & after.keys()
            equal = [cell for cell in shared if before[cell] == after[cell]]
            figures = sum(len(before[cell]) for cell in shared)
            if figures < FEWEST_SAME or len(equal) <= SHARE_SAME * len(shared):
                continue
            numbers = {"equal": len(equal), "cells": len(shared), "figures": figures}
            everything = len(equal) == len(shared)
            key = "same_values" if everything else "mostly_same_values"
            about = f"{first.name} / {second.name}"
            yield Flaw(key, "error" if everything else "warning", about, numbers, second.line)


def never_run(report: Reported) -> Iterator[Flaw]:
    """Comparisons with a condition of which the report has nothing."""
    for claim in report.comparisons:
        for name in absent(report, claim):
            about = f"{claim.run} / {claim.control}"
            yield Flaw("never_run", "error", about, {"name": name}, claim.line)


def _compared(report: Reported) -> Iterator[Pair]:
    """The report's comparisons, those of conditions without scores too, each once."""
    seen = set()
    for pair in pairs(report):
        if pair.name not in seen:
            seen.add(pair.name)
            yield pair


def _printed(report: Reported, run: Run) -> Mapping[str, tuple[Decimal, ...]]:
    """The printed values of each cell."""
    return {name: cell.values for name, cell in cells(report, run).items()}
