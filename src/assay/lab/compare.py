"""Puts checkpoints side by side: from records of one run, or of several, to judged tables.

Refuses what cannot be compared; every figure and verdict is `judge`'s. Nothing is printed here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from assay.errors import InputError
from assay.judge.confounds import Confound, differences
from assay.judge.holm import adjust_family
from assay.judge.intervals import Interval, score_interval
from assay.judge.paired import compare
from assay.judge.scores import ItemScores, on_one_scale
from assay.judge.verdict import ENGLISH, Comparison, explain, not_comparable
from assay.lab.answers import (
    NotMeasured,
    evaluation_records,
    find_record,
    measured_checkpoints,
    read_answers,
)
from assay.lab.manifest_file import read_manifest
from assay.lab.records import EvaluationRecord, read_scores
from assay.lab.run_directory import RunDirectory
from assay.lab.spec.read import read_experiment
from assay.lab.status import read_status


class Unfair(InputError):
    """Runs that are never compared, whatever is allowed."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison across runs."""

    run: RunDirectory
    checkpoint: str | None = None
    """As records name it; None means the last one that the experiment's evaluation lists."""


@dataclass(frozen=True, slots=True)
class Flips:
    """Items by what became of their score (mean over repeats) between control and other."""

    gained: tuple[str, ...]
    lost: tuple[str, ...]
    unchanged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """One checkpoint against another."""

    control: str
    other: str
    comparison: Comparison
    """P-value and verdict are corrected for the family of the whole table."""
    flips: Flips
    agreement: float
    """Share of the answers (item and repeat) that both gave in the same words."""

    def explanation(self, templates: Mapping[str, str] = ENGLISH) -> str:
        """The verdict in words, with what the design can detect."""
        return explain(self.comparison, templates)


@dataclass(frozen=True, slots=True)
class Line:
    """One checkpoint of a table."""

    name: str
    score: float
    interval: Interval
    items: int
    repeats: int
    abstained: int
    """Answers without a score, of items x repeats."""
    to_control: Pairing | None
    """None for the control itself."""
    to_previous: Pairing | None
    """Against the stage before; None where that is the control."""


@dataclass(frozen=True, slots=True)
class Table:
    """Checkpoints measured on the same items, the first of them the control."""

    evaluation: EvaluationRecord
    lines: tuple[Line, ...]
    differences: tuple[Confound, ...] = ()
    """Everything in which the runs differ from the control, declared or not."""

    @property
    def control(self) -> Line:
        """What the others are compared with."""
        return self.lines[0]

    @property
    def allowed(self) -> tuple[str, ...]:
        """Confounds that the reader accepted: the mark that the table carries."""
        return tuple(sorted({d.path for d in self.differences if d.kind == "allowed"}))


@dataclass(frozen=True, slots=True)
class _Measured:
    """A checkpoint's scores and answers."""

    name: str
    scores: ItemScores
    outputs: Mapping[tuple[str, int], str]


def compare_checkpoints(
    run: RunDirectory, evaluation: str, control: str = "base", others: Sequence[str] | None = None
) -> Table:
    """Checkpoints of one run on one evaluation; `others` are all measured ones when omitted.

    Each is compared with the control and with the last one of the stage before; all p-values of
    the table are one family. Raises NotMeasured, and what `judge.paired.compare` raises.
    """
    record = find_record(run, evaluation)
    if others is None:
        others = [name for name in measured_checkpoints(run, record) if name != control]
    measured = {name: _load(run, record, name, name) for name in (control, *others)}
    pairs = [(control, name) for name in others]
    previous = {name: _stage_before(name, others) for name in others}
    pairs += [(before, name) for name, before in previous.items() if before is not None]
    return _table(record, control, measured, _judge(pairs, measured))


def compare_runs(
    run_a: RunDirectory,
    run_b: RunDirectory,
    on: str | None = None,
    vary: Sequence[str] | None = None,
    allow: Sequence[str] = (),
) -> Table:
    """The last measured checkpoint of `run_b` against that of `run_a`; see `compare_arms`."""
    return compare_arms(Arm(run_a), [Arm(run_b)], on, vary, allow)


def compare_arms(
    control: Arm,
    others: Sequence[Arm],
    on: str | None = None,
    vary: Sequence[str] | None = None,
    allow: Sequence[str] = (),
) -> Table:
    """Checkpoints of several runs against the control's, one family, item by item.

    `on` names an evaluation or a benchmark; omitted, the control's first reporting evaluation that
    all runs have. `vary` are the declared differences, those of the experiment files when omitted;
    `allow` those that the reader accepts. Any other difference makes the verdict "not comparable".

    Raises Unfair for unfinished runs, other items or other checkers, NotMeasured where there is no
    record.
    """
    arms = [control, *others]
    for arm in arms:
        _check_finished(arm.run)
    on = on or _shared_evaluation([arm.run for arm in arms])
    records = [find_record(arm.run, on) for arm in arms]
    _check_same_task(arms, records)
    measured = {}
    for arm, record in zip(arms, records, strict=True):
        checkpoint = arm.checkpoint or _last_listed(arm.run, record)
        name = f"{arm.run}@{checkpoint}"
        measured[name] = _load(arm.run, record, checkpoint, name)
    names = list(measured)
    if len(names) < len(arms):
        raise Unfair("a checkpoint cannot be compared with itself", fix="name two checkpoints")
    found = {
        name: _differences(control.run, arm.run, vary, allow)
        for name, arm in zip(names[1:], others, strict=True)
    }
    unfair = {name: [c.path for c in all_ if c.kind == "confound"] for name, all_ in found.items()}
    pairings = _judge([(names[0], name) for name in names[1:]], measured, unfair)
    every = {(c.path, str(c.other)): c for all_ in found.values() for c in all_}
    return _table(records[0], names[0], measured, pairings, tuple(every.values()))


