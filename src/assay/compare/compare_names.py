"""Compares runs that the user names: runs of the lab, runs in files of other tools, or both.

Finds and loads the arms; `judged_table` compares them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from assay.compare.arm import Arm
from assay.compare.benchmarks_table import BenchmarksTable, benchmarks_table
from assay.compare.fairness import DECLARED, Terms, check_finished
from assay.compare.foreign_arms import (
    ReadOptions,
    distinct_names,
    is_file,
    joined_logs,
    on_items_of,
    read_arms,
)
from assay.compare.judged_table import compare_arms, make_table
from assay.compare.named_arms import (
    ArmRequest,
    arm_named,
    check_apart,
    control_first,
    damaged_seeds,
    file_control,
    own_arm,
    pool_seeds,
)
from assay.compare.table import Table, judged_again, with_trials
from assay.data.loaded import DataError
from assay.errors import Finding, InputError, finding, nearest
from assay.judge.verdict import asked_non_inferior, with_margin
from assay.runs.history import evaluation_records
from assay.runs.records import EvaluationRecord
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import DamagedFile
from assay.runs.run_names import experiment_of

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Options of a comparison."""

    control: str | None = None
    """The control; None: the one that the experiment files name, else the first."""
    on: str | None = None
    """Evaluation or benchmark; None: the first that all have."""
    allow: tuple[str, ...] = ()
    """Undeclared differences that the reader accepts."""
    files: ReadOptions = ReadOptions()
    margin: float | None = None
    """Points within which two scores are equivalent; None: 2."""
    non_inferior: float | None = None
    """The margin of non-inferiority in points; None: not tested."""


def compare_names(root: Path, names: Sequence[str], options: CompareOptions) -> Table:
    """The table of runs by NAME[@CHECKPOINT] and of files by FILE[@RUN].

    Raises InputError for a name that leads nowhere, and what `compare_arms` raises.
    """
    terms = Terms(allow=options.allow)
    if any(is_file(name) for name in names):
        read = partial(_read, root, options)
        table = compare_named(names, read, options.control, terms)
    elif field := _of_files_alone(options.files):
        fix = "the records of the lab say it themselves"
        raise InputError("is for files of other tools", field=field, fix=fix)
    else:
        names = control_first(root, names, options.control)
        damaged = damaged_seeds(root, names)
        table = compare_requests([arm_named(root, name) for name in names], options.on, terms)
        table = replace(table, findings=(*damaged, *table.findings))
    table = with_trials(table)
    if options.margin is not None:
        table = judged_again(table, partial(with_margin, margin=options.margin / 100))
    if options.non_inferior is not None:
        change = partial(asked_non_inferior, margin=options.non_inferior / 100)
        table = judged_again(table, change)
    return table


def _of_files_alone(options: ReadOptions) -> str:
    """The option that a comparison of the lab's own runs cannot have; empty where there is none."""
    given = {"--cluster": options.cluster, "--item": options.columns}
    given |= {"--higher-is-better": options.higher_is_better}
    return next((name for name, value in given.items() if value is not None), "")


def compare_on_several(
    root: Path,
    names: Sequence[str],
    options: CompareOptions,
    on: Sequence[str],
    figures: Mapping[str, float],
) -> BenchmarksTable:
    """The table of runs on several evaluations or benchmarks, against the control or `figures`.

    One run alone is shown beside figures. Raises what `compare_names` and `benchmarks_table` raise.
    """
    files = [name for name in names if is_file(name)]
    if files:
        fix = "compare them on one benchmark, without --ratios-to"
        raise InputError(f"{files[0]!r} is a file of another tool", field="--on", fix=fix)
    asked = list(dict.fromkeys(on or figures))
    alone = len(names) == 1 and options.control is None and not file_control(root, names[0])
    if alone and figures:
        tables = [_alone(root, names[0], each) for each in asked]
    else:
        tables = [compare_names(root, names, replace(options, on=each)) for each in asked]
    return benchmarks_table(tables, figures)


def _alone(root: Path, name: str, on: str) -> Table:
    """A run without a control, with all its seeds."""
    request = arm_named(root, name)
    arms, _ = pool_seeds([own_arm(request, on)], [request])
    return make_table(arms, {})


def _read(root: Path, options: CompareOptions, name: str) -> list[Arm]:
    """The arms of a file, or of a run of the lab."""
    if is_file(name):
        return read_arms(name, options.files)
    return [own_arm(arm_named(root, name), options.on)]


def compare_runs(
    run_a: RunDirectory, run_b: RunDirectory, on: str | None = None, terms: Terms = DECLARED
) -> Table:
    """The last measured checkpoint of `run_b` against that of `run_a`; see `compare_requests`."""
    return compare_requests([ArmRequest(run_a), ArmRequest(run_b)], on, terms)


