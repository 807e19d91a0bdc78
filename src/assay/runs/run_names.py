"""Finds runs and checkpoints by name.

Names are `NAME[/ID or #SEED][@STAGE.step-N | @STAGE.best | @STAGE.last]`, and `SWEEP[#SEED]@winner`
for the run and checkpoint that a sweep chose (`sweeps/NAME/winner.json`). A bare name means the
latest run of that name. Reads only folders, never the index.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.data.files import kept, sha256_file
from assay.errors import InputError, nearest
from assay.experiment.checkpoint_reference import (
    CheckpointReference,
    Rule,
    checkpoint_name,
    parse_checkpoint,
)
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import OTHER_RUN, StageSpec
from assay.runs.run_directory import (
    RunDirectory,
    all_runs,
    check_checkpoint,
    folders_in,
    read_manifest,
    runs_of,
    seed_or_damage,
)
from assay.runs.run_files import (
    FIX,
    DamagedFile,
    as_entry,
    check_listed,
    read_json,
    read_selection,
    write_json,
)

_PATTERN = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,254})"
    r"(?:/(?P<id>[A-Za-z0-9-]{1,255})|#(?P<seed>-?[0-9]{1,19}))?(?:@(?P<checkpoint>.+))?"
)
WINNER = "winner"
"""What stands for a checkpoint in the name of a sweep's winner."""


class RunNotFound(InputError):
    """No run, or no checkpoint, has this name."""


@dataclass(frozen=True, slots=True)
class RunReference:
    """A run by name, and perhaps one of its checkpoints."""

    name: str
    id: str | None = None
    """A run's id, or its last part."""
    seed: int | None = None
    checkpoint: CheckpointReference | None = None
    winner: bool = False
    """Whether `name` is a sweep, whose recorded winner is meant."""


def parse_run_name(text: str) -> RunReference:
    """Read a name. Raises InputError."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        fix = "write NAME, NAME/ID or NAME#SEED, then @STAGE.last for a checkpoint"
        raise InputError(f"{text!r} is not the name of a run", fix=fix)
    seed = int(match["seed"]) if match["seed"] else None
    if match["checkpoint"] == WINNER and match["id"] is None:
        return RunReference(match["name"], None, seed, winner=True)
    checkpoint = None
    if match["checkpoint"] is not None:
        checkpoint = parse_checkpoint(match["checkpoint"])
        if checkpoint is None or checkpoint.which == "all":
            fix = "write STAGE.best, STAGE.last or STAGE.step-N after the @"
            raise InputError(f"{match['checkpoint']!r} is not a checkpoint", fix=fix)
    return RunReference(match["name"], match["id"], seed, checkpoint)


def read_run_name(root: Path, text: str) -> RunReference:
    """`parse_run_name`, a sweep's winner as its run and checkpoint. Raises InputError."""
    return _of_winner(root, parse_run_name(text))


def _of_winner(root: Path, reference: RunReference) -> RunReference:
    """The run and the checkpoint that a sweep chose; any other reference as it is."""
    if not reference.winner:
        return reference
    winner = winner_of(root, reference.name)
    chosen = winner.chosen_run(reference.seed)
    if chosen is None:
        fix = "it has seeds " + ", ".join(winner.runs)
        raise RunNotFound(f"the winner of {reference.name!r} has no such seed", fix=fix)
    name, _, id_ = chosen.run.partition("/")
    return RunReference(name, id_, None, parse_checkpoint(chosen.checkpoint))


def find_run(root: Path, reference: RunReference) -> RunDirectory:
    """The latest run that the reference fits. Raises RunNotFound with the nearest names."""
    reference = _of_winner(root, reference)
    runs = runs_of(root, reference.name)
    if not runs:
        names = {run.name for run in all_runs(root)}
        fix = nearest(reference.name, names) if names else f"no runs in {root}"
        raise RunNotFound(f"no run named {reference.name!r}", fix=fix)
    if reference.id is not None:
        matches = [r for r in runs if reference.id in (r.id, r.id.rpartition("-")[2])][:1]
        what, fix = f"run {reference.id!r}", nearest(reference.id, [run.id for run in runs])
    elif reference.seed is not None:
        seeds = {run: seed_or_damage(run.path) for run in runs}
        matches = [run for run in runs if seeds[run] == reference.seed][-1:]
        known = ", ".join(map(str, sorted(set(seeds.values()), key=str)))
        what, fix = f"run with seed {reference.seed}", f"it has seeds {known}"
    else:
        return runs[-1]
    if not matches:
        raise RunNotFound(f"{runs[0].name!r} has no {what}", fix=fix)
    return matches[0]