def _load(run: RunDirectory, record: EvaluationRecord, checkpoint: str, name: str) -> _Measured:
    if not record.finished(run, checkpoint):
        known = ", ".join(measured_checkpoints(run, record)) or "none"
        problem = f"{run}: {record.name} of {checkpoint} has no finished record"
        raise NotMeasured(problem, fix=f"finished are: {known}")
    outputs = {
        (answer["item_id"], answer["repeat"]): answer["output"]
        for answer in read_answers(run, record, checkpoint)
    }
    return _Measured(name, read_scores(run, record, checkpoint), outputs)


def _judge(
    pairs: Iterable[tuple[str, str]],
    measured: Mapping[str, _Measured],
    unfair: Mapping[str, Sequence[str]] | None = None,
) -> dict[tuple[str, str], Pairing]:
    """Every pair compared, corrected as one family; pairs with confounds are not comparable."""
    keys = {f"{control} {other}": (control, other) for control, other in pairs}
    raw = {}
    for key, (control, other) in keys.items():
        comparison = compare(*on_one_scale(measured[control].scores, measured[other].scores))
        confounds = (unfair or {}).get(other)
        raw[key] = not_comparable(comparison, confounds) if confounds else comparison
    return {
        keys[key]: _pairing(measured[keys[key][0]], measured[keys[key][1]], comparison)
        for key, comparison in adjust_family(raw).items()
    }


def _pairing(control: _Measured, other: _Measured, comparison: Comparison) -> Pairing:
    both = control.outputs.keys() & other.outputs.keys()
    same = sum(control.outputs[key] == other.outputs[key] for key in both)
    flips = _flips(control.scores, other.scores)
    return Pairing(control.name, other.name, comparison, flips, same / len(both))


def _flips(control: ItemScores, other: ItemScores) -> Flips:
    """Items scored in both, in the control's order, by the sign of their change."""
    after = dict(zip(other.item_ids, other.item_means, strict=True))
    change = {
        item: after[item] - before
        for item, before in zip(control.item_ids, control.item_means, strict=True)
    }
    return Flips(
        tuple(item for item, delta in change.items() if delta > 0),
        tuple(item for item, delta in change.items() if delta < 0),
        tuple(item for item, delta in change.items() if delta == 0),
    )


def _table(
    record: EvaluationRecord,
    control: str,
    measured: Mapping[str, _Measured],
    pairings: Mapping[tuple[str, str], Pairing],
    found: tuple[Confound, ...] = (),
) -> Table:
    lines = []
    for name, each in measured.items():
        previous = [p for (before, other), p in pairings.items() if other == name]
        lines.append(
            Line(
                name=name,
                score=each.scores.mean,
                interval=score_interval(each.scores),
                items=len(each.scores.item_ids),
                repeats=each.scores.repeats,
                abstained=each.scores.missing,
                to_control=pairings.get((control, name)),
                to_previous=next((p for p in previous if p.control != control), None),
            )
        )
    return Table(record, tuple(lines), found)


def _stage_before(name: str, names: Sequence[str]) -> str | None:
    """The last of the earlier `names` that belongs to another stage."""
    stage = name.partition(".")[0]
    earlier = names[: list(names).index(name)]
    return next((n for n in reversed(earlier) if n.partition(".")[0] != stage), None)


def _check_finished(run: RunDirectory) -> None:
    status = read_status(run.path).status
    if status != "finished":
        fix = f"finish it with 'assay resume {run}'"
        raise Unfair(f"{run} is {status}; only finished runs are compared", fix=fix)


def _check_same_task(arms: Sequence[Arm], records: Sequence[EvaluationRecord]) -> None:
    """Other items and other checkers make other numbers."""
    first = records[0]
    for arm, record in zip(arms[1:], records[1:], strict=True):
        if set(record.items) != set(first.items):
            shared = len(set(record.items) & set(first.items))
            problem = (
                f"{arm.run} was measured on other items than {arms[0].run}: "
                f"{len(first.items)} and {len(record.items)}, {shared} of them shared"
            )
            raise Unfair(problem, fix="evaluate both on the same items")
        if record.checker != first.checker:
            problem = f"checked by {first.checker!r} and by {record.checker!r}"
            raise Unfair(problem, fix="score both with one checker")


def _shared_evaluation(runs: Sequence[RunDirectory]) -> str:
    """The first reporting evaluation of the first run that every run has."""
    names = [{record.name for record in evaluation_records(run)} for run in runs]
    experiment = read_experiment(runs[0].spec)
    for name, spec in experiment.evaluate.items():
        if spec.role == "report" and all(name in each for each in names):
            return name
    raise NotMeasured("the runs share no reporting evaluation", fix="name one with --on")


def _last_listed(run: RunDirectory, record: EvaluationRecord) -> str:
    """The last measured checkpoint by stage and step."""
    names = measured_checkpoints(run, record)
    if not names:
        raise NotMeasured(f"{run} has no finished record of {record.name}")
    return names[-1]


def _differences(
    control: RunDirectory,
    other: RunDirectory,
    vary: Sequence[str] | None,
    allow: Sequence[str],
) -> list[Confound]:
    if vary is None:
        vary = (*read_experiment(control.spec).vary, *read_experiment(other.spec).vary)
    return differences(read_manifest(control), read_manifest(other), vary, allow)
