"""Which operators programs use, by type of problem and by difficulty, and whether that pays.

Where rows do not say how hard they are, one half of each prompt's completions measures its pass
rate and the other half is counted: a group that used a good operator by chance passes more often,
and would otherwise seem to be an easy problem on which the policy chooses that operator.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from assay.judge.dependence import Dependence, Table, dependence_tests
from assay.judge.group_effects import (
    FEWEST_CLUSTERS,
    Effect,
    Member,
    contrast,
    judged_effects,
)
from assay.judge.intervals import Estimate, grouped
from assay.tasks.workflows.execution import DIFFICULTIES
from assay.tasks.workflows.reward_patterns import (
    MOST_VALUES,
    RecordedProgram,
    combination_of,
    judged,
    mean,
    reward_bounds,
)

PASS_RATE = "pass_rate"
THIRDS = ("hard", "medium", "easy")
"""Pass rates below 1/3, below 2/3, and above."""
LAST_LEVEL = 5
"""Levels above it are one."""

Choice = tuple[Literal["operator", "combination"], str]
"""An operator that a program calls among others, or all that it calls."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One choice on one kind of problem."""

    used: int
    """Programs that made the choice."""
    programs: int
    share: Estimate
    reward: float | None
    cost: float | None
    """Means over the programs that made it; None where there are none, or nothing is known."""
    effect: Effect | None
    """Reward with the choice minus reward without it, within groups; None where not asked."""


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """One choice on all kinds of problems."""

    kind: Literal["operator", "combination"]
    value: str
    cells: Mapping[str, Cell]
    """Kinds of problems of which there is no program have no cell."""


@dataclass(frozen=True, slots=True)
class ChoiceTable:
    """Choices by kinds of problems."""

    columns: tuple[str, ...]
    rows: tuple[ChoiceRow, ...]
    left_out: int
    """Rarer combinations."""


@dataclass(frozen=True, slots=True)
class BestChoice:
    """Whether the combination chosen most on a type is the one that pays best."""

    problem_type: str
    chosen: str
    share: float
    other: str | None
    """The combination that pays most in groups that hold both; None where none is compared."""
    effect: Effect | None
    """Reward of the other one minus reward of the chosen one."""
    verdict: Literal["another", "chosen", "undecided", "alone"]
    """Another pays more; the chosen one pays more than each that is compared; neither is shown;
    nothing else was chosen."""
    needed: int | None
    """Further prompts at which the differences would show; None for more than can be planned."""
    rare: int
    """Combinations that are not compared: too few prompts hold them beside the chosen one."""


@dataclass(frozen=True, slots=True)
class OperatorChoice:
    """All about choices."""

    by_type: ChoiceTable
    by_difficulty: ChoiceTable
    difficulty: str
    """What says how hard a problem is: a field of the row, or PASS_RATE."""
    measured: int
    """Programs whose difficulty is known, and that are counted."""
    on_type: Dependence
    on_difficulty: Dependence
    """Within types."""
    best: tuple[BestChoice, ...]


def operator_choice(programs: Sequence[RecordedProgram]) -> OperatorChoice:
    """The choices of the valid programs among these completions."""
    bounds = reward_bounds(programs)
    difficulty, levels, columns = difficulty_of(programs)
    valid = [p for p in programs if p.shape is not None]
    choices, left_out = choices_of(valid)
    counted = [p for p in valid if p.id in levels]
    types = sorted({p.problem_type for p in valid})

    def type_of(program: RecordedProgram) -> str:
        return program.problem_type

    def level_of(program: RecordedProgram) -> str:
        return levels[program.id]

    contrasts = {
        (choice, kind): contrast(members(valid, kind, lambda p, c=choice: makes(p, c)), bounds)
        for choice in choices
        for kind in types
    }
    effects = judged_effects(contrasts)  # all are one family
    by_type = [ChoiceRow(*c, cells_of(valid, c, type_of, effects)) for c in choices]
    by_level = [ChoiceRow(*c, cells_of(counted, c, level_of, {})) for c in choices]
    tables = [choice_table(valid, type_of), choice_table(counted, level_of, type_of)]
    on_type, on_difficulty = dependence_tests(tables)
    return OperatorChoice(
        ChoiceTable(tuple(types), tuple(by_type), left_out),
        ChoiceTable(columns, tuple(by_level), left_out),
        difficulty,
        len(counted),
        on_type,
        on_difficulty,
        best_choices(valid, types, bounds),
    )