def resolve_checkpoint(run: RunDirectory, reference: CheckpointReference) -> CheckpointReference:
    """The `base` or `STAGE.step-N` that a reference means. Raises RunNotFound.

    `STAGE.best` may be what the stage started from, so that its stage may be another. Step 0 of a
    stage is its start where that lies in another run (`located`).
    """
    if reference.stage is None:
        return reference
    if reference.step == 0 and _noted_start(run, reference.stage):
        return reference
    if reference.which == "all":
        raise RunNotFound(f"{run}: 'all' is no single checkpoint", fix="name a stage's checkpoint")
    steps = run.checkpoint_steps(reference.stage)
    if not steps:
        known = ", ".join(folder.name for folder in folders_in(run.path / "checkpoints"))
        fix = f"it has checkpoints of {known}" if known else "it has no checkpoints yet"
        raise RunNotFound(f"{run} has no checkpoint of {reference.stage!r}", fix=fix)
    if reference.rule is not None:
        return resolve_checkpoint(run, _chosen(run, reference.stage, reference.rule))
    step = steps[-1] if reference.which == "last" else reference.step
    if step not in steps:
        name = f"{reference.stage}.step-{step}"
        fix = nearest(name, [f"{reference.stage}.step-{each}" for each in steps])
        raise RunNotFound(f"{run} has no checkpoint {name}", fix=fix)
    return CheckpointReference(reference.stage, "step", step)


Located = tuple[RunDirectory, CheckpointReference]
"""A run, and a checkpoint of it by its step."""


def located(run: RunDirectory, reference: CheckpointReference) -> Located:
    """Where a checkpoint lies: in the run, or in another one that a stage of it starts from.

    Raises RunNotFound.
    """
    checkpoint = resolve_checkpoint(run, reference)
    if checkpoint.stage is None or checkpoint.step != 0:
        return run, checkpoint
    return recorded_place(run.root, _noted_start(run, checkpoint.stage))


def stage_start(run: RunDirectory, stage: StageSpec) -> Located:
    """Where a stage's start lies.

    A name in another run means what it meant when this run was made, as its manifest says. Raises
    RunNotFound.
    """
    if stage.starts_from is not None:
        return located(run, stage.starts_from)
    for name, table in read_manifest(run).get("stages", {}).items():
        if table.get("start") == stage.start and (noted := _noted_start(run, name)):
            return recorded_place(run.root, noted)
    return located(*find_named(run.root, stage.start.removeprefix(OTHER_RUN)))


def _noted_start(run: RunDirectory, stage: str) -> Mapping[str, str]:
    """Where the manifest says that a stage's start lies; empty where that is the run itself."""
    return read_manifest(run).get("stages", {}).get(stage, {}).get("from", {})


def recorded_place(root: Path, noted: Mapping[str, str]) -> Located:
    """What a manifest names: a checkpoint by its folder in the lab, or the base of a run."""
    if "checkpoint" not in noted:
        return RunDirectory(root, *noted["run"].split("/")), CheckpointReference(None)
    _, name, id_, _, stage, step = noted["checkpoint"].split("/")
    number = int(step.removeprefix("step-"))
    return RunDirectory(root, name, id_), CheckpointReference(stage, "step", number)


def recorded_start(run: RunDirectory, name: str, stage: StageSpec) -> CheckpointReference:
    """The start of a stage as the run's records know it: `base`, `sft.step-000040`, or step 0 of
    the stage itself where another run holds it. Raises RunNotFound."""
    if stage.starts_from is None:
        return CheckpointReference(name, "step", 0)
    return resolve_checkpoint(run, stage.starts_from)


def checkpoint_directory(run: RunDirectory, reference: CheckpointReference) -> Path:
    """The folder of one checkpoint of a trained stage. Raises RunNotFound."""
    holder, checkpoint = located(run, reference)
    if checkpoint.stage is None or checkpoint.step is None:
        if reference.stage is None:
            raise RunNotFound(f"{run}: 'base' has no folder", fix="name a stage's checkpoint")
        problem = f"{run}: the best of {reference.stage!r} is the model that the run began with"
        raise RunNotFound(problem, fix="name that model, or a checkpoint of the stage")
    return holder.checkpoint(checkpoint.stage, checkpoint.step)


def checked_directory(run: RunDirectory, reference: CheckpointReference) -> Path:
    """The folder of a checkpoint, after its checksums are verified.

    Raises RunNotFound, DamagedFile.
    """
    directory = checkpoint_directory(run, reference)
    check_checkpoint(directory, fix=f"restore it, or train {run.name} again with --new")
    return directory


def _chosen(run: RunDirectory, stage: str, rule: Rule) -> CheckpointReference:
    chosen = read_selection(run.path, stage, rule)
    checkpoint = parse_checkpoint(chosen.checkpoint) if chosen else None
    if checkpoint is None:
        what = "the best" if rule == "gate" else f"a checkpoint by {rule}"
        raise RunNotFound(f"{run} has not chosen {what} of {stage!r}", fix=f"take {stage}.last")
    return checkpoint