def compare_requests(
    requests: Sequence[ArmRequest], on: str | None = None, terms: Terms = DECLARED
) -> Table:
    """Checkpoints of runs of a lab against the first one's; see `compare_arms`.

    `on` names an evaluation or a benchmark; omitted, the control's first reporting evaluation that
    all runs have. Where every arm has further seeds the methods are compared, with seeds sampled as
    items are. An arm whose files are damaged is left out and named in `left_out` as long as two
    remain; the next takes the place of a damaged control. Raises InputError where there is no
    record, DamagedFile where one arm is left, and what `compare_arms` raises.
    """
    for request in requests:
        check_finished(request.run)
    loaded = _load(requests, on)
    check_apart(loaded.arms, loaded.requests)
    arms, notes = pool_seeds(loaded.arms, loaded.requests)
    table = compare_arms(arms, terms, [*loaded.findings, *notes])
    return replace(table, left_out=tuple(loaded.left_out))


def compare_named(
    names: Sequence[str],
    read: Callable[[str], list[Arm]],
    control: str | None = None,
    terms: Terms = DECLARED,
) -> Table:
    """Everything that `read` finds under the names, against the first or the one called `control`.

    What is damaged is named in `left_out` and the others are still compared, unless it holds the
    control, or leaves fewer than two. Raises InputError for an unknown control, and what `read`
    and `compare_arms` raise.
    """
    arms: list[Arm] = []
    files: list[str] = []
    damaged: list[InputError] = []
    for name in names:
        try:
            found = read(name)
        except (DataError, DamagedFile) as error:
            if name == names[0] and control is None:
                raise
            damaged.append(error)
            continue
        arms += found
        files += [name] * len(found)
    if damaged and len(arms) < 2:
        raise damaged[0]
    named = _control_first(distinct_names(*joined_logs(arms, files)), control)
    matched = [named[0], *(on_items_of(named[0], arm) for arm in named[1:])]
    moved = [new.name for old, new in zip(named, matched, strict=True) if new is not old]
    notes = [finding("paired_by_text", "note", names=", ".join(moved))] if moved else []
    table = compare_arms(matched, terms, notes)
    return replace(table, left_out=tuple(Finding("error", str(e), "", "") for e in damaged))


def _control_first(arms: Sequence[Arm], control: str | None) -> list[Arm]:
    if control is None:
        return list(arms)
    found = [arm for arm in arms if control in (arm.name, arm.name.rpartition("@")[2])]
    if len(found) != 1:
        fix = nearest(control, [arm.name for arm in arms])
        problem = f"{len(found) or 'no'} runs are called {control!r}"
        raise InputError(problem, field="--control", fix=fix)
    return [*found, *(arm for arm in arms if arm is not found[0])]


@dataclass(frozen=True)
class _Loaded:
    """The arms that could be read, with what each was loaded from."""

    arms: list[Arm]
    requests: list[ArmRequest]
    left_out: list[Finding]
    """One for each arm that could not be read."""
    findings: list[Finding] = field(default_factory=list)
    """Other evaluations that they could be compared on, if the user named none."""


def _load(requests: Sequence[ArmRequest], on: str | None) -> _Loaded:
    """The arms that can be read; raises where one is left."""
    known, damaged = _attempt(requests, lambda each: evaluation_records(each.run))
    findings: list[Finding] = []
    if on is None and known:
        on, *others = _shared_evaluations(requests[0].run, [records for _, records in known])
        findings = [_also_on(on, others)] if others else []
    arms, more = _attempt([each for each, _ in known], lambda each: own_arm(each, on))
    damaged |= more
    if damaged and len(arms) < 2:
        raise next(iter(damaged.values()))
    left_out = [_left_out(each, error, each is requests[0]) for each, error in damaged.items()]
    return _Loaded([arm for _, arm in arms], [each for each, _ in arms], left_out, findings)


def _attempt(
    requests: Sequence[ArmRequest], read: Callable[[ArmRequest], Value]
) -> tuple[list[tuple[ArmRequest, Value]], dict[ArmRequest, InputError]]:
    """The arms that could be read, and those whose files are damaged."""
    found, damaged = [], {}
    for request in requests:
        try:
            found.append((request, read(request)))
        except DamagedFile as error:
            damaged[request] = error
    return found, damaged


def _left_out(request: ArmRequest, error: InputError, was_control: bool) -> Finding:
    code = "control_left_out" if was_control else "left_out"
    why = f"{error.file}: {error.problem}"
    return finding(code, "error", run=request.run, why=why, fix=error.fix or "")


def _shared_evaluations(
    first: RunDirectory, known: Sequence[Sequence[EvaluationRecord]]
) -> list[str]:
    """The reporting evaluations of the first run that every run has a record of, in its order."""
    names = [{record.name for record in records} for records in known]
    reporting = experiment_of(first).evaluate.items()
    shared = [
        name
        for name, spec in reporting
        if spec.role == "report" and all(name in each for each in names)
    ]
    if not shared:
        raise InputError("the runs share no reporting evaluation", fix="name one with --on")
    return shared


def _also_on(on: str, others: Sequence[str]) -> Finding:
    return finding("first_shared", "note", on=on, others=", ".join(others))
