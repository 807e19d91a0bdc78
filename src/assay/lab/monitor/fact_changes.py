"""What the facts of a stage's samples say between two steps: form, errors, operators, variety.

The completions up to the first step are compared with those after it, up to the last: what was
reported before, and what is new. A task says how its facts are read (`tasks.fact_reading`); what it
does not note is left out. Each table's changes are corrected for its rows. Adds no words.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import SamplingStage, StageSpec
from assay.experiment.training_settings import Schedule
from assay.judge.health_rules import LOW_TEMPERATURE, RULES, WINDOW
from assay.judge.intervals import Estimate, mean_interval
from assay.judge.share_changes import Change, Counts, Trials, change_of_trials
from assay.judge.verdict import ALPHA
from assay.lab.monitor.sample_facts import SampleFacts, facts_of_steps, programs_of_step
from assay.runs.history import History
from assay.tasks.fact_reading import FactReading, reading_of
from assay.tasks.task import task

MOST_BLOCKS = 6
"""Stretches of steps that a table of counts over time has."""
MOST_ROWS = 12
"""Of combinations of operators; further ones are counted together."""
EQUAL = 1e-9
"""Rewards closer to the mean of their group than this are neither high nor low."""
Samples = Sequence[SampleFacts]
Steps = tuple[int, int]


@dataclass(frozen=True)
class ShareRow:
    """How many completions are of one kind, before and after, and over time."""

    name: str
    before: Counts
    after: Counts
    change: Change
    over_time: tuple[Counts, ...]
    """In the stretches of steps of its table."""
    kinds: tuple["ShareRow", ...] = ()
    """What it is made of, most frequent first."""


@dataclass(frozen=True)
class Variety:
    """How different the completions of a group are, in the mean of groups."""

    name: str
    """`combinations`, `trees`, `repeated`."""
    change: Change


@dataclass(frozen=True)
class Operator:
    """How many completions of high and of low reward call one operator."""

    name: str
    high: Counts
    low: Counts
    difference: Estimate
    """Share among high minus share among low rewards, in the mean of groups; its interval is
    corrected for the number of operators."""


@dataclass(frozen=True)
class Alike:
    """A warning that the completions of a group repeat each other."""

    share: float
    temperature: float | None
    """None of a schedule whose value no step recorded."""
    likely_cause: bool
    """Whether the temperature is so low that it is the likely cause."""


@dataclass(frozen=True)
class FactChanges:
    """What the samples of a stage say between two steps."""

    before: Steps
    """First and last step of the completions before; (0, 0) for none."""
    after: Steps
    completions: tuple[int, int]
    prompts: tuple[int, int]
    stretches: tuple[Steps, ...]
    form: ShareRow | None
    fallback: ShareRow | None
    outcomes: tuple[ShareRow, ...]
    errors: tuple[ShareRow, ...]
    """By family, in the task's order, else by frequency."""
    operators: tuple[ShareRow, ...]
    combinations: tuple[ShareRow, ...]
    others: int
    """Combinations that are not listed."""
    by_reward: tuple[Operator, ...]
    variety: tuple[Variety, ...]
    variety_steps: tuple[Steps, Steps]
    """The steps that variety is counted in."""
    alike: Alike | None


def fact_changes(
    history: History, lines: Sequence[Mapping[str, Any]], first: int
) -> FactChanges | None:
    """What the samples of a stage's steps say, of which `lines` are the metrics; those up to
    `first` are before. None where no sample is kept, or the task's rewards note nothing. Raises
    DamagedRecord."""
    stage = lines[0]["stage"]
    there = set(history.sampled(stage))
    kept = [line["step"] for line in lines if line["step"] in there]
    split = [s for s in kept if s <= first], [s for s in kept if s > first]
    before, after = (facts_of_steps(history, stage, each) for each in split)
    every = [*before, *after]
    facts = ((s.error, s.form, s.operators, s.fallback) for s in every)
    if all(value is None for each in facts for value in each):
        return None
    reading = fact_reading(history.experiment)
    noted = any(sample.error is not None for sample in every)
    parts = np.array_split(np.asarray(kept), min(MOST_BLOCKS, len(kept)))
    table = _Table(before, after, tuple((int(part[0]), int(part[-1])) for part in parts))
    operators = table.rows(lambda sample: sample.operators)
    combined = table.rows(lambda s: None if s.combination is None else (s.combination,))
    variety, where = _variety(history, stage, split, reading)
    return FactChanges(
        before=_ends(split[0]),
        after=_ends(split[1]),
        completions=(len(before), len(after)),
        prompts=(len({s.row_id for s in before}), len({s.row_id for s in after})),
        stretches=table.stretches,
        form=table.mark("form", lambda sample: sample.form),
        fallback=table.mark("fallback", lambda sample: sample.fallback),
        outcomes=table.rows(lambda s: (s.outcome,)) if noted else (),
        errors=_errors(table, reading),
        operators=operators,
        combinations=combined[:MOST_ROWS],
        others=max(len(combined) - MOST_ROWS, 0),
        by_reward=operators_by_reward(every),
        variety=variety,
        variety_steps=where,
        alike=_alike(history.experiment.stage[stage], lines[-1], variety),
    )


