"""Finds the evaluation records of a run, their checkpoints and their answers.

Scores are read in `records` and compared in `compare.judged_table`.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from assay.errors import InputError, nearest
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.read_file import read_experiment
from assay.runs.checkpoints import step_name
from assay.runs.records import FACTS, OUTCOME, DamagedRecord, EvaluationRecord, read_columns
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import FIX, read_json
from assay.runs.run_names import checkpoint_steps

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""An evaluation's name begins the name of its folder."""


class NotMeasured(InputError):
    """An evaluation or a checkpoint without a finished record."""


def evaluation_records(run: RunDirectory) -> list[EvaluationRecord]:
    """The evaluations of the run in the order of its file, then those added later."""
    found = []
    for file in sorted(run.evaluations.glob("*/evaluation.json")):
        found.append(_read_record(file))
    order = list(read_experiment(run.spec).evaluate)
    return sorted(found, key=lambda r: order.index(r.name) if r.name in order else len(order))


def _read_record(file: Path) -> EvaluationRecord:
    try:
        values = read_json(file, dict, DamagedRecord)
        del values["schema"]
        record = EvaluationRecord(**{**values, "items": tuple(values["items"])})
        _check(record)
    except (KeyError, TypeError) as error:
        raise DamagedRecord(f"cannot be read: {error}", file=file, fix=FIX) from error
    return record


def _check(record: EvaluationRecord) -> None:
    """Raise TypeError for a field of another kind than records have."""
    for name in ("name", "benchmark", "role", "items_hash", "rendering", "checker"):
        if not isinstance(getattr(record, name), str):
            raise TypeError(f"{name!r} is no text")
    for name in ("sampling", "options"):
        if not isinstance(getattr(record, name), dict):
            raise TypeError(f"{name!r} is no table")
    if not isinstance(record.fewer, dict) or not all(
        type(count) is int and count > 0 for count in record.fewer.values()
    ):
        raise TypeError("'fewer' is no table of numbers of items")
    if not _FILE_NAME.fullmatch(record.name):
        raise TypeError(f"{record.name[:40]!r} is no name of an evaluation")
    if type(record.repeats) is not int or not all(isinstance(item, str) for item in record.items):
        raise TypeError("'repeats' is no number, or 'items' are no names")


def read_answers(
    run: RunDirectory, record: EvaluationRecord, checkpoint: str
) -> list[dict[str, Any]]:
    """The lines of one finished record, without their tokens. Raises DamagedRecord.

    Lines of conversations have `messages`, JSON in OpenAI's format.
    """
    columns = ["sample_id", "item_id", "repeat", "output", "completion_tokens", "prompt_tokens"]
    columns += ["score", "parts", "error", "why", "ended"]
    found = read_columns(
        record.file(run.evaluations, checkpoint), columns, ["messages", FACTS, OUTCOME]
    )
    return [dict(zip(found, line, strict=True)) for line in zip(*found.values(), strict=True)]


def reported_answers(
    run: RunDirectory, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, str, str, list[dict[str, Any]]]]:
    """Benchmark, evaluation, checkpoint and answers of all reporting records of wanted benchmarks.

    Raises DamagedRecord.
    """
    for record in evaluation_records(run):
        if record.role == "report" and wanted(record.benchmark):
            for checkpoint in measured_checkpoints(run, record):
                lines = read_answers(run, record, checkpoint)
                yield record.benchmark, record.name, checkpoint, lines


def find_record(run: RunDirectory, on: str) -> EvaluationRecord:
    """The run's record of an evaluation, by its name, its benchmark or its folder.

    Raises NotMeasured when there is none or more than one.
    """
    records = evaluation_records(run)
    by_folder = [r for r in records if r.key == on]
    by_name = [r for r in records if r.name == on]
    found = by_folder or by_name or [r for r in records if r.benchmark == on]
    if not found:
        known = [r.name for r in records]
        fix = nearest(on, known) if known else "it has none yet"
        raise NotMeasured(f"{run} has no evaluation {on!r}", fix=fix)
    if len(found) > 1:
        fix = "name one: " + ", ".join(r.key for r in found)
        raise NotMeasured(f"{run} has {len(found)} records of {on!r}", fix=fix)
    return found[0]


def measured_checkpoints(run: RunDirectory, record: EvaluationRecord) -> list[str]:
    """Checkpoints with a finished record: the base first, then by stage and step."""
    stages = ["base", *read_experiment(run.spec).stage]
    folder = record.file(run.evaluations, "base").parent
    names = [file.stem for file in folder.glob("*.parquet") if not file.name.startswith(".")]
    return sorted(names, key=partial(_place, stages))


def known_checkpoints(run: RunDirectory) -> list[str]:
    """Checkpoints that some record of the run is of, or that it keeps: the base, then in order."""
    stages = ["base", *read_experiment(run.spec).stage]
    found = {name for each in evaluation_records(run) for name in measured_checkpoints(run, each)}
    for stage in stages[1:]:
        found |= {f"{stage}.{step_name(step)}" for step in checkpoint_steps(run, stage)}
    return sorted(found, key=partial(_place, stages))


def _place(stages: list[str], name: str) -> tuple[int, int]:
    reference = parse_checkpoint(name)
    if reference is None or (reference.stage or "base") not in stages:
        raise NotMeasured(f"a record is named {name!r}", fix="the experiment has no such stage")
    return stages.index(reference.stage or "base"), reference.step or 0
