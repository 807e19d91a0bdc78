"""Puts runs that other tools measured beside each other and beside the lab's own: read and named.

A side of a comparison is a run in a file (`FILE`, or `FILE@RUN` where it holds several) or a run of
the lab. What may be compared is decided in `foreign_compare`; nothing is judged or printed here.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from pathlib import Path
from typing import Any

from assay.compare.fairness import BASE, Entrant, check_finished
from assay.compare.measured_arm import load_measured
from assay.compare.table import Arm
from assay.data.raw_record import DataError
from assay.data.results.bfcl_leaderboard import Reported, read_leaderboard
from assay.data.results.foreign_result import SCORE, Result
from assay.data.results.lm_eval import sample_logs
from assay.data.results.readers import SUFFIXES, read_results
from assay.errors import InputError, nearest
from assay.experiment.read_file import read_experiment
from assay.judge.intervals import Interval, score_interval, wilson
from assay.judge.missing import score_range
from assay.judge.scores import ItemScores, item_scores
from assay.runs.manifest_file import read_manifest
from assay.runs.measurements import NotMeasured, find_record, measured_checkpoints
from assay.runs.run_directory import RunDirectory

LONGEST_PART = 255
"""Bytes of a file's name; asking for a longer one is an error of the system."""
OWN = "assay"
"""The format of the lab's own records."""
MODEL = ("base_weights",)
"""In the settings of another tool's log, what is under test."""

Key = tuple[str, int]
"""Item and repeat."""


class NoSuchResult(InputError):
    """A run or a metric that a file does not hold, or more than one and none named."""


@dataclass(frozen=True)
class Side:
    """One run with its scores, and what is known about how they were made."""

    name: str
    format: str
    benchmark: str
    metric: str
    checker: str
    scores: Mapping[Key, float | None]
    outputs: Mapping[Key, str]
    errors: int = 0
    """Answers on which the tool reported a failure."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """The source of each item, where it is known."""
    questions: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of the question by item, where it is known."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    configured: bool = False
    """Whether `settings` say how the run was made and measured."""
    vary: tuple[str, ...] = ()
    """Differences that are what the comparison is about."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The task of each item, where the run is on several."""
    left_out: tuple[str, ...] = ()
    """What the file was made to hold as well and has no scores of, by name."""
    unfinished: str = ""
    file: Path | None = None
    entrant: Entrant | None = None
    """Everything about a run of the lab; None for a run of another tool."""

    @property
    def items(self) -> list[str]:
        """The items in the order of their first answer."""
        return list(dict.fromkeys(item for item, _ in self.scores))

    @property
    def repeats(self) -> int:
        """The largest number of answers that an item has."""
        return max(Counter(item for item, _ in self.scores).values())

    def item_scores(self, bounds: tuple[float, float]) -> ItemScores:
        """For the judge. Raises ScoreError where no answer has a score."""
        lines = ((item, repeat, score) for (item, repeat), score in self.scores.items())
        return item_scores(lines, self.clusters or None, bounds)


@dataclass(frozen=True, slots=True)
class Summary:
    """What one side shows by itself."""

    side: Side
    score: float | None
    """None where no answer has a score."""
    interval: Interval | None
    abstained: int
    """Answers without a score, of items x repeats."""
    clusters: int | None = None
    """Sources of the items, where items share some."""
    possible: tuple[float, float] | None = None
    """The lowest and the highest score that answers without one leave possible."""


def summaries(sides: Iterable[Side]) -> list[Summary]:
    """Scores with intervals, one for each side."""
    return [_summary(side) for side in sides]


def _summary(side: Side) -> Summary:
    if all(score is None for score in side.scores.values()):
        return Summary(side, None, None, len(side.scores))
    scores = side.item_scores(bounds([side]))
    interval, possible = score_interval(scores), score_range(scores)
    return Summary(side, scores.mean, interval, scores.missing, scores.sources, possible)


@dataclass(frozen=True, slots=True)
class ReportedSummary:
    """A score that came without its items."""

    reported: Reported
    interval: Interval | None
    """Wilson's, where the number of items is known."""


def read_leaderboard_scores(path: Path) -> list[ReportedSummary]:
    """Every score of a table of BFCL. Raises DataError."""
    return [ReportedSummary(each, _reported_interval(each)) for each in read_leaderboard(path)]


def _reported_interval(found: Reported) -> Interval | None:
    if found.score is None or found.items is None:
        return None
    return wilson(round(found.score * found.items), found.items)


def bounds(sides: Sequence[Side]) -> tuple[float, float]:
    """One scale for all: 0 to 1, wider where a reward goes beyond it."""
    known = [s for side in sides for s in side.scores.values() if s is not None]
    return min([0.0, *known]), max([1.0, *known])


def is_file(text: str) -> bool:
    """Whether a name on the command line means a file of results rather than a run."""
    if any(len(os.fsencode(part)) > LONGEST_PART for part in text.split("/")):
        return False
    path = _split(text)[0]
    return path.suffix in SUFFIXES or path.is_file() or bool(sample_logs(path))


