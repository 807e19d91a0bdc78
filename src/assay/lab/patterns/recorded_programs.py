"""Reads the programs that a run recorded, of a stage's steps or of an evaluation.

Programs are parsed and never run; nothing is judged again, and no model is loaded.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import InputError, nearest
from assay.experiment.read_file import read_experiment
from assay.runs.history import (
    NothingRecorded,
    NotMeasured,
    find_record,
    measured_checkpoints,
    sample_files,
)
from assay.runs.records import CLUSTER, FACTS, OUTCOME, RIGHT, VISIT, outcome, read_columns
from assay.runs.run_directory import RunDirectory
from assay.tasks.workflows.facts import DIFFICULTIES, fact, valid_program
from assay.tasks.workflows.programs.shapes import Shape, known_shape

STEP = "step-"


@dataclass(frozen=True, slots=True)
class PatternRequest:
    """Which programs of a run are looked at."""

    stage: str | None = None
    """None: the last stage with samples."""
    first: int | None = None
    last: int | None = None
    """Steps of the stage, both included; None: all."""
    evaluation: str | None = None
    """The answers of an evaluation instead of a stage's samples."""
    checkpoint: str | None = None
    """Of the evaluation; None: the last one measured."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where programs come from."""

    stage: str | None
    first: int | None
    last: int | None
    evaluation: str | None
    checkpoint: str | None


@dataclass(frozen=True, slots=True)
class RecordedProgram:
    """One completion."""

    id: str
    prompt: str
    """The row or item; for items that share a source, the source: the cluster."""
    group: str
    """The visit to the row, or the item: completions that are compared with each other."""
    problem_type: str
    reward: float | None
    """None for an abstention."""
    passed: bool
    text: str
    """The program; of a completion without one all that was written."""
    error: str
    shape: Shape | None
    """None of a completion that is no valid program."""
    cost: float | None
    difficulty: Mapping[str, float]
    """What the row says of it, by the names of `facts.DIFFICULTIES`."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The programs of a run that a request names."""

    source: Source
    programs: tuple[RecordedProgram, ...]


def recorded_programs(run: RunDirectory, request: PatternRequest) -> Recorded:
    """Read them. Raises NothingRecorded, NotMeasured, InputError and DamagedRecord."""
    if request.evaluation is not None:
        refuse_both(request)
        return evaluated_programs(run, request)
    if request.checkpoint is not None:
        fix = "give --evaluation too"
        raise InputError("a checkpoint is of an evaluation", field="--checkpoint", fix=fix)
    return sampled_programs(run, request)


def refuse_both(request: PatternRequest) -> None:
    """Raise InputError for steps or a stage beside an evaluation."""
    named = {"--stage": request.stage, "--from": request.first, "--to": request.last}
    for option, value in named.items():
        if value is not None:
            problem = "an evaluation has neither stage nor steps"
            raise InputError(problem, field=option, fix="leave it out, or leave out --evaluation")


def sampled_programs(run: RunDirectory, request: PatternRequest) -> Recorded:
    """The samples of a stage's steps."""
    stage = request.stage or last_stage(run)
    files = {step_of(file): file for file in sample_files(run, stage, None)}
    wanted = [
        step for step in sorted(files) if (request.first or step) <= step <= (request.last or step)
    ]
    if not wanted:
        steps = f"steps {request.first or 'the first'} to {request.last or 'the last'}"
        there = f"it has steps {min(files)} to {max(files)}" if files else "it recorded none"
        raise NothingRecorded(f"{run} has no samples of {steps} of {stage!r}", fix=there)
    columns = ["sample_id", "row_id", "sample", "text", "reward"]
    lines = [
        line for step in wanted for line in lines_of(files[step], columns, (VISIT, FACTS, OUTCOME))
    ]
    refuse_without_programs(lines, f"the samples of {stage!r} of {run}")
    found = [sampled_program(line) for line in sorted(lines, key=sample_place)]
    return Recorded(Source(stage, wanted[0], wanted[-1], None, None), tuple(found))


def sample_place(line: Mapping[str, Any]) -> tuple[str, int]:
    """The order of samples: by row, then as they were drawn."""
    return line["row_id"], line["sample"]


def step_of(file: Path) -> int:
    """The step of a file of samples."""
    return int(file.stem.removeprefix(STEP))