def experiment_of(run: RunDirectory) -> Experiment:
    """The resolved experiment of a run. Raises InputError."""
    return _experiment_in(run.spec)


@kept(256)
def _experiment_in(spec: Path) -> Experiment:
    experiment = read_experiment(spec)
    check_listed(spec, sha256_file(spec))
    return experiment


def find_named(root: Path, name: str) -> tuple[RunDirectory, CheckpointReference]:
    """The run and the checkpoint of `NAME@CHECKPOINT`. Raises InputError, RunNotFound."""
    named = read_run_name(root, name)
    run = find_run(root, named)
    if named.checkpoint is None:
        stages = ", ".join(f"{named.name}@{s}.last" for s in experiment_of(run).stage)
        fix = f"write {named.name}@base" + (f" or {stages}" if stages else "")
        raise InputError(f"{name!r} names no checkpoint", fix=fix)
    return run, resolve_checkpoint(run, named.checkpoint)


def run_checkpoint(name: str, root: Path) -> tuple[RunDirectory, CheckpointReference, Path]:
    """The run, the checkpoint and its folder. Raises RunNotFound, InputError for a bare name."""
    reference = read_run_name(root, name)
    run = find_run(root, reference)
    if reference.checkpoint is None:
        raise InputError(f"run:{name} names no checkpoint", fix=f"write run:{name}@STAGE.last")
    return run, reference.checkpoint, checkpoint_directory(run, reference.checkpoint)


SWEEPS = "sweeps"
WINNER_FILE = "winner.json"


@dataclass(frozen=True, slots=True)
class WinningRun:
    """One run of the winning point."""

    run: str
    """NAME/ID."""
    checkpoint: str
    """As records name it: `base` or `sft.step-000040`."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The winning point of a sweep with the evidence for it."""

    sweep: str
    runs: Mapping[str, WinningRun]
    """By training seed; the first is what `SWEEP@winner` means."""
    setting: Mapping[str, Any]
    """Its values on the axes of the table."""
    points: int
    """Points that it is the best of."""
    rule: str
    evidence: Mapping[str, Any]
    chosen: str
    """When, in UTC."""

    def chosen_run(self, seed: int | None = None) -> WinningRun | None:
        """The run of a training seed, or of the first."""
        return self.runs.get(str(seed)) if seed is not None else next(iter(self.runs.values()))


def write_winner(root: Path, winner: Winner) -> Path:
    """Store the winner of a sweep, whole or not at all; returns the file."""
    file = root / SWEEPS / winner.sweep / WINNER_FILE
    write_json(file, {"schema": 1, **asdict(winner)})
    return file


def read_winner(root: Path, sweep: str) -> Winner | None:
    """The recorded winner of a sweep; None before there is one. Raises DamagedFile."""
    file = root / SWEEPS / sweep / WINNER_FILE
    if not file.exists():
        return None
    values = read_json(file, dict)
    values.pop("schema", None)
    winner = as_entry(Winner, values, file)
    if not winner.runs:
        raise DamagedFile("cannot be read: it names no runs", file=file, fix=FIX)
    if winner.sweep != sweep:
        raise DamagedFile(f"is of the sweep {winner.sweep}", file=file, fix=FIX)
    return winner


def chosen_checkpoints(root: Path) -> Iterator[tuple[Path, str]]:
    """The file of every recorded winner with each of its checkpoints, by path in the lab.

    Raises DamagedFile.
    """
    for file in sorted((root / SWEEPS).glob(f"*/{WINNER_FILE}")):
        winner = read_winner(root, file.parent.name)
        for chosen in winner.runs.values() if winner else ():
            stage, _, step = chosen.checkpoint.partition(".")
            inner = f"/checkpoints/{stage}/{step}" if step else ""
            yield file, f"runs/{chosen.run}{inner}"


def winner_of(root: Path, sweep: str) -> Winner:
    """The recorded winner. Raises InputError."""
    winner = read_winner(root, sweep)
    if winner is not None:
        return winner
    folder = root / SWEEPS
    known = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    fix = nearest(sweep, known) if known and sweep not in known else "'assay fill' its sweep file"
    raise InputError(f"no sweep {sweep!r} has chosen a winner", fix=fix)


def start_source(run: RunDirectory, name: str, experiment: Experiment) -> str:
    """The model that a stage of a run under way starts from. Raises RunNotFound."""
    holder, reference = located(run, recorded_start(run, name, experiment.stage[name]))
    if reference.stage is None:
        return experiment.model
    return f"{OTHER_RUN}{holder}@{checkpoint_name(reference)}"
