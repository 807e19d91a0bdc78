"""The programs that a run recorded, of a stage's steps or of an evaluation.

Programs are parsed and never run; nothing is judged again, and no model is loaded.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay.errors import InputError, nearest
from assay.runs.history import History, NothingRecorded, Sample, find_record, samples_in
from assay.runs.records import RIGHT, outcome
from assay.runs.run_directory import RunDirectory
from assay.tasks.workflows.facts import DIFFICULTIES, fact, valid_program
from assay.tasks.workflows.programs.shapes import Shape, known_shape


@dataclass(frozen=True, slots=True)
class PatternRequest:
    """The programs of a run that are looked at."""

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
    """The programs of a run that a request names, which then names all that it left open."""

    source: PatternRequest
    programs: tuple[RecordedProgram, ...]


def recorded_programs(run: RunDirectory, request: PatternRequest) -> Recorded:
    """Read them. Raises NothingRecorded, InputError and DamagedRecord."""
    if request.evaluation is not None:
        named = {"--stage": request.stage, "--from": request.first, "--to": request.last}
        for option, value in named.items():
            if value is not None:
                problem = "an evaluation has neither stage nor steps"
                fix = "leave it out, or leave out --evaluation"
                raise InputError(problem, field=option, fix=fix)
        return evaluated_programs(run, request)
    if request.checkpoint is not None:
        fix = "give --evaluation too"
        raise InputError("a checkpoint is of an evaluation", field="--checkpoint", fix=fix)
    return sampled_programs(run, request)


def sampled_programs(run: RunDirectory, request: PatternRequest) -> Recorded:
    """The samples of a stage's steps, by row and as they were drawn."""
    history = History(run)
    stages = [stage for stage in history.experiment.stage if history.sampled(stage)]
    if request.stage is None and not stages:
        raise NothingRecorded(f"{run} has no samples", fix="name an evaluation: --evaluation NAME")
    stage = request.stage or stages[-1]
    steps = history.sampled(stage)
    if not steps:
        fix = nearest(stage, stages) if stages else "it recorded none"
        raise NothingRecorded(f"{run} has no samples of {stage!r}", fix=fix)
    wanted = [n for n in steps if (request.first or n) <= n <= (request.last or n)]
    if not wanted:
        asked = f"steps {request.first or 'the first'} to {request.last or 'the last'}"
        there = f"it has steps {steps[0]} to {steps[-1]}"
        raise NothingRecorded(f"{run} has no samples of {asked} of {stage!r}", fix=there)
    samples = [each for step in wanted for each in history.samples(stage, step)]
    samples.sort(key=lambda each: (each.row, each.number))
    source = PatternRequest(stage, wanted[0], wanted[-1])
    return recorded(source, samples, f"the samples of {stage!r} of {run}")


def evaluated_programs(run: RunDirectory, request: PatternRequest) -> Recorded:
    """The answers of an evaluation of one checkpoint, by item and repeat."""
    record = find_record(run, request.evaluation or "")
    measured = History(run).measured(record)
    checkpoint = request.checkpoint or (measured[-1] if measured else "")
    if checkpoint not in measured:
        fix = nearest(checkpoint, measured) if measured else "it has none yet"
        raise InputError(f"{record.name!r} of {run} did not measure {checkpoint!r}", fix=fix)
    answers = samples_in(record.file(run.evaluations, checkpoint))
    source = PatternRequest(evaluation=record.name, checkpoint=checkpoint)
    ordered = sorted(answers, key=lambda each: (each.row, each.number))
    return recorded(source, ordered, f"the answers of {record.name!r} of {run}")


def recorded(source: PatternRequest, samples: Sequence[Sample], what: str) -> Recorded:
    """The programs of samples or answers. Raises NothingRecorded where none has its facts."""
    if not any(fact(each.facts, "problem_type") for each in samples):
        fix = "patterns are of runs that write workflow programs"
        raise NothingRecorded(f"{what} hold no programs", fix=fix)
    return Recorded(source, tuple(map(program_of_sample, samples)))


def program_of_sample(sample: Sample) -> RecordedProgram:
    """One completion.

    An evaluation names everything but a right answer as an error, and its score alone says little:
    cost takes something off a right answer too.
    """
    facts, cost = sample.facts, fact(sample.facts, "cost")
    source = valid_program(facts)
    known = {name: fact(facts, name) for name in DIFFICULTIES}
    if sample.step is None:
        prompt, group = sample.cluster or sample.row, sample.row
        right = sample.reward is not None and not sample.error
    else:
        prompt, group = sample.row, f"{sample.row}\n{sample.visit}"
        right = outcome(sample.reward, "", sample.outcome or None) == RIGHT
    return RecordedProgram(
        id=sample.id,
        prompt=prompt,
        group=group,
        problem_type=str(fact(facts, "problem_type") or ""),
        reward=sample.reward,
        passed=right,
        text=str(fact(facts, "program") or sample.text),
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