def operators_by_reward(samples: Samples) -> tuple[Operator, ...]:
    """The operators of completions above and below the mean reward of their group, so that an easy
    prompt does not pass for a good choice; the most called first."""
    groups: defaultdict[str, list[tuple[SampleFacts, float]]] = defaultdict(list)
    for each in samples:
        if each.reward is not None and each.operators is not None:
            groups[each.group].append((each, each.reward))
    sides: list[tuple[list[SampleFacts], list[SampleFacts]]] = []
    for members in groups.values():
        mean = fmean(reward for _, reward in members)
        high = [each for each, reward in members if reward > mean + EQUAL]
        low = [each for each, reward in members if reward < mean - EQUAL]
        if high and low:
            sides.append((high, low))
    every = [each for pair in sides for side in pair for each in side]
    called = Counter(name for each in every for name in each.operators or ())
    rows, level = tuple(high[0].row_id for high, _ in sides), 1 - ALPHA / max(len(called), 1)
    found = []
    for name in sorted(called, key=lambda name: (-called[name], name)):
        high, low = (
            [[name in (each.operators or ()) for each in pair[side]] for pair in sides]
            for side in (0, 1)
        )
        values = np.array([fmean(a) - fmean(b) for a, b in zip(high, low, strict=True)])
        interval = mean_interval(values, rows, (-1.0, 1.0), level)
        difference = Estimate(float(values.mean()), interval, len(values), len(set(rows)))
        counts = [Counts(sum(map(sum, each)), sum(map(len, each))) for each in (high, low)]
        found.append(Operator(name, counts[0], counts[1], difference))
    return tuple(found)


def fact_reading(experiment: Experiment) -> FactReading | None:
    """How the task of the run reads its facts. A task of a user's file is not run for a report."""
    if ":" in experiment.task:
        return None
    return reading_of(task(experiment.task))


@dataclass(frozen=True)
class _Table:
    """Completions before and after, and the stretches of steps that they are counted in."""

    before: Samples
    after: Samples
    stretches: tuple[Steps, ...]

    def among(self, known: Callable[[SampleFacts], bool]) -> "_Table":
        """The table of those completions alone."""
        before, after = ([each for each in p if known(each)] for p in (self.before, self.after))
        return _Table(before, after, self.stretches)

    def mark(self, name: str, of: Callable[[SampleFacts], bool | None]) -> ShareRow | None:
        """The share of the completions whose mark is set, among those that have it."""
        known = self.among(lambda sample: of(sample) is not None)
        if not known.before and not known.after:
            return None
        return known.row(name, lambda sample: bool(of(sample)))

    def rows(self, names: Callable[[SampleFacts], tuple[str, ...] | None]) -> tuple[ShareRow, ...]:
        """A row for each name, most frequent first, among the completions that have names at all;
        corrected for the number of rows."""
        table = self.among(lambda sample: names(sample) is not None)
        every = (*table.before, *table.after)
        seen = Counter(name for sample in every for name in set(names(sample) or ()))
        order = sorted(seen, key=lambda name: (-seen[name], name))
        return tuple(table.row(n, lambda s, n=n: n in (names(s) or ()), len(order)) for n in order)

    def row(self, name: str, holds: Callable[[SampleFacts], bool], family: int = 1) -> ShareRow:
        """The completions for which `holds`, one of `family` comparisons."""
        before, after = (
            trials_of(part, lambda s: float(holds(s))) for part in (self.before, self.after)
        )
        change = change_of_trials(before, after, family=family)
        every, over_time = [*self.before, *self.after], []
        for low, high in self.stretches:
            inside = [holds(sample) for sample in every if low <= sample.step <= high]
            over_time.append(Counts(sum(inside), len(inside)))
        return ShareRow(name, counts_of(before), counts_of(after), change, tuple(over_time))


