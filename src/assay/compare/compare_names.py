"""Compares runs that the user names: runs of the lab, runs in files of other tools, or both.

Finds and loads the arms: the control, checkpoints, training seeds. How several seeds are pooled is
in `judge.arms`; `judged_table` compares the arms.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from assay.compare.arm import (
    Arm,
    Provenance,
    ReadOptions,
    distinct_names,
    is_file,
    load_arm,
    read_arms,
    with_seeds,
)
from assay.compare.fairness import DECLARED, Terms, check_finished
from assay.compare.judged_table import check_distinct, compare_arms
from assay.compare.table import ComparisonTable, judged_again, with_trials
from assay.errors import Finding, InputError, finding, nearest
from assay.experiment.checkpoint_reference import checkpoint_name
from assay.experiment.read_file import read_experiment
from assay.judge.sample_size import (
    Design,
    Plan,
    Variances,
    given_discordance,
    given_score,
    plan,
    variances_of,
)
from assay.judge.scores import on_one_scale, on_shared_items
from assay.judge.verdict import asked_non_inferior, with_margin
from assay.runs.history import History, evaluation_records, measured_checkpoints
from assay.runs.records import EvaluationRecord, read_scores
from assay.runs.registry import apart, made_so, newest_by_seed
from assay.runs.run_directory import RunDirectory, begun, read_status, stored_status
from assay.runs.run_files import DamagedFile, Selection, read_selection
from assay.runs.run_names import (
    experiment_of,
    find_run,
    parse_run_name,
    read_run_name,
    resolve_checkpoint,
)

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class ArmRequest:
    """The run and checkpoint to load an arm from."""

    run: RunDirectory
    checkpoint: str | None = None
    """As records name it; None means the last one measured."""
    seeds: tuple["ArmRequest", ...] = ()
    """The same training with other seeds."""
    kept: Selection | None = None
    """The choice by which the checkpoint is what a stage started from; None where it is not."""
    damaged: tuple[Finding, ...] = ()
    """Runs of the name that cannot be read, where its seeds were looked for."""


def compare_names(
    root: Path,
    names: Sequence[str],
    *,
    control: str | None = None,
    on: str | None = None,
    allow: Sequence[str] = (),
    files: ReadOptions | None = None,
    margin: float | None = None,
    non_inferior: float | None = None,
) -> ComparisonTable:
    """The table of runs by NAME[@CHECKPOINT] and of files by FILE[@RUN].

    `control`: else the one that the experiment files name, else the first. `on` is an evaluation or
    benchmark, else the first that all have; `allow` are undeclared differences that the reader
    accepts. `margin` and `non_inferior` are points within which scores are equivalent (2), or no
    worse. Raises InputError for a name that leads nowhere, and what `compare_arms` raises.
    """
    terms, files = Terms(allow=tuple(allow)), files or ReadOptions()
    if any(is_file(name) for name in names):

        def read(name: str) -> list[Arm]:
            return read_arms(name, files) if is_file(name) else [own_arm(arm_named(root, name), on)]

        table = compare_named(names, read, control, terms)
    else:
        options = {"--cluster": files.cluster, "--item": files.columns}
        options |= {"--higher-is-better": files.higher_is_better}
        for field, value in options.items():
            if value is not None:
                fix = "the records of the lab say it themselves"
                raise InputError("is for files of other tools", field=field, fix=fix)
        names = control_first(root, names, control)
        requests = [arm_named(root, name) for name in names]
        table = compare_requests(requests, on, terms)
        damaged = dict.fromkeys(each for request in requests for each in request.damaged)
        table = replace(table, findings=(*damaged, *table.findings))
    table = with_trials(table)
    if margin is not None:
        table = judged_again(table, partial(with_margin, margin=margin / 100))
    if non_inferior is not None:
        table = judged_again(table, partial(asked_non_inferior, margin=non_inferior / 100))
    return table


def compare_requests(
    requests: Sequence[ArmRequest], on: str | None = None, terms: Terms = DECLARED
) -> ComparisonTable:
    """Checkpoints of runs of a lab against the first one's; see `compare_arms`.

    `on` names an evaluation or a benchmark; omitted, the control's first reporting evaluation that
    all runs have. Where every arm has further seeds the methods are compared, with seeds sampled as
    items are. An arm whose files are damaged is left out and named in `left_out` as long as two
    remain; the next takes the place of a damaged control. Raises InputError where there is no
    record, DamagedFile where one arm is left, and what `compare_arms` raises.
    """
    damaged: dict[ArmRequest, InputError] = {}

    def attempt(read: Callable[[ArmRequest], Value]) -> list[tuple[ArmRequest, Value]]:
        pairs = []
        for each in requests:
            try:
                pairs += [(each, read(each))] if each not in damaged else []
            except DamagedFile as error:
                damaged[each] = error
        return pairs

    for request in requests:
        check_finished(request.run)
    known = attempt(lambda each: evaluation_records(each.run))
    findings: list[Finding] = []
    if on is None and known:
        on, *others = shared_evaluations(requests[0].run, [records for _, records in known])
        if others:
            findings.append(finding("first_shared", "note", on=on, others=", ".join(others)))
    pairs = attempt(lambda each: own_arm(each, on))
    if damaged and len(pairs) < 2:
        raise next(iter(damaged.values()))
    check_apart(pairs)
    arms, notes = pool_seeds(pairs)
    left_out = [
        finding(
            "control_left_out" if each is requests[0] else "left_out",
            "error",
            run=each.run,
            why=f"{error.file}: {error.problem}",
            fix=error.fix or "",
        )
        for each, error in damaged.items()
    ]
    return replace(compare_arms(arms, terms, [*findings, *notes]), left_out=tuple(left_out))


def compare_named(
    names: Sequence[str],
    read: Callable[[str], list[Arm]],
    control: str | None = None,
    terms: Terms = DECLARED,
) -> ComparisonTable:
    """Everything that `read` finds under the names, against the first or the one called `control`.

    Raises InputError for an unknown control, and what `read` and `compare_arms` raise.
    """
    pairs = [(name, arm) for name in names for arm in read(name)]
    arms = distinct_names([arm for _, arm in pairs], [name for name, _ in pairs])
    if control is not None:
        controls = [arm for arm in arms if control in (arm.name, arm.name.rpartition("@")[2])]
        if len(controls) != 1:
            fix = nearest(control, [arm.name for arm in arms])
            problem = f"{len(controls) or 'no'} runs are called {control!r}"
            raise InputError(problem, field="--control", fix=fix)
        arms = [*controls, *(arm for arm in arms if arm is not controls[0])]
    return compare_arms(arms, terms)


def shared_evaluations(
    first: RunDirectory, known: Sequence[Sequence[EvaluationRecord]]
) -> list[str]:
    """The reporting evaluations of the first run that every run has a record of, in its order."""
    names = [{record.name for record in records} for records in known]
    shared = [
        name
        for name, spec in experiment_of(first).evaluate.items()
        if spec.role == "report" and all(name in each for each in names)
    ]
    if not shared:
        raise InputError("the runs share no reporting evaluation", fix="name one with --on")
    return shared


def control_first(root: Path, names: Sequence[str], control: str | None = None) -> list[str]:
    """The names of runs with the control first; one run alone is joined by its file's control.

    The control is the one asked for, else the one that the other runs' experiment files name, else
    the first. Raises InputError, and RunNotFound with the nearest names.
    """
    specs = {name: find_run(root, parse_run_name(name)).spec for name in names}
    named = {name: read_experiment(spec).control for name, spec in specs.items()}
    wanted = {each for each in named.values() if each is not None}
    if control is None and len(wanted) == 1:
        (only,) = wanted
        # The spelling of the names is kept.
        matches = [name for name in named if parse_run_name(name).name == only]
        if len(matches) == 1:
            control = matches[0]
        elif not matches and len(named) == 1:
            control = only
    control = control or names[0]
    arranged = [control, *(name for name in names if name != control)]
    if len(arranged) < 2:
        fix = "name two, or a control in its experiment file"
        raise InputError(f"{names[0]!r} alone is compared with nothing", fix=fix)
    return arranged


def arm_named(root: Path, text: str) -> ArmRequest:
    """A run and the checkpoint of it that a name means; with a name without id and seed, the newest
    finished run of every other seed that was made from the same settings.

    Raises InputError, RunNotFound.
    """
    reference = read_run_name(root, text)
    run = find_run(root, reference)
    runs, damaged, wanted = [run], (), reference.checkpoint
    if reference.id is None and reference.seed is None:
        experiment = experiment_of(run)
        sound, broken = apart(begun(root, run.name))
        done = [each for each in sound if read_status(each.path).status == "finished"]
        others = [each for each in newest_by_seed(done) if _seed(each) != _seed(run)]
        runs += [each for each in others if made_so(each, experiment)]
        damaged = (finding("left_out", "warning", run=d.run, why=d.why, fix="") for d in broken)
    requests = []
    for each in runs:
        name, chosen = None, None
        if wanted is not None:
            name = checkpoint_name(resolve_checkpoint(each, wanted))
            if wanted.stage is not None and wanted.rule is not None:
                chosen = read_selection(each.path, wanted.stage, wanted.rule)
        kept = chosen if chosen is not None and not chosen.promoted else None
        requests.append(ArmRequest(each, name, kept=kept))
    return replace(requests[0], seeds=tuple(requests[1:]), damaged=tuple(damaged))


def check_apart(pairs: Sequence[tuple[ArmRequest, Arm]]) -> None:
    """Refuse two names of one checkpoint, and say so where a gate kept a start."""
    names = [arm.name for _, arm in pairs]
    for (request, _), name in zip(pairs, names, strict=True):
        if request.kept is not None and names.count(name) > 1:
            raise InputError(
                f"{name} is named twice: it is the start of a stage, and its best checkpoint "
                f"as well, because the {request.kept.rule} kept the start: none of "
                f"{request.kept.looks} later checkpoints was shown to be better on the dev items",
                fix="compare with the stage's .last, which is what training made",
            )
    check_distinct(names, "checkpoint")


def own_arm(request: ArmRequest, on: str | None = None) -> Arm:
    """The arm of one run of the lab, without its further seeds, on the evaluation or benchmark
    `on`, else on the first reporting evaluation.

    Raises InputError for an unfinished run, DamagedFile.
    """
    run = request.run
    check_finished(run)
    reporting = (n for n, spec in experiment_of(run).evaluate.items() if spec.role == "report")
    name = on or next(reporting, None)
    if name is None:
        raise InputError(f"{run} has no reporting evaluation", fix="name one with --on")
    origin = origin_of(request, name)
    _ = origin.manifest  # a damaged one is refused here, where others can still be compared
    return load_arm(origin)


def origin_of(request: ArmRequest, on: str) -> Provenance:
    """The record of the checkpoint that was asked for, else of the last one with a finished record.
    Raises InputError where there is none."""
    history = History(request.run)
    record = history.record(on)
    names = history.measured(record)
    if not names:
        raise InputError(f"{request.run} has no finished record of {record.name}")
    return Provenance(request.run, request.checkpoint or names[-1], record)


def pool_seeds(
    pairs: Sequence[tuple[ArmRequest, Arm]],
) -> tuple[list[Arm], list[Finding]]:
    """The arms with the scores of all their training seeds, and notes; without further seeds unless
    every arm has some that were measured on the same items.
    """
    arms = [arm for _, arm in pairs]
    further = [[seed for seed in each.seeds if _same_items(seed, arm)] for each, arm in pairs]
    if all(further):
        return [_pooled(arm, seeds) for arm, seeds in zip(arms, further, strict=True)], []
    several = [arm.name for arm, seeds in zip(arms, further, strict=True) if seeds]
    return arms, [finding("one_seed", "note", names=", ".join(several))] if several else []


def _same_items(seed: ArmRequest, arm: Arm) -> bool:
    """Whether a further seed was measured on the same items as the arm."""
    wanted = arm.recorded.record
    return any(
        (r.name, r.items_hash) == (wanted.name, wanted.items_hash)
        and (
            measured_checkpoints(seed.run, r)
            if seed.checkpoint is None
            else r.finished(seed.run, seed.checkpoint)
        )
        for r in evaluation_records(seed.run)
    )


def _pooled(arm: Arm, further: Sequence[ArmRequest]) -> Arm:
    """One arm of several seeds, the highest first in every arm: of the first ones the manifests
    are compared, and the order in which runs were made is no difference between arms."""
    arms = [arm, *(own_arm(seed, arm.recorded.record.name) for seed in further)]
    seeds = {_seed(each.recorded.run): each for each in arms}
    ordered = [seeds[number] for number in sorted(seeds, reverse=True)]
    first, numbers = ordered[0].recorded, "+".join(map(str, sorted(seeds)))
    return with_seeds(ordered, f"{first.run.name}#{numbers}@{first.checkpoint}")


def _seed(run: RunDirectory) -> int:
    return stored_status(run.path).seed


MOST = 64
"""More repeats, seeds or arms than this are not planned for."""


@dataclass(frozen=True, slots=True)
class Pilot:
    """The source of the variances."""

    variances: Variances
    items: int = 0
    """Items that the pilot has; 0 where there is none."""
    seeds: int = 0
    repeats: int = 0
    evaluation: str = ""


def typed(discordance: float | None, score: float | None) -> Pilot:
    """Variances from one typed number. Raises InputError unless it is a share."""
    number = discordance if discordance is not None else score
    field = "--score" if discordance is None else "--discordance"
    if number is None or (discordance is not None and score is not None):
        problem = "a plan needs two pilot runs, --discordance or --score"
        raise InputError(problem, fix="give one of the three")
    if not 0 < number < 1:
        raise InputError(f"{number:g}", field=field, fix="a share between 0 and 1, such as 0.2")
    return Pilot(given_score(number) if discordance is None else given_discordance(number))


def pilot(root: Path, names: Sequence[str], on: str | None = None) -> Pilot:
    """Variances of two arms that were measured; a bare name stands for all its finished seeds.

    Raises RunNotFound, InputError, and what `judge.paired.compare` raises.
    """
    if len(names) != 2:
        raise InputError(f"{len(names)} pilot runs", fix="name two, the control first")
    requests = [arm_named(root, name) for name in names]
    sides = [(request, *request.seeds) for request in requests]
    known = [evaluation_records(each.run) for side in sides for each in side]
    evaluation = on or shared_evaluations(requests[0].run, known)[0]
    origins = [[origin_of(each, evaluation) for each in side] for side in sides]
    scores = [[read_scores(o.run, o.record, o.checkpoint) for o in side] for side in origins]
    whole = on_shared_items(*on_one_scale(*scores[0], *scores[1]))
    control, other = whole[: len(scores[0])], whole[len(scores[0]) :]
    return Pilot(
        variances_of(control, other),
        len(control[0].item_ids),
        min(len(control), len(other)),
        min(control[0].repeats, other[0].repeats),
        evaluation,
    )


def plan_from(pilot: Pilot, design: Design, difference: float, power: float) -> Plan:
    """The difference that the pilot's items can detect, then the items that the wanted difference
    needs, by a design without items. Raises InputError."""
    for name in ("arms", "seeds", "repeats"):
        lowest, count = 2 if name == "arms" else 1, getattr(design, name)
        if not lowest <= count <= MOST:
            raise InputError(str(count), field=f"--{name}", fix=f"from {lowest} to {MOST}")
    designs = [replace(design, items=pilot.items), design] if pilot.items else [design]
    return plan(pilot.variances, difference, designs, power)
