"""Resolves the names that a user gives to arms: the control, checkpoints, training seeds.

How several seeds are pooled is in `judge.arms`; the arms are compared in `judged_table`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.compare.arm import Arm, Provenance, load_arm, with_seeds
from assay.compare.fairness import check_finished
from assay.compare.judged_table import check_distinct
from assay.errors import Finding, InputError, finding
from assay.experiment.checkpoint_reference import CheckpointReference, checkpoint_name
from assay.experiment.read_file import read_experiment
from assay.runs.checkpoints import Selection, read_selection
from assay.runs.history import evaluation_records, find_record, measured_checkpoints
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import (
    RunReference,
    experiment_of,
    find_run,
    parse_run_name,
    read_run_name,
    resolve_checkpoint,
)
from assay.runs.same_experiment import apart, begun, made_so, newest_by_seed
from assay.runs.status import read_status, stored_status


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


def control_first(root: Path, names: Sequence[str], control: str | None = None) -> list[str]:
    """The names of runs with the control first; one run alone is joined by its file's control.

    The control is the one asked for, else the one that the other runs' experiment files name, else
    the first. Raises InputError, and RunNotFound with the nearest names.
    """
    named = {name: file_control(root, name) for name in names}
    control = control or _named_by_the_others(named) or names[0]
    arranged = [control, *(name for name in names if name != control)]
    if len(arranged) < 2:
        fix = "name two, or a control in its experiment file"
        raise InputError(f"{names[0]!r} alone is compared with nothing", fix=fix)
    return arranged


def file_control(root: Path, name: str) -> str | None:
    """The control that the run's experiment file names."""
    return read_experiment(find_run(root, parse_run_name(name)).spec).control


def _named_by_the_others(named: dict[str, str | None]) -> str | None:
    """The control that every file with a control names; the given spelling is kept."""
    wanted = {control for control in named.values() if control is not None}
    if len(wanted) != 1:
        return None
    (control,) = wanted
    given = [name for name in named if parse_run_name(name).name == control]
    if len(given) == 1:
        return given[0]
    return control if not given and len(named) == 1 else None


def seeds_of(root: Path, reference: RunReference) -> list[RunDirectory]:
    """The run that a name means and, for a name without id and seed, the newest finished run of
    every other seed that was made from the same settings.

    Other seeds that are damaged are left out; `damaged_seeds` names them.
    """
    run = find_run(root, reference)
    if reference.id is not None or reference.seed is not None:
        return [run]
    experiment = experiment_of(run)
    sound, _ = apart(begun(root, run.name))
    done = [r for r in sound if read_status(r.path).status == "finished"]
    others = [r for r in newest_by_seed(done) if _seed(r) != _seed(run)]
    return [run, *(r for r in others if made_so(r, experiment))]


def arm_named(root: Path, text: str) -> ArmRequest:
    """A run and the checkpoint of it that a name means, with the other seeds of a bare name.

    Raises InputError, RunNotFound.
    """
    reference = read_run_name(root, text)
    wanted = reference.checkpoint
    first, *further = (
        ArmRequest(run)
        if wanted is None
        else ArmRequest(
            run, checkpoint_name(resolve_checkpoint(run, wanted)), kept=kept_start(run, wanted)
        )
        for run in seeds_of(root, reference)
    )
    return replace(first, seeds=tuple(further))


def kept_start(run: RunDirectory, wanted: CheckpointReference) -> Selection | None:
    """The choice of a stage's best checkpoint, where that is what the stage started from."""
    if wanted.stage is None or wanted.rule is None:
        return None
    chosen = read_selection(run.path, wanted.stage, wanted.rule)
    return None if chosen is None or chosen.promoted else chosen