def trials_of(samples: Iterable[Any], of: Callable[[Any], float | None]) -> Trials:
    """What samples or groups add to a mean, with their rows; those that add nothing left out."""
    known = [(value, each.row_id) for each in samples if (value := of(each)) is not None]
    return Trials([value for value, _ in known], [row for _, row in known])


def counts_of(trials: Trials) -> Counts:
    """How many marks are set."""
    return Counts(round(sum(trials.values)), len(trials.values))


def _errors(table: _Table, reading: FactReading | None) -> tuple[ShareRow, ...]:
    """Errors by family with their kinds; without families, each kind is a row of its own."""
    table = table.among(lambda sample: sample.error is not None)
    seen = Counter(s.error for s in (*table.before, *table.after) if s.error)
    if reading is None:
        return table.rows(lambda s: (s.error,) if s.error else ())
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for kind, _ in sorted(seen.items(), key=lambda each: (-each[1], each[0])):
        kinds[reading.family_of(kind)].append(kind)
    size = sum(1 + (len(found) if len(found) > 1 else 0) for found in kinds.values())
    order = [*reading.families, *(f for f in kinds if f not in reading.families)]
    return tuple(_family(table, name, kinds[name], size) for name in order if name in kinds)


def _family(table: _Table, name: str, kinds: Sequence[str], size: int) -> ShareRow:
    whole = table.row(name, lambda sample: sample.error in kinds, size)
    parts = tuple(table.row(kind, lambda s, k=kind: s.error == k, size) for kind in kinds)
    return ShareRow(name, whole.before, whole.after, whole.change, whole.over_time, parts)


def _variety(
    history: History,
    stage: str,
    split: tuple[Sequence[int], Sequence[int]],
    reading: FactReading | None,
) -> tuple[tuple[Variety, ...], tuple[Steps, Steps]]:
    """How different the completions of the groups of the last steps before and after are."""
    recent = [part[-WINDOW:] for part in split]
    groups = [list(_groups(history, stage, steps, reading)) for steps in recent]
    sizes = [group.size for part in groups for group in part]
    if max(sizes, default=0) < 2:
        return (), (_ends(recent[0]), _ends(recent[1]))
    measures: list[tuple[str, Callable[[_Group], float | None], tuple[float, float]]] = [
        ("combinations", lambda group: group.combinations, (1.0, float(max(sizes)))),
        ("trees", lambda group: group.trees, (1.0, float(max(sizes)))),
        ("repeated", lambda group: group.repeated, (0.0, 1.0)),
    ]
    found = []
    for name, of, bounds in measures:
        before, after = (trials_of(part, of) for part in groups)
        if before.values or after.values:
            found.append(Variety(name, change_of_trials(before, after, bounds, len(measures))))
    return tuple(found), (_ends(recent[0]), _ends(recent[1]))


@dataclass(frozen=True)
class _Group:
    """The variety of one group."""

    row_id: str
    size: int
    combinations: float | None
    trees: float | None
    repeated: float


def _groups(
    history: History, stage: str, steps: Iterable[int], reading: FactReading | None
) -> Iterable[_Group]:
    for step in steps:
        groups: defaultdict[str, list[tuple[SampleFacts, str]]] = defaultdict(list)
        for each in programs_of_step(history, stage, step):
            tree = reading.tree_of(each.program) if reading else ""
            groups[each.facts.group].append((each.facts, tree))
        for members in groups.values():
            samples = [sample for sample, _ in members]
            called = {s.combination for s in samples if s.combination is not None}
            trees = {tree for _, tree in members if tree}
            yield _Group(
                samples[0].row_id,
                len(samples),
                float(len(called)) if called else None,
                float(len(trees)) if trees else None,
                1 - len({sample.text_key for sample in samples}) / len(samples),
            )


def _alike(spec: StageSpec, line: Mapping[str, Any], variety: Sequence[Variety]) -> Alike | None:
    """Where so many completions repeat another of their group that the health rule would warn."""
    limit = RULES["repeated_samples"].warning
    found = {each.name: each.change.after or each.change.before for each in variety}
    repeated = found.get("repeated")
    if repeated is None or limit is None or repeated.value < limit:
        return None
    if not isinstance(spec, SamplingStage) or spec.stored:
        return None
    written = spec.sampling.temperature
    temperature = line.get("temperature") if isinstance(written, Schedule) else written
    low = temperature is not None and temperature < LOW_TEMPERATURE
    return Alike(repeated.value, temperature, low)


def _ends(steps: Sequence[int]) -> Steps:
    return (steps[0], steps[-1]) if steps else (0, 0)