def choices_of(valid: Sequence[RecordedProgram]) -> tuple[list[Choice], int]:
    """The operators by name, the commonest combinations, and how many are rarer."""
    operators = sorted({name for p in valid if p.shape for name in p.shape.operators})
    ordered = most_chosen(valid)
    choices: list[Choice] = [("operator", name) for name in operators]
    choices.extend(("combination", name) for name in ordered[:MOST_VALUES])
    return choices, max(len(ordered) - MOST_VALUES, 0)


def makes(program: RecordedProgram, choice: Choice) -> bool:
    """Whether a valid program made a choice."""
    assert program.shape is not None
    kind, name = choice
    return name in program.shape.operators if kind == "operator" else is_of(program, name)


def is_of(program: RecordedProgram, combination: str) -> bool:
    """Whether a valid program calls just these operators."""
    return program.shape is not None and combination_of(program.shape) == combination


def cells_of(
    programs: Sequence[RecordedProgram],
    choice: Choice,
    column_of: Callable[[RecordedProgram], str],
    effects: Mapping[tuple[Choice, str], Effect],
) -> dict[str, Cell]:
    """The cells of a choice, by the columns that have programs."""
    columns: dict[str, list[RecordedProgram]] = {}
    for program in programs:
        columns.setdefault(column_of(program), []).append(program)
    cells = {}
    for column, own in columns.items():
        used = [p for p in own if makes(p, choice)]
        marks = [float(makes(p, choice)) for p in own]
        cells[column] = Cell(
            used=len(used),
            programs=len(own),
            share=grouped(marks, [p.prompt for p in own], (0.0, 1.0)),
            reward=mean([reward for _, reward in judged(used)]),
            cost=mean([p.cost for p in used if p.cost is not None]),
            effect=effects.get((choice, column)),
        )
    return cells


def members(
    programs: Sequence[RecordedProgram],
    problem_type: str,
    marked: Callable[[RecordedProgram], bool],
) -> list[Member]:
    """The judged programs of a type."""
    own = [(p, reward) for p, reward in judged(programs) if p.problem_type == problem_type]
    return [Member(reward, marked(p), p.group, p.prompt) for p, reward in own]


def choice_table(
    programs: Sequence[RecordedProgram],
    label_of: Callable[[RecordedProgram], str],
    stratum_of: Callable[[RecordedProgram], str] = lambda program: "",
) -> Table:
    """The shares of combinations by prompt. A prompt that has several labels has its first."""
    names = sorted({combination_of(p.shape) for p in programs if p.shape})
    prompts: dict[str, list[RecordedProgram]] = {}
    for program in programs:
        prompts.setdefault(program.prompt, []).append(program)
    shares_PK = np.zeros((len(prompts), len(names)))
    for place, own in enumerate(prompts.values()):
        for program in own:
            assert program.shape is not None
            shares_PK[place, names.index(combination_of(program.shape))] += 1 / len(own)
    first = [own[0] for own in prompts.values()]
    return Table(shares_PK, [label_of(p) for p in first], [stratum_of(p) for p in first])


