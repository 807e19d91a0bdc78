"""Reads what a model answered in a run: samples of a stage's steps, or an evaluation's record.

Both become the same `RecordedAnswer`, so that rows and pass rates can be made of either. Nothing is
judged again.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.data.files import sha256_file
from assay.data.hashing import canonical_json, sha256_text
from assay.data.row import Message
from assay.errors import InputError, nearest
from assay.experiment.checkpoint_reference import checkpoint_name, parse_checkpoint
from assay.runs.records import (
    FACTS,
    NAMES,
    PROMPT,
    read_columns,
    read_samples,
    stored_messages,
)
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import RunNotFound, find_run, read_run_name, resolve_checkpoint
from assay.runs.status import read_status


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One completion of a row, or one answer to an item."""

    id: str
    row: str
    """The row or the item."""
    group: int
    """The visit of the stage to the row; 0 in evaluations, and in files that do not say it."""
    text: str
    messages: tuple[Message, ...]
    """All that followed the prompt, in an episode of several turns; else empty."""
    reward: float | None
    """The reward or the score; None for an abstention."""
    parts: dict[str, float]
    ended: str
    step: int | None
    """The step that it was sampled for; None in evaluations."""
    facts: dict[str, str | float] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()
    """As they were sampled; none where another program answered."""
    prompt: str | None = None
    """See `records.prompt_sha256`."""


class NothingRecorded(InputError):
    """A run that holds no such answers."""


def finished_run(root: Path, name: str) -> RunDirectory:
    """The run called `name`. Raises RunNotFound, and InputError for one that is still running, or a
    name with a checkpoint.
    """
    reference = read_run_name(root, name)
    if reference.checkpoint is not None:
        problem = f"run:{name} names a checkpoint"
        fix = f"write run:{name.partition('@')[0]}, and the stage or evaluation in samples"
        raise InputError(problem, fix=fix)
    run = find_run(root, reference)
    if read_status(run.path).status == "running":
        raise InputError(f"{run} is still running", fix="wait for its end")
    return run


def sample_files(run: RunDirectory, stage: str, steps: Sequence[int] | None) -> list[Path]:
    """The files of a stage's samples: of these steps, or of all. Raises NothingRecorded."""
    folder = run.path / "samples"
    stages = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    if not stages:
        raise NothingRecorded(f"{run} has no samples", fix="sft stages and stored rows record none")
    if stage not in stages:
        raise NothingRecorded(f"{run} has no samples of {stage!r}", fix=nearest(stage, stages))
    if steps is None:
        return sorted((folder / stage).glob("step-*.parquet"))
    files = [run.samples(stage, step) for step in steps]
    for step, file in zip(steps, files, strict=True):
        if not file.is_file():
            there = sorted(int(p.stem.removeprefix("step-")) for p in (folder / stage).iterdir())
            fix = f"it has steps {there[0]} to {there[-1]}"
            raise NothingRecorded(f"{run} has no samples of step {step} of {stage!r}", fix=fix)
    return files


def record_file(run: RunDirectory, evaluation: str, checkpoint: str) -> Path:
    """The record of an evaluation of one checkpoint. Raises NothingRecorded, RunNotFound."""
    folders = list(run.evaluations.iterdir()) if run.evaluations.is_dir() else []
    named = [p for p in folders if evaluation in (p.name, p.name.rpartition("-")[0])]
    if not named:
        fix = nearest(evaluation, {p.name.rpartition("-")[0] for p in folders})
        raise NothingRecorded(f"{run} has no evaluation {evaluation!r}", fix=fix)
    reference = parse_checkpoint(checkpoint)
    if reference is None:
        raise RunNotFound(f"{checkpoint!r} is not a checkpoint", fix="write STAGE.last or base")
    name = checkpoint_name(resolve_checkpoint(run, reference))
    files = [file for p in named if (file := p / f"{name}.parquet").is_file()]
    if len(files) != 1:
        found = "no record" if not files else f"{len(files)} records"
        known = sorted(f"{p.name}" for p in named)
        problem = f"{run} has {found} of {evaluation!r} for {name}"
        raise NothingRecorded(problem, fix="its records are in " + ", ".join(known))
    return files[0]


def files_sha256(run: RunDirectory, files: Sequence[Path]) -> str:
    """One hash of files of a run, by name and content."""
    named = [[file.relative_to(run.path).as_posix(), sha256_file(file)] for file in files]
    return sha256_text(canonical_json(named))


def sampled_answers(files: Sequence[Path]) -> list[RecordedAnswer]:
    """The completions of several steps. Raises DamagedRecord."""
    return [_sampled(line) for file in files for line in read_samples(file)]


def _sampled(line: dict[str, Any]) -> RecordedAnswer:
    return RecordedAnswer(
        id=line["sample_id"],
        row=line["row_id"],
        group=line.get("visit") or 0,
        text=line["text"],
        messages=stored_messages(line),
        reward=line["reward"],
        parts=json.loads(line["parts"]),
        ended=line["ended"],
        step=line["step"],
        **_sampled_so(line),
    )


def _sampled_so(line: dict[str, Any]) -> dict[str, Any]:
    """Facts, tokens and prompt of a line; files of older versions hold less."""
    return {
        "facts": json.loads(line.get(FACTS) or "{}"),
        "tokens": tuple(line["tokens"] or ()),
        "prompt": line.get(PROMPT),
    }


def evaluated_answers(file: Path) -> list[RecordedAnswer]:
    """The answers of one record. Raises DamagedRecord."""
    wanted = ["sample_id", "item_id", "output", "score", "parts", "ended", "tokens"]
    columns = read_columns(file, wanted, (FACTS, PROMPT, *NAMES))
    lines = [dict(zip(columns, v, strict=True)) for v in zip(*columns.values(), strict=True)]
    return [
        RecordedAnswer(
            id=line["sample_id"],
            row=line["item_id"],
            group=0,
            text=line["output"],
            messages=stored_messages(line),
            reward=line["score"],
            parts=json.loads(line["parts"]),
            ended=line["ended"],
            step=None,
            **_sampled_so(line),
        )
        for line in lines
    ]