def last_stage(run: RunDirectory) -> str:
    """The last stage of the run that recorded samples. Raises NothingRecorded."""
    folder = run.path / "samples"
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    stages = [stage for stage in read_experiment(run.spec).stage if stage in there]
    if not stages:
        raise NothingRecorded(f"{run} has no samples", fix="name an evaluation: --evaluation NAME")
    return stages[-1]


def evaluated_programs(run: RunDirectory, request: PatternRequest) -> Recorded:
    """The answers of an evaluation of one checkpoint."""
    record = find_record(run, request.evaluation or "")
    measured = measured_checkpoints(run, record)
    checkpoint = request.checkpoint or (measured[-1] if measured else "")
    if checkpoint not in measured:
        fix = nearest(checkpoint, measured) if measured else "it has none yet"
        raise NotMeasured(f"{record.name!r} of {run} did not measure {checkpoint!r}", fix=fix)
    columns = ["sample_id", "item_id", "repeat", "output", "score", "error"]
    lines = lines_of(record.file(run.evaluations, checkpoint), columns, (FACTS, CLUSTER))
    refuse_without_programs(lines, f"the answers of {record.name!r} of {run}")
    lines.sort(key=lambda line: (line["item_id"], line["repeat"]))
    found = tuple(evaluated_program(line) for line in lines)
    return Recorded(Source(None, None, None, record.name, checkpoint), found)


def lines_of(file: Path, columns: Sequence[str], optional: Sequence[str]) -> list[dict[str, Any]]:
    """The lines of a file with their facts read. Raises DamagedRecord."""
    found = read_columns(file, columns, optional)
    lines = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    return [{**line, FACTS: json.loads(line.get(FACTS) or "{}")} for line in lines]


def refuse_without_programs(lines: Sequence[Mapping[str, Any]], what: str) -> None:
    """Raise NothingRecorded where no line has the facts of a program."""
    if not any(fact(line[FACTS], "problem_type") for line in lines):
        fix = "patterns are of runs of the task workflows"
        raise NothingRecorded(f"{what} hold no programs", fix=fix)


def sampled_program(line: Mapping[str, Any]) -> RecordedProgram:
    """One sample."""
    reward = line["reward"]
    right = outcome(reward, "", line.get(OUTCOME)) == RIGHT
    group = f"{line['row_id']}\n{line.get(VISIT) or 0}"
    return program_of_line(line, (line["row_id"], group), line["text"], reward, right)


def evaluated_program(line: Mapping[str, Any]) -> RecordedProgram:
    """One answer. A workflow's reward names everything but a right answer as an error, and its
    value alone says little: cost takes something off a right answer too."""
    score, item = line["score"], line["item_id"]
    right = score is not None and not line["error"]
    return program_of_line(line, (line.get(CLUSTER) or item, item), line["output"], score, right)


def program_of_line(
    line: Mapping[str, Any],
    place: tuple[str, str],
    text: str,
    reward: float | None,
    right: bool,
) -> RecordedProgram:
    """A line of samples or answers; `place` is its prompt and its group."""
    facts = line[FACTS]
    source = valid_program(facts)
    cost = fact(facts, "cost")
    known = {name: fact(facts, name) for name in DIFFICULTIES}
    return RecordedProgram(
        id=line["sample_id"],
        prompt=place[0],
        group=place[1],
        problem_type=str(fact(facts, "problem_type") or ""),
        reward=reward,
        passed=right,
        text=str(fact(facts, "program") or text),
        error=str(fact(facts, "error") or ""),
        shape=known_shape(source) if source is not None else None,
        cost=cost if isinstance(cost, float | int) else None,
        difficulty={name: float(v) for name, v in known.items() if isinstance(v, float | int)},
    )


def judged(programs: Sequence[RecordedProgram]) -> Iterator[tuple[RecordedProgram, float]]:
    """The programs that have a reward, with it."""
    for program in programs:
        if program.reward is not None:
            yield program, program.reward


def reward_bounds(programs: Sequence[RecordedProgram]) -> tuple[float, float]:
    """The scale that holds all rewards, 0 and 1."""
    rewards = [reward for _, reward in judged(programs)]
    return min([0.0, *rewards]), max([1.0, *rewards])
