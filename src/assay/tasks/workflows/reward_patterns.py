"""Sets the patterns of high- and low-reward programs side by side.

A completion is high or low by the other completions of its prompt, so that an easy problem does not
pass for a good program. What a pattern is worth is measured within the same groups, and judged in
one family. A pattern that earns more is no proof that it is the cause.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from assay.errors import InputError, nearest
from assay.judge.group_effects import Effect, Member, contrast, judged_effects
from assay.runs.history import History, Sample, find_record, samples_in
from assay.runs.records import RIGHT, outcome
from assay.runs.run_directory import RunDirectory
from assay.tasks.workflows.execution import DIFFICULTIES, fact, valid_program
from assay.tasks.workflows.programs.program import Shape, shape_of


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
    """Read them. Raises InputError, InputError and DamagedFile."""
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
        raise InputError(f"{run} has no samples", fix="name an evaluation: --evaluation NAME")
    stage = request.stage or stages[-1]
    steps = history.sampled(stage)
    if not steps:
        fix = nearest(stage, stages) if stages else "it recorded none"
        raise InputError(f"{run} has no samples of {stage!r}", fix=fix)
    wanted = [n for n in steps if (request.first or n) <= n <= (request.last or n)]
    if not wanted:
        asked = f"steps {request.first or 'the first'} to {request.last or 'the last'}"
        there = f"it has steps {steps[0]} to {steps[-1]}"
        raise InputError(f"{run} has no samples of {asked} of {stage!r}", fix=there)
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
    """The programs of samples or answers. Raises InputError where none has its facts."""
    if not any(fact(each.facts, "problem_type") for each in samples):
        fix = "patterns are of runs that write workflow programs"
        raise InputError(f"{what} hold no programs", fix=fix)
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
        shape=shape_of(source) if source is not None else None,
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


Kind = Literal["valid", "operator", "combination", "calls", "structure", "length", "tree"]
Key = tuple[Kind, str]
EQUAL = 1e-9
"""Rewards closer to the mean of their group than this are on neither side."""
MOST_VALUES = 12
"""Combinations and trees that are looked at: the commonest."""
MOST_CALLS = 4
"""As many calls or more are one pattern."""
STRUCTURES = ("loop", "branch", "ensemble", "review")
NO_OPERATOR = "–"
"""The combination of a program that calls none."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One property of programs."""

    kind: Kind
    value: str
    programs: int
    """With a reward, on either side or on none."""
    high: int
    low: int
    reward: float | None
    """The mean over its programs, whatever their problems were."""
    effect: Effect
    """Reward with it minus reward without it, within groups that hold both."""


@dataclass(frozen=True, slots=True)
class Side:
    """The completions above, or below, the mean of their groups."""

    completions: int
    valid: int
    reward: float | None
    calls: float | None
    lines: float | None
    cost: float | None
    """Mean over those whose cost is known."""
    program: str
    """The shortest one of the shape that this side has most more of than the other; "" for none."""
    tree: str
    """The fingerprint of that shape; "" where these are no valid programs."""
    error: str
    """What these have wrong."""
    share: float | None
    """Of the side's completions, those of that shape."""
    other_share: float | None
    """Of the other side's."""


@dataclass(frozen=True, slots=True)
class RewardPatterns:
    """Both sides, and the patterns of valid programs."""

    high: Side
    low: Side
    groups: int
    """Groups with at least two rewards."""
    with_signal: int
    """Those of them whose rewards differ; only they have sides."""
    patterns: tuple[Pattern, ...]
    left_out: Mapping[str, int]
    """Rarer combinations and trees that are not looked at, by kind."""


def reward_patterns(programs: Sequence[RecordedProgram]) -> RewardPatterns:
    """Everything that the rewards say of patterns."""
    sides = sides_of(programs)
    bounds = reward_bounds(programs)
    marks, left_out = marks_of([p.shape for p in programs if p.shape is not None])
    tables = {key: table_of(programs, mark) for key, mark in marks.items()}
    effects = judged_effects({key: contrast(t, bounds) for key, t in tables.items()})
    found = [
        pattern_of(key, programs, marks[key], sides, effect) for key, effect in effects.items()
    ]
    groups = grouped_rewards(programs)
    high, low = ([p for p in programs if sides.get(p.id) == sign] for sign in (1, -1))
    return RewardPatterns(
        side_of(high, low),
        side_of(low, high),
        len(groups),
        sum(max(g) - min(g) > EQUAL for g in groups.values()),
        tuple(found),
        left_out,
    )


def grouped_rewards(programs: Sequence[RecordedProgram]) -> dict[str, list[float]]:
    """The rewards of each group with at least two."""
    groups: dict[str, list[float]] = {}
    for program, reward in judged(programs):
        groups.setdefault(program.group, []).append(reward)
    return {group: rewards for group, rewards in groups.items() if len(rewards) > 1}


def sides_of(programs: Sequence[RecordedProgram]) -> dict[str, int]:
    """1 for a completion above the mean of its group, -1 for one below, by id."""
    means = {group: float(np.mean(r)) for group, r in grouped_rewards(programs).items()}
    apart = {p.id: r - means[p.group] for p, r in judged(programs) if p.group in means}
    return {id_: 1 if gap > 0 else -1 for id_, gap in apart.items() if abs(gap) > EQUAL}


Mark = Callable[[Shape | None], bool | None]
"""Whether a program has a pattern; None where the question does not arise: only whether a
completion is a valid program is asked of all."""


