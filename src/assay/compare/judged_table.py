"""Puts checkpoints side by side: from records of one run, or of several, to judged tables.

What may be compared is `fairness`'s, every figure and verdict `judge`'s. Nothing is printed here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from assay.compare.fairness import (
    Entrant,
    Unfair,
    check_allowed,
    check_fair,
    check_finished,
    find_differences,
    idle_factors,
)
from assay.compare.identical_checkpoints import Place, identity_findings
from assay.compare.measured_arm import Measured, agreement, load_measured
from assay.compare.seed_arms import with_seeds
from assay.compare.table import Arm, Flips, Line, Pairing, Table
from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.judge.arms import arm_interval
from assay.judge.arms import compare_arms as compare_methods
from assay.judge.confounds import Confound
from assay.judge.families import adjust_family
from assay.judge.findings import Finding
from assay.judge.intervals import Interval, score_interval
from assay.judge.missing import score_range
from assay.judge.paired import compare
from assay.judge.scores import ItemScores, on_one_scale
from assay.judge.verdict import FEW_UNSCORED, Comparison, not_comparable
from assay.runs.manifest_file import DamagedManifest, read_manifest
from assay.runs.measurements import (
    NotMeasured,
    evaluation_records,
    find_record,
    measured_checkpoints,
)
from assay.runs.records import DamagedRecord, EvaluationRecord
from assay.runs.run_directory import RunDirectory

Value = TypeVar("Value")

UNSCORED = "more than 2 % of the answers have no score"


def compare_checkpoints(
    run: RunDirectory, evaluation: str, control: str = "base", others: Sequence[str] | None = None
) -> Table:
    """Checkpoints of one run on one evaluation; `others` are all measured ones when omitted.

    Each is compared with the control and with the last one of the stage before; all p-values of
    the table are one family. Raises NotMeasured, DamagedRecord, and what `judge.paired.compare`
    raises.
    """
    record = find_record(run, evaluation)
    if others is None:
        others = [name for name in measured_checkpoints(run, record) if name != control]
    names = (control, *others)
    measured = {name: load_measured(run, record, name, name) for name in names}
    pairs = [(control, name) for name in others]
    previous = {name: _stage_before(name, others) for name in others}
    pairs += [(before, name) for name, before in previous.items() if before is not None]
    places = {name: Place(run, name) for name in names}
    found = identity_findings(record, list(measured.values()), places)
    return make_table(record, control, measured, judge_pairs(pairs, measured), findings=found)


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
    Where every arm has further seeds the methods are compared, with seeds sampled as items are.

    An arm whose files are damaged is left out and named in `left_out` as long as two remain; the
    next takes the place of a damaged control. Raises Unfair for what is never compared (see
    `fairness`), NotMeasured where there is no record, DamagedRecord where one arm is left,
    NothingToAllow for an accepted difference that is none.
    """
    arms = [control, *others]
    for arm in arms:
        check_finished(arm.run)
    entrants, left_out, findings = _load(arms, on)
    names = [entrant.measured.name for entrant in entrants]
    if len(set(names)) < len(entrants):
        raise Unfair("a checkpoint cannot be compared with itself", fix="name two checkpoints")
    entrants, trained, more = with_seeds(entrants, _entrant)
    findings += [*more, *check_fair([*entrants, *trained])]
    names = [entrant.measured.name for entrant in entrants]
    first, *rest = entrants
    found = {e.measured.name: find_differences(first, e, vary, allow) for e in rest}
    unfair = {name: [c.path for c in all_ if c.kind == "confound"] for name, all_ in found.items()}
    measured = {entrant.measured.name: entrant.measured for entrant in entrants}
    pairings = judge_pairs([(names[0], name) for name in names[1:]], measured, unfair)
    every = {(c.path, str(c.other)): c for all_ in found.values() for c in all_}
    check_allowed(allow, list(every.values()))
    for entrant in rest:
        findings += idle_factors(first, entrant, vary, found[entrant.measured.name])
    places = {e.measured.name: Place(e.run, e.checkpoint) for e in entrants}
    findings += identity_findings(first.record, list(measured.values()), places)
    table = make_table(first.record, names[0], measured, pairings, tuple(every.values()), findings)
    return replace(table, left_out=tuple(left_out))


def _load(
    arms: Sequence[Arm], on: str | None
) -> tuple[list[Entrant], list[Finding], list[Finding]]:
    """The arms that can be read, a finding for each that cannot, and where else they could be
    compared if nobody chose; raises where one arm is left."""
    known, damaged = _attempt(arms, lambda arm: (arm, evaluation_records(arm.run)))
    elsewhere: list[Finding] = []
    if on is None and known:
        on, *others = _shared_evaluations(arms[0].run, [records for _, records in known])
        elsewhere = [_elsewhere(on, others)] if others else []
    entrants, more = _attempt([arm for arm, _ in known], lambda arm: _entrant(arm, on or ""))
    damaged |= more
    if damaged and len(entrants) < 2:
        raise next(iter(damaged.values()))
    left_out = [_left_out(arm, error, arm is arms[0]) for arm, error in damaged.items()]
    return entrants, left_out, elsewhere


def _attempt(
    arms: Sequence[Arm], read: Callable[[Arm], Value]
) -> tuple[list[Value], dict[Arm, InputError]]:
    """What was read of each arm, and the arms whose files are damaged."""
    found, damaged = [], {}
    for arm in arms:
        try:
            found.append(read(arm))
        except (DamagedRecord, DamagedManifest) as error:
            damaged[arm] = error
    return found, damaged