def difficulty_of(
    programs: Sequence[RecordedProgram],
) -> tuple[str, dict[str, str], tuple[str, ...]]:
    """What says how hard problems are, the level of each counted program by id, and all levels."""
    for name in DIFFICULTIES:
        known = {p.id: p.difficulty[name] for p in programs if name in p.difficulty}
        if known:
            last = f"{LAST_LEVEL + 1}+"
            levels = {id_: f"{v:g}" if v <= LAST_LEVEL else last for id_, v in known.items()}
            return name, levels, tuple(sorted(set(levels.values())))
    return PASS_RATE, pass_rate_levels(programs), THIRDS


def pass_rate_levels(programs: Sequence[RecordedProgram]) -> dict[str, str]:
    """The third of the pass rate of each prompt: measured on every second of its completions, given
    to the others."""
    prompts: dict[str, list[RecordedProgram]] = {}
    for program in programs:
        prompts.setdefault(program.prompt, []).append(program)
    levels: dict[str, str] = {}
    for own in prompts.values():
        rate = mean([float(program.passed) for program, _ in judged(own[::2])])
        if rate is not None:
            third = THIRDS[(rate >= 1 / 3) + (rate >= 2 / 3)]
            levels |= {program.id: third for program in own[1::2]}
    return levels


def best_choices(
    valid: Sequence[RecordedProgram], types: Sequence[str], bounds: tuple[float, float]
) -> tuple[BestChoice, ...]:
    """For each type, the combination chosen most against all others; all are one family."""
    chosen = {kind: most_chosen([p for p in valid if p.problem_type == kind]) for kind in types}
    pairs = {}
    for kind, names in chosen.items():
        for other in compared(names):
            two = [p for p in valid if is_of(p, other) or is_of(p, names[0])]
            own = members(two, kind, lambda p, other=other: is_of(p, other))
            pairs[kind, other] = contrast(own, bounds)
    effects = judged_effects(pairs)
    found = []
    for kind, names in chosen.items():
        own = {other: effects[kind, other] for other in compared(names)}
        rarer = len(names) - 1 - len(own)
        of_type = [p for p in valid if p.problem_type == kind]
        share = sum(is_of(p, names[0]) for p in of_type) / len(of_type)
        found.append(best_choice(kind, names[0], share, own, rarer))
    return tuple(found)


def compared(names: Sequence[str]) -> Sequence[str]:
    """The combinations that the one chosen most is compared with: the commonest of the others."""
    return names[1 : MOST_VALUES + 1]


def most_chosen(programs: Sequence[RecordedProgram]) -> list[str]:
    """Combinations, the commonest first."""
    counts = Counter(combination_of(p.shape) for p in programs if p.shape)
    return sorted(counts, key=lambda value: (-counts[value], value))


def best_choice(
    problem_type: str, chosen: str, share: float, others: Mapping[str, Effect], rarer: int
) -> BestChoice:
    """The verdict on one type; `rarer` combinations are not compared."""
    if not others:
        return BestChoice(problem_type, chosen, share, None, None, "alone", 0, 0)
    tested = {n: e for n, e in others.items() if e.contrast.clusters >= FEWEST_CLUSTERS}
    rare = rarer + len(others) - len(tested)
    candidates = tested or others
    other = max(candidates, key=lambda name: gain(candidates[name]))
    effect = candidates[other]
    if not tested:
        needed = effect.needed
        return BestChoice(problem_type, chosen, share, None, None, "undecided", needed, rare)
    verdicts = {each.verdict for each in tested.values()}
    verdict = "another" if effect.verdict == "better" else "undecided"
    if verdicts == {"worse"}:
        verdict = "chosen"
    undecided = [e.needed for e in tested.values() if e.verdict == "undecided"]
    needed = None if None in undecided else max((n for n in undecided if n is not None), default=0)
    return BestChoice(problem_type, chosen, share, other, effect, verdict, needed, rare)


def gain(effect: Effect) -> tuple[bool, float]:
    """The order of alternatives: those shown to pay more first, then by their difference."""
    found = effect.contrast.difference
    return effect.verdict == "better", float("-inf") if found is None else found