def marks_of(shapes: Sequence[Shape]) -> tuple[dict[Key, Mark], dict[str, int]]:
    """The patterns that are looked at, and how many values of a kind are too rare for it."""
    properties: dict[Kind, Callable[[Shape], Sequence[str]]] = {
        "operator": lambda shape: [*shape.operators],
        "combination": lambda shape: [combination_of(shape)],
        "calls": lambda shape: [calls_of(shape)],
        "structure": lambda shape: shape.structure,
        "length": length_classes(shapes),
        "tree": lambda shape: [shape.fingerprint],
    }
    marks: dict[Key, Mark] = {("valid", "valid"): lambda shape: shape is not None}
    left_out: dict[str, int] = {}
    for kind, values_of in properties.items():
        counts = Counter(value for shape in shapes for value in values_of(shape))
        values = commonest(counts, kind)
        if len(counts) > len(values):
            left_out[kind] = len(counts) - len(values)
        for value in values:
            marks[kind, value] = lambda shape, value=value, of=values_of: (
                None if shape is None else value in of(shape)
            )
    return marks, left_out


def commonest(counts: Mapping[str, int], kind: Kind) -> list[str]:
    """The values of a kind in their order; of combinations and trees the commonest."""
    if kind == "structure":
        return [name for name in STRUCTURES if name in counts]
    if kind in ("combination", "tree"):
        return sorted(counts, key=lambda value: (-counts[value], value))[:MOST_VALUES]

    def begins(value: str) -> int:
        """The number that a value begins with, behind a sign; 0 for none."""
        found = re.match(r"≤?(\d+)", value)
        return int(found[1]) if found else 0

    return sorted(counts, key=lambda value: (begins(value), value))


def combination_of(shape: Shape) -> str:
    """The operators that a program calls."""
    return shape.combination or NO_OPERATOR


def calls_of(shape: Shape) -> str:
    """The number of calls in a source."""
    return str(shape.calls) if shape.calls < MOST_CALLS else f"{MOST_CALLS}+"


def length_classes(shapes: Sequence[Shape]) -> Callable[[Shape], Sequence[str]]:
    """The third of all programs that one belongs to by its lines, such as "12–15"."""
    lines = np.array([shape.lines for shape in shapes] or [0])
    low, high = (int(cut) for cut in np.quantile(lines, (1 / 3, 2 / 3), method="lower"))

    def third(shape: Shape) -> Sequence[str]:
        if shape.lines <= low:
            return [f"≤{low}"]
        middle = f"{low + 1}–{high}" if low + 1 < high else f"{high}"
        return [middle] if shape.lines <= high else [f"{high + 1}+"]

    return third


def table_of(programs: Sequence[RecordedProgram], mark: Mark) -> list[Member]:
    """The judged completions of which the question arises."""
    asked = [(program, reward, mark(program.shape)) for program, reward in judged(programs)]
    return [Member(r, m, p.group, p.prompt) for p, r, m in asked if m is not None]


def pattern_of(
    key: Key,
    programs: Sequence[RecordedProgram],
    mark: Mark,
    sides: Mapping[str, int],
    effect: Effect,
) -> Pattern:
    """A pattern with its counts."""
    own = [(program, reward) for program, reward in judged(programs) if mark(program.shape)]
    at = Counter(sides.get(program.id) for program, _ in own)
    return Pattern(*key, len(own), at[1], at[-1], mean([r for _, r in own]), effect)


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return float(np.mean(values)) if values else None


def side_of(programs: Sequence[RecordedProgram], others: Sequence[RecordedProgram]) -> Side:
    """One side, with the program that stands for it beside the `others`."""
    shapes = [p.shape for p in programs if p.shape is not None]
    kind = typical_kind(programs, others)
    own = [p for p in programs if kind_of(p) == kind]
    shown = min(own, key=lambda p: (len(p.text), p.text), default=None)
    return Side(
        completions=len(programs),
        valid=len(shapes),
        reward=mean([reward for _, reward in judged(programs)]),
        calls=mean([float(shape.calls) for shape in shapes]),
        lines=mean([float(shape.lines) for shape in shapes]),
        cost=mean([p.cost for p in programs if p.cost is not None]),
        program=shown.text if shown else "",
        tree=shown.shape.fingerprint if shown and shown.shape else "",
        error=shown.error if shown and shown.shape is None else "",
        share=mean([float(kind_of(each) == kind) for each in programs]),
        other_share=mean([float(kind_of(each) == kind) for each in others]),
    )


ProgramKind = tuple[str, str]


def kind_of(program: RecordedProgram) -> ProgramKind:
    """The shape of a program; of a completion that is no valid one, its error."""
    return ("", program.shape.fingerprint) if program.shape else ("error", program.error)


def typical_kind(
    programs: Sequence[RecordedProgram], others: Sequence[RecordedProgram]
) -> ProgramKind | None:
    """The kind whose share exceeds that among the others by most, so that what is common on both
    sides stands for neither; of equal ones the first in the alphabet. None without programs."""
    own, beside = (Counter(map(kind_of, side)) for side in (programs, others))

    def excess(kind: ProgramKind) -> float:
        return own[kind] / len(programs) - beside[kind] / max(len(others), 1)

    return min(own, key=lambda kind: (-excess(kind), kind), default=None)


def shown_first(patterns: Sequence[Pattern]) -> Iterator[Pattern]:
    """Patterns with a verdict, the largest difference first."""
    found = [p for p in patterns if p.effect.verdict != "undecided"]
    yield from sorted(found, key=lambda p: -abs(p.effect.contrast.difference or 0.0))