def _entrant(arm: Arm, on: str) -> Entrant:
    record = find_record(arm.run, on)
    checkpoint = arm.checkpoint or _last_listed(arm.run, record)
    measured = load_measured(arm.run, record, checkpoint, f"{arm.run}@{checkpoint}")
    return Entrant(arm, record, checkpoint, measured, read_manifest(arm.run))


def _left_out(arm: Arm, error: InputError, was_control: bool) -> Finding:
    what = (
        f"{arm.run} is left out; it was to be the control, and the next run is in its place"
        if was_control
        else f"{arm.run} is left out"
    )
    return Finding("error", what, f"{error.file}: {error.problem}", error.fix or "")


def judge_pairs(
    pairs: Iterable[tuple[str, str]],
    measured: Mapping[str, Measured],
    unfair: Mapping[str, Sequence[str]] | None = None,
) -> dict[tuple[str, str], Pairing]:
    """Every pair compared, corrected as one family; pairs with confounds are not comparable."""
    keys = {f"{control} {other}": (control, other) for control, other in pairs}
    raw = {}
    for key, (control, other) in keys.items():
        comparison = _compared(measured[control], measured[other])
        confounds = (unfair or {}).get(other)
        raw[key] = not_comparable(comparison, confounds) if confounds else comparison
    return {
        keys[key]: _pairing(measured[keys[key][0]], measured[keys[key][1]], comparison)
        for key, comparison in adjust_family(raw).items()
    }


def _compared(control: Measured, other: Measured) -> Comparison:
    """Two checkpoints, or two methods where both have several seeds."""
    if control.seeds and other.seeds:
        seeds = on_one_scale(*control.seeds, *other.seeds)
        return compare_methods(seeds[: len(control.seeds)], seeds[len(control.seeds) :])
    before, after = on_one_scale(control.scores, other.scores)
    return compare(before, after)


def _pairing(control: Measured, other: Measured, comparison: Comparison) -> Pairing:
    flips = _flips(control.scores, other.scores)
    return Pairing(control.name, other.name, comparison, flips, agreement(control, other))


def _flips(control: ItemScores, other: ItemScores) -> Flips:
    """Items scored in both, in the control's order, by the sign of their change."""
    after = dict(zip(other.item_ids, other.item_means, strict=True))
    change = {
        item: after[item] - before
        for item, before in zip(control.item_ids, control.item_means, strict=True)
        if item in after
    }
    return Flips(
        tuple(item for item, delta in change.items() if delta > 0),
        tuple(item for item, delta in change.items() if delta < 0),
        tuple(item for item, delta in change.items() if delta == 0),
    )


def make_table(
    record: EvaluationRecord,
    control: str,
    measured: Mapping[str, Measured],
    pairings: Mapping[tuple[str, str], Pairing],
    found: tuple[Confound, ...] = (),
    findings: Sequence[Finding] = (),
) -> Table:
    """The table of all that were measured, the control first."""
    lines = []
    # All lines on one scale: percent beside plain numbers would read as two.
    share = all(each.scores.bounds == (0.0, 1.0) for each in measured.values())
    for name, each in measured.items():
        previous = [p for (before, other), p in pairings.items() if other == name]
        lines.append(
            Line(
                name=name,
                score=each.scores.mean,
                interval=replace(_interval(each), share=share),
                items=len(each.scores.item_ids),
                repeats=each.scores.repeats,
                abstained=each.scores.missing,
                possible=score_range(each.scores),
                to_control=pairings.get((control, name)),
                to_previous=next((p for p in previous if p.control != control), None),
                clusters=each.scores.sources,
                part_of=len(record.items) if each.scores.part else None,
                address=each.address,
                file=each.file,
            )
        )
    return Table(record, tuple(lines), found, (*findings, *_unscored(lines)))


def _interval(each: Measured) -> Interval:
    """Of a score; with seeds sampled as well where there are several."""
    return arm_interval(each.seeds) if each.seeds else score_interval(each.scores)


def _unscored(lines: Iterable[Line]) -> list[Finding]:
    """A warning of each line with more answers without a score than may be passed over."""
    return [
        Finding(
            "warning",
            UNSCORED,
            f"{line.name}: {line.abstained / answers:.1%} ({line.abstained} / {answers})",
            "find out why; no verdict is given that they could undo",
        )
        for line in lines
        if line.abstained > FEW_UNSCORED * (answers := line.items * line.repeats)
    ]


def _stage_before(name: str, names: Sequence[str]) -> str | None:
    """The last of the earlier `names` that belongs to another stage."""
    stage = name.partition(".")[0]
    earlier = names[: list(names).index(name)]
    return next((n for n in reversed(earlier) if n.partition(".")[0] != stage), None)


def _shared_evaluations(
    first: RunDirectory, known: Sequence[Sequence[EvaluationRecord]]
) -> list[str]:
    """The reporting evaluations of the first run that every run has a record of, in its order."""
    names = [{record.name for record in records} for records in known]
    reporting = read_experiment(first.spec).evaluate.items()
    shared = [
        name
        for name, spec in reporting
        if spec.role == "report" and all(name in each for each in names)
    ]
    if not shared:
        raise NotMeasured("the runs share no reporting evaluation", fix="name one with --on")
    return shared


def _elsewhere(on: str, others: Sequence[str]) -> Finding:
    what = f"compared on {on}, the first evaluation that all have"
    return Finding("note", what, f"they share {', '.join(others)} as well", "see --on")


def _last_listed(run: RunDirectory, record: EvaluationRecord) -> str:
    """The last measured checkpoint by stage and step."""
    names = measured_checkpoints(run, record)
    if not names:
        raise NotMeasured(f"{run} has no finished record of {record.name}")
    return names[-1]