def read_sides(
    text: str,
    format: str | None = None,
    metric: str | None = None,
    cluster: str | None = None,
) -> list[Side]:
    """The runs that `FILE` or `FILE@RUN` names, by one metric each.

    Without `metric` the file's only one is taken, or the one called `score`. Raises NoSuchResult,
    and what `read_results` raises.
    """
    path, run = _split(text)
    results = read_results(path, format, cluster)
    if run is not None:
        results = _of_run(path, results, run)
    return [_side(result) for result in _by_metric(path, results, metric)]


def read_all_metrics(
    text: str,
    format: str | None = None,
    metric: str | None = None,
    cluster: str | None = None,
) -> list[Side]:
    """The same by every metric of the file, or by the one named."""
    path, run = _split(text)
    results = read_results(path, format, cluster)
    if run is not None:
        results = _of_run(path, results, run)
    if metric is not None:
        results = _by_metric(path, results, metric)
    return [_side(result) for result in results]


def own_side(arm: Arm, on: str | None) -> Side:
    """A checkpoint of a run of the lab on its first reporting evaluation, or on the one named.

    Raises Unfair for an unfinished run, NotMeasured, DamagedRecord.
    """
    run = arm.run
    check_finished(run)
    record = find_record(run, on or _reporting(run))
    names = measured_checkpoints(run, record)
    checkpoint = arm.checkpoint or (names[-1] if names else BASE)
    measured = load_measured(run, record, checkpoint, f"{run}@{checkpoint}")
    table = measured.scores
    return Side(
        name=measured.name,
        format=OWN,
        benchmark=record.benchmark,
        metric="",
        checker=record.checker,
        scores={
            (item, repeat): None if isnan(score) else float(score)
            for item, row in zip(table.item_ids, table.scores, strict=True)
            for repeat, score in enumerate(row)
        },
        outputs=measured.outputs,
        clusters=dict(zip(table.item_ids, table.clusters or (), strict=False)),
        errors=sum(bool(error) for _, error, _ in measured.judged),
        configured=True,
        entrant=Entrant(arm, record, checkpoint, measured, read_manifest(run)),
    )


def _reporting(run: RunDirectory) -> str:
    for name, spec in read_experiment(run.spec).evaluate.items():
        if spec.role == "report":
            return name
    raise NotMeasured(f"{run} has no reporting evaluation", fix="name one with --on")


def named_apart(sides: Sequence[Side], files: Sequence[str]) -> list[Side]:
    """The sides under names of their own: the file is added where runs are called alike.

    `files` has the file that each side was read from, or the name of a run of the lab.
    """
    counts = Counter(side.name for side in sides)
    return [
        side if counts[side.name] == 1 else replace(side, name=f"{_split(file)[0]}@{side.name}")
        for side, file in zip(sides, files, strict=True)
    ]


def _split(text: str) -> tuple[Path, str | None]:
    """File and run of `FILE` or `FILE@RUN`; names of files may hold an @ as well."""
    head, at, run = text.rpartition("@")
    if (
        not at
        or Path(text).is_file()
        or not (Path(head).is_file() or Path(head).suffix in SUFFIXES or sample_logs(Path(head)))
    ):
        return Path(text), None
    return Path(head), run


def _of_run(path: Path, results: Sequence[Result], run: str) -> list[Result]:
    found = [result for result in results if result.run == run]
    if not found:
        fix = nearest(run, {result.run for result in results})
        raise NoSuchResult(f"holds no run {run!r}", file=path, fix=fix)
    return found


def _by_metric(path: Path, results: Sequence[Result], metric: str | None) -> list[Result]:
    known = list(dict.fromkeys(result.metric for result in results))
    if metric is None and len(known) > 1 and SCORE not in known:
        fix = "name one with --metric"
        raise NoSuchResult(f"has {len(known)} metrics: {', '.join(known)}", file=path, fix=fix)
    wanted = metric or (known[0] if len(known) == 1 else SCORE)
    if wanted not in known:
        raise NoSuchResult(f"holds no metric {wanted!r}", file=path, fix=nearest(wanted, known))
    return [result for result in results if result.metric == wanted]


def _side(result: Result) -> Side:
    keys = [(answer.item, answer.repeat) for answer in result.answers]
    if not keys:
        raise DataError("holds no answers", file=result.file)
    return Side(
        name=result.run,
        format=result.format,
        benchmark=result.benchmark,
        metric=result.metric,
        checker=result.checker,
        scores=dict(zip(keys, (answer.score for answer in result.answers), strict=True)),
        outputs={
            key: answer.output
            for key, answer in zip(keys, result.answers, strict=True)
            if answer.output is not None
        },
        errors=sum(bool(answer.error) for answer in result.answers),
        clusters=result.clusters,
        questions=result.questions,
        settings=result.settings,
        configured=result.configured,
        vary=MODEL,
        parts=result.parts,
        left_out=result.left_out,
        unfinished=result.unfinished,
        file=Path(result.file).absolute(),
    )
