"""Reads runs that other tools measured from files, as arms or as scores of their own.

A name on the command line is a run in a file (`FILE`, or `FILE@RUN` where it holds several) or a
run of the lab. Nothing is compared or printed here.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.compare.arm import Arm
from assay.data.loaded import DataError
from assay.data.results.column_mapping import Columns
from assay.data.results.foreign_result import SCORE, Result
from assay.data.results.lm_eval import sample_logs
from assay.data.results.readers import SUFFIXES, read_results
from assay.errors import InputError, nearest
from assay.judge.scores import ItemScores, item_scores

LONGEST_PART = 255
"""Bytes of a file's name; asking for a longer one is an error of the system."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading files of other tools.

    Raises InputError for an item without score, the other way round, and with a metric.
    """

    metric: str | None = None
    """None: the file's only metric, or the one called `score`."""
    cluster: str | None = None
    """Column or metadata key that names the source of an item; None: `cluster`."""
    item: str | None = None
    """The columns of item and score in files of any tool; None: a known format."""
    score: str | None = None
    higher_is_better: bool | None = None
    """Of the metric; None: as the file or the metric's name says."""

    def __post_init__(self) -> None:
        if self.item is self.score is None:
            return
        if self.item is None or self.score is None:
            field = "--item" if self.item is None else "--score"
            raise InputError("missing", field=field, fix="--item COLUMN --score COLUMN, both")
        if self.metric is not None:
            fix = "leave it out: --score names it"
            raise InputError("the columns are named", field="--metric", fix=fix)

    @property
    def columns(self) -> Columns | None:
        """The columns that are named."""
        if self.item is None or self.score is None:
            return None
        return Columns(self.item, self.score)


def is_file(text: str) -> bool:
    """Whether a name on the command line means a file of results rather than a run."""
    if any(len(os.fsencode(part)) > LONGEST_PART for part in text.split("/")):
        return False
    path = file_and_run(text)[0]
    return path.suffix in SUFFIXES or path.is_file() or bool(sample_logs(path))


def read_arms(text: str, options: ReadOptions = ReadOptions()) -> list[Arm]:
    """The runs that `FILE` or `FILE@RUN` names, by one metric each.

    Raises InputError for a run that is not whole or has no score, and what `read_results` raises.
    """
    path = file_and_run(text)[0]
    return [arm_of(each) for each in _by_metric(path, _read(text, options), options.metric)]


def arm_of(result: Result) -> Arm:
    """A result as an arm. Raises InputError for a run that is not whole, InputError."""
    if not result.answers:
        raise DataError("holds no answers", file=result.file)
    name = result.run
    if result.unfinished:
        fix = "only finished runs are compared"
        raise InputError(f"{name} is unfinished: {result.unfinished}", fix=fix)
    counts = Counter(answer.item for answer in result.answers)
    usual = Counter(counts.values()).most_common(1)[0][0]
    odd = [item for item, count in counts.items() if count != usual]
    if odd:
        problem = (
            f"{name} has {usual} answers to most items and {counts[odd[0]]} to {odd[0]!r}; "
            f"{len(odd)} of {len(counts)} items are uneven"
        )
        raise InputError(problem, fix="finish the run, or give each question an id of its own")
    outputs = {(a.item, a.repeat): a.output for a in result.answers if a.output is not None}
    return Arm(result.run, _scores(result), result, outputs)


def _scores(result: Result) -> ItemScores:
    """Scores of a result, on a scale from 0 to 1 or as wide as they are. Raises InputError."""
    known = [answer.score for answer in result.answers if answer.score is not None]
    bounds = min([0.0, *known]), max([1.0, *known])
    lines = ((answer.item, answer.repeat, answer.score) for answer in result.answers)
    return item_scores(lines, result.clusters or None, bounds)


def distinct_names(arms: Sequence[Arm], files: Sequence[str]) -> list[Arm]:
    """The arms under names of their own: the file is added where runs are called alike.

    `files` has the file that each arm was read from, or the name of a run of the lab.
    """
    counts = Counter(arm.name for arm in arms)
    return [
        arm if counts[arm.name] == 1 else replace(arm, name=f"{file_and_run(file)[0]}@{arm.name}")
        for arm, file in zip(arms, files, strict=True)
    ]


def _read(text: str, options: ReadOptions) -> list[Result]:
    """The runs that `FILE` or `FILE@RUN` names."""
    path, run = file_and_run(text)
    results = read_results(path, options.cluster, options.columns)
    if options.higher_is_better is not None:
        results = [replace(each, higher_is_better=options.higher_is_better) for each in results]
    if run is None:
        return results
    matches = [result for result in results if result.run == run]
    if not matches:
        fix = nearest(run, {result.run for result in results})
        raise InputError(f"holds no run {run!r}", file=path, fix=fix)
    return matches


def file_and_run(text: str) -> tuple[Path, str | None]:
    """File and run of `FILE` or `FILE@RUN`; names of files may hold an @ as well."""
    head, at, run = text.rpartition("@")
    if (
        not at
        or Path(text).is_file()
        or not (Path(head).is_file() or Path(head).suffix in SUFFIXES or sample_logs(Path(head)))
    ):
        return Path(text), None
    return Path(head), run


def _by_metric(path: Path, results: Sequence[Result], metric: str | None) -> list[Result]:
    known = list(dict.fromkeys(result.metric for result in results))
    if metric is None and len(known) > 1 and SCORE not in known:
        fix = "name one with --metric"
        raise InputError(f"has {len(known)} metrics: {', '.join(known)}", file=path, fix=fix)
    wanted = metric or (known[0] if len(known) == 1 else SCORE)
    # lm-eval itself writes `acc,none` for a metric without a filter.
    if wanted not in known and (plain := wanted.removesuffix(",none")) in known:
        wanted = plain
    if wanted not in known:
        words = any(wanted in result.left_out for result in results)
        problem = f"holds no metric {wanted!r}" + (" of numbers" if words else "")
        raise InputError(problem, file=path, fix=nearest(wanted, known))
    return [result for result in results if result.metric == wanted]