def check_apart(arms: Sequence[Arm], requests: Sequence[ArmRequest]) -> None:
    """Refuse two names of one checkpoint, and say so where a gate kept a start."""
    names = [arm.name for arm in arms]
    for arm, request in zip(arms, requests, strict=True):
        if request.kept is not None and names.count(arm.name) > 1:
            looks = request.kept.looks
            raise InputError(
                f"{arm.name} is named twice: it is the start of a stage, and its best checkpoint "
                f"as well, because the {request.kept.rule} kept the start: none of {looks} later "
                "checkpoints was shown to be better on the dev items",
                fix="compare with the stage's .last, which is what training made",
            )
    check_distinct(names, "checkpoint")


def damaged_seeds(root: Path, names: Sequence[str]) -> list[Finding]:
    """A warning of each run that `seeds_of` leaves out because it cannot be read."""
    references = [read_run_name(root, name) for name in names]
    bare = [r for r in references if r.id is None and r.seed is None]
    damaged = [each for r in bare for each in apart(begun(root, r.name))[1]]
    found = [finding("left_out", "warning", run=each.run, why=each.why, fix="") for each in damaged]
    return list(dict.fromkeys(found))


def own_arm(request: ArmRequest, on: str | None = None) -> Arm:
    """The arm of one run of the lab, without its further seeds, on the evaluation or benchmark
    `on`, else on the first reporting evaluation.

    Raises InputError for an unfinished run, DamagedFile.
    """
    run = request.run
    check_finished(run)
    record = find_record(run, on or _first_reporting(run))
    checkpoint = request.checkpoint
    if checkpoint is None:
        names = measured_checkpoints(run, record)
        if not names:
            raise InputError(f"{run} has no finished record of {record.name}")
        checkpoint = names[-1]
    origin = Provenance(run, checkpoint, record)
    _ = origin.manifest  # a damaged one is refused here, where others can still be compared
    return load_arm(origin)


def _first_reporting(run: RunDirectory) -> str:
    for name, spec in experiment_of(run).evaluate.items():
        if spec.role == "report":
            return name
    raise InputError(f"{run} has no reporting evaluation", fix="name one with --on")


def pool_seeds(
    arms: Sequence[Arm], requests: Sequence[ArmRequest]
) -> tuple[list[Arm], list[Finding]]:
    """The arms with the scores of all their training seeds, and notes; without further seeds unless
    every arm has some that were measured on the same items.
    """
    further = [
        [seed for seed in request.seeds if _same_items(seed, arm)]
        for arm, request in zip(arms, requests, strict=True)
    ]
    if not all(further):
        several = [arm.name for arm, seeds in zip(arms, further, strict=True) if seeds]
        return list(arms), [_one_seed(several)] if several else []
    pooled = []
    for arm, seeds in zip(arms, further, strict=True):
        assert arm.provenance is not None
        record = arm.provenance.record
        pooled.append(_pooled([arm, *(own_arm(seed, record.name) for seed in seeds)]))
    return pooled, []


def _same_items(seed: ArmRequest, arm: Arm) -> bool:
    """Whether a further seed was measured on the same items as the arm."""
    assert arm.provenance is not None
    wanted = arm.provenance.record
    records = [r for r in evaluation_records(seed.run) if r.name == wanted.name]
    return any(
        r.items_hash == wanted.items_hash
        and (
            measured_checkpoints(seed.run, r)
            if seed.checkpoint is None
            else r.finished(seed.run, seed.checkpoint)
        )
        for r in records
    )


def _pooled(arms: Sequence[Arm]) -> Arm:
    """One arm of several seeds, the highest first in every arm: of the first ones the manifests
    are compared, and the order in which runs were made is no difference between arms."""
    seeds = {_seed(arm.provenance.run): arm for arm in arms if arm.provenance is not None}
    first, *further = (seeds[number] for number in sorted(seeds, reverse=True))
    assert first.provenance is not None
    numbers = "+".join(map(str, sorted(seeds)))
    name = f"{first.provenance.run.name}#{numbers}@{first.provenance.checkpoint}"
    return with_seeds(first, further, name)


def _one_seed(names: Sequence[str]) -> Finding:
    return finding("one_seed", "note", names=", ".join(names))


def _seed(run: RunDirectory) -> int:
    return stored_status(run.path).seed
