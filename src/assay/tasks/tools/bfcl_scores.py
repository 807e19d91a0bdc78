"""What a run's answers say of BFCL: by category, and by class, number of turns and type of error.

A category that was not run is absent, never 0. Only evaluations that report count. Tables are
`bfcl_tables`'s.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assay.data.row import Row
from assay.errors import InputError
from assay.judge.averages import average
from assay.judge.intervals import Interval, score_interval, wilson
from assay.judge.scores import ItemScores, item_scores
from assay.tasks.tools.multi_turn import MULTI_TURN
from assay.tasks.tools.single_turn import ENTRIES, entries

PREFIX = "bfcl/"
Line = Mapping[str, Any]
Reported = tuple[str, str, str, Sequence[Line]]
"""Benchmark, evaluation, checkpoint and its answers, as `runs.measurements` gives them."""


class NoBfclScores(InputError):
    """A run without BFCL's benchmarks, or with two evaluations of one category."""


@dataclass(frozen=True)
class Measured:
    """One category at one checkpoint."""

    category: str
    lines: tuple[Line, ...]
    """The record's answers, an item as often as there are repeats."""
    of: int
    """Entries that the category has; fewer may have been taken."""
    rows: Mapping[str, Row]
    """The category's entries by id."""

    @cached_property
    def scores(self) -> ItemScores | None:
        """None where every answer abstained."""
        return self._scores(self.lines)

    @property
    def refused(self) -> int:
        """Answers with messages or calls that were not executed."""
        return sum(json.loads(line["parts"]).get("refused", 0) > 0 for line in self.lines)

    def part(self, items: Iterable[str]) -> ItemScores | None:
        """The scores of some items; None where they have none."""
        kept = frozenset(items)
        return self._scores([line for line in self.lines if line["item_id"] in kept])

    def _scores(self, lines: Sequence[Line]) -> ItemScores | None:
        if all(line["score"] is None for line in lines):
            return None
        # One scene of the multi-turn categories is written in all four.
        scenes = {id: row.conversation or id for id, row in self.rows.items()}
        clusters = {line["item_id"]: scenes[line["item_id"]] for line in lines}
        return item_scores(((x["item_id"], x["repeat"], x["score"]) for x in lines), clusters)


@dataclass(frozen=True, slots=True)
class Share:
    """A rate over some of the answers of a category."""

    by: str
    """"class", "turns" or "error"."""
    value: str
    rate: float
    """Of "class" and "turns" the score of those items, of "error" the share of the answers."""
    interval: Interval
    count: int
    """Items, or of "error" the answers that have it."""


@dataclass(frozen=True, slots=True)
class BfclScores:
    """One checkpoint on all categories that it was measured on."""

    model: str
    """RUN@CHECKPOINT."""
    categories: Mapping[str, Measured]

    def overall(self) -> tuple[float, Interval] | None:
        """The unweighted mean of the multi-turn categories; None unless all four were run.

        Items of one scene are resampled together.
        """
        found = [self.categories[name].scores for name in MULTI_TURN if name in self.categories]
        known = [scores for scores in found if scores is not None]
        if len(known) < len(MULTI_TURN):
            return None
        whole = average([[scores] for scores in known])
        return whole.mean, whole.interval


def is_category(benchmark: str) -> bool:
    """Whether a benchmark is a category of BFCL."""
    return benchmark.startswith(PREFIX) and benchmark.removeprefix(PREFIX) in ENTRIES


def bfcl_scores(run: str, reported: Iterable[Reported]) -> list[BfclScores]:
    """Every checkpoint that a run was measured with on a category of BFCL.

    `reported` are the run's answers to benchmarks that are categories (`is_category`). Raises
    NoBfclScores without any, and where two evaluations are of one category.
    """
    found: dict[str, dict[str, Measured]] = {}
    names: dict[str, str] = {}
    for benchmark, evaluation, checkpoint, lines in reported:
        category = benchmark.removeprefix(PREFIX)
        if names.setdefault(category, evaluation) != evaluation:
            problem = f"{run} measured {benchmark} as {names[category]!r} and {evaluation!r}"
            raise NoBfclScores(problem, fix="a table has one evaluation of each category")
        rows = {row.id: row for row in entries(category)}
        measured = Measured(category, tuple(lines), len(rows), rows)
        found.setdefault(checkpoint, {})[category] = measured
    if not found:
        raise NoBfclScores(f"{run} was measured on no category of BFCL", fix='role = "report"')
    return [BfclScores(f"{run}@{checkpoint}", found[checkpoint]) for checkpoint in found]


def breakdown(measured: Measured) -> list[Share]:
    """The category's scores by class and number of turns where its entries have any, and errors.

    An entry counts for each of its classes.
    """
    return [
        *_by("class", measured, lambda row: row.extra["entry"]["involved_classes"]),
        *_by("turns", measured, lambda row: [len(row.extra["entry"]["question"])]),
        *_errors(measured),
    ]


def _by(by: str, measured: Measured, values_of: Any) -> list[Share]:
    groups: dict[Any, set[str]] = {}
    for item in {line["item_id"] for line in measured.lines}:
        row = measured.rows[item]
        for value in values_of(row) if "entry" in row.extra else ():
            groups.setdefault(value, set()).add(item)
    shares = []
    for value, items in sorted(groups.items()):
        scores = measured.part(items)
        if scores is not None:
            interval = score_interval(scores)
            shares.append(Share(by, str(value), scores.mean, interval, len(scores.item_ids)))
    return shares


def _errors(measured: Measured) -> list[Share]:
    judged = [line for line in measured.lines if line["score"] is not None]
    counts = Counter(line["error"] for line in judged if line["error"])
    return [
        Share("error", error, count / len(judged), wilson(count, len(judged)), count)
        for error, count in counts.most_common()
    ]
