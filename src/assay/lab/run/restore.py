"""Takes a run back to a checkpoint: the newest complete one, or one that the user names.

Later checkpoints and records are moved to a folder of their own, and the manifest says where and
why; nothing is deleted. Rewards of the removed steps stay journalled, so that training again gives
the same ones. `runner` trains again.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import torch

from assay.data.files import atomic_write_bytes, atomic_write_text
from assay.errors import InputError
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.lab.monitor.guards import PASSED, forget_passed
from assay.lab.monitor.observer import Observer
from assay.lab.monitor.progress import JOURNAL, forget_reports
from assay.rl.policy import Policy
from assay.runs.checkpoints import (
    SELECTION,
    check_checkpoint,
    continuable,
    forget_selections,
    step_name,
)
from assay.runs.manifest_file import PUT_ASIDE, read_manifest, write_manifest
from assay.runs.metrics import check_history, cut_history
from assay.runs.protection import guard_delete
from assay.runs.registry import note_run
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import DamagedFile, read_json
from assay.runs.run_names import checkpoint_steps, experiment_of
from assay.runs.status import hold_run, start_sinks_over, stored_status, write_status
from assay.train.checkpoint import NotContinuable, TrainState, load_checkpoint

ASIDE = "aside"


@dataclass(frozen=True, slots=True)
class Place:
    """A step of a stage; step 0 is its start."""

    stage: str
    step: int

    def __str__(self) -> str:
        return f"{self.stage}.{step_name(self.step)}"


def begin_aside(
    run: RunDirectory, checkpoints: Sequence[Place], start: Place, damage: str = ""
) -> Path:
    """Record in the manifest which checkpoints are put aside; returns their new folder.

    `start` is where the run continues, `damage` the damaged file that is the reason. Raises
    InputError if a checkpoint is protected or other runs need it.
    """
    for place in checkpoints:
        guard_delete(run.root, run.checkpoint(place.stage, place.step), within=run.path)
    taken = [int(p.name) for p in (run.path / ASIDE).glob("[0-9]*") if p.name.isdigit()]
    aside = run.path / ASIDE / f"{max(taken, default=0) + 1:03d}"
    manifest = read_manifest(run)
    entry = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "checkpoints": [str(place) for place in checkpoints],
        "start": str(start),
        "damage": damage,
        "folder": aside.relative_to(run.path).as_posix(),
    }
    manifest.setdefault("time", {}).setdefault(PUT_ASIDE, []).append(entry)
    write_manifest(run, manifest)
    return aside


def move_checkpoints(run: RunDirectory, checkpoints: Sequence[Place], aside: Path) -> None:
    """Move checkpoints, the last first and each after its records. So a kill leaves no record
    without its checkpoint, and no checkpoint without earlier ones."""
    for place in reversed(checkpoints):
        records = sorted(run.evaluations.glob(f"*/{place}.*"))  # finished and unfinished
        for path in (*records, run.checkpoint(place.stage, place.step)):
            move_aside(run, path, aside)


def move_aside(run: RunDirectory, path: Path, aside: Path) -> None:
    """Move a file or folder of the run, if it is there."""
    if path.exists():
        path.rename(_room(run, path, aside))


def _room(run: RunDirectory, path: Path, aside: Path) -> Path:
    target = aside / path.relative_to(run.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def is_whole(run: RunDirectory, stage: str, step: int) -> bool:
    """Whether every file of a checkpoint is as it was written, but for the optimizer's state."""
    try:
        check_checkpoint(run.checkpoint(stage, step), fix="")
    except DamagedFile:
        return False
    return True


def restore(
    run: RunDirectory,
    stage: str,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    observer: Observer,
) -> TrainState:
    """The state in the stage's newest complete checkpoint, or a fresh one if there is none. Raises
    DamagedFile if damage leaves only checkpoints without optimizer state."""
    state, damaged = TrainState(), dict[Place, DamagedFile]()
    gone: NotContinuable | None = None
    for step in reversed(checkpoint_steps(run, stage)):
        try:
            state, gone = load_checkpoint(run.checkpoint(stage, step), policy, optimizer), None
            break
        except DamagedFile as problem:
            damaged[Place(stage, step)] = problem
        except NotContinuable as problem:
            gone = gone or problem
    if gone is not None:
        raise _stuck(run, stage, damaged, gone)
    if damaged:
        _tell(run, Place(stage, state.step), damaged, observer)
    return state


def _stuck(
    run: RunDirectory,
    stage: str,
    damaged: dict[Place, DamagedFile],
    gone: NotContinuable,
) -> DamagedFile | NotContinuable:
    """Why the stage cannot continue without the user."""
    fix = f"start the stage over: assay resume {run} --from {stage}.step-0"
    if not damaged:
        return NotContinuable(gone.problem, file=gone.file, fix=fix)
    first = next(iter(damaged.values()))
    problem = f"{first.problem}, and no checkpoint before it keeps its optimizer state"
    return DamagedFile(problem, file=first.file, fix=fix)


def _tell(
    run: RunDirectory,
    start: Place,
    damaged: dict[Place, DamagedFile],
    observer: Observer,
) -> None:
    """Put the damaged checkpoints aside, record it in the manifest and warn."""
    first = next(iter(damaged.values()))
    places = sorted(damaged, key=lambda p: p.step)
    aside = begin_aside(run, places, start, str(first.file).removeprefix(f"{run.path}/"))
    move_checkpoints(run, places, aside)
    for place, problem in damaged.items():
        observer.note(
            f"warning: {place} is damaged: {problem.file}: {problem.problem}; it now lies in "
            f"{aside}, and the stage goes on from {start}"
        )


RESTART = "start-over.json"
"""Exists while a run is being taken back."""


@dataclass(frozen=True)
class Restart:
    """A run and the place in it to go back to."""

    run: RunDirectory
    start: Place

    @cached_property
    def stages(self) -> Sequence[str]:
        """The stages in their order."""
        return list(experiment_of(self.run).stage)

    @property
    def again(self) -> Sequence[str]:
        """The stages that are trained again, in whole or in part."""
        return self.stages[self.stages.index(self.start.stage) :]

    def kept(self, stage: str, step: int) -> bool:
        """Whether a step of a stage stays."""
        return stage not in self.again or (stage == self.start.stage and step <= self.start.step)

    @property
    def dropped(self) -> list[Place]:
        """The checkpoints that do not stay, in the order in which they were made."""
        steps = ((s, n) for s in self.again for n in checkpoint_steps(self.run, s))
        return [Place(stage, step) for stage, step in steps if not self.kept(stage, step)]

    @property
    def before(self) -> Place | None:
        """The newest checkpoint that stays."""
        if self.start.step:
            return self.start
        done = self.stages[: self.stages.index(self.start.stage)]
        newest = [Place(s, n) for s in done for n in checkpoint_steps(self.run, s)[-1:]]
        return newest[-1] if newest else None


def start_over(run: RunDirectory, place: str, observer: Observer) -> None:
    """Put aside what a run did after `STAGE.step-N`; step 0 is the start of the stage. Raises
    InputError, DamagedFile, InputError, RunBusy, and changes nothing."""
    with hold_run(run.path):
        restart = Restart(run, find_start(run, place))
        before = restart.before
        if before is not None:
            check_history(run, before.stage, before.step)
        aside = begin_aside(run, restart.dropped, restart.start)
        atomic_write_text(run.path / RESTART, json.dumps({"from": place}) + "\n")
        # From here on the run is no longer finished, even if this process is killed.
        start = restart.start
        status = replace(stored_status(run.path), status="interrupted", message="", guard="")
        write_status(run.path, replace(status, finished="", stage=start.stage, step=start.step))
        _forget(restart, aside)
        move_checkpoints(run, restart.dropped, aside)
        if before is None:
            atomic_write_bytes(run.metrics, b"")
        else:
            cut_history(run, before.stage, before.step)
        (run.path / RESTART).unlink()
    note_run(run)
    observer.note(f"{run} starts over from {start}; what came later lies in {aside}")


def unfinished_restart(run: RunDirectory) -> str:
    """The place that a run was being taken back to when its process was killed; "" if none."""
    file = run.path / RESTART
    return str(read_json(file, dict).get("from", "")) if file.exists() else ""


def find_start(run: RunDirectory, text: str) -> Place:
    """The place that `STAGE.step-N` means. Raises InputError, DamagedFile."""
    stages = experiment_of(run).stage
    reference = parse_checkpoint(text)
    if reference is None or reference.step is None or reference.stage not in stages:
        raise InputError(f"{text!r} is no step of a stage of {run}", fix=_possible(run, stages))
    place = Place(reference.stage, reference.step)
    folder = run.checkpoint(place.stage, place.step)
    if not place.step:
        return place
    if not continuable(folder):
        lacks = "has no optimizer state" if folder.is_dir() else "does not exist"
        fix = _possible(run, [place.stage])
        raise InputError(f"{run}: checkpoint {place} {lacks}, which continuing needs", fix=fix)
    check_checkpoint(folder, fix=_possible(run, [place.stage]), optimizer=True)
    return place


def _possible(run: RunDirectory, stages: Sequence[str] | dict) -> str:
    """Places that can be started from."""
    places = [
        f"{stage}.step-{step}"
        for stage in stages
        for step in (0, *checkpoint_steps(run, stage))
        if not step or continuable(run.checkpoint(stage, step))
    ]
    return "it can start from " + ", ".join(places)


def _forget(restart: Restart, aside: Path) -> None:
    """Put aside what was recorded of the later steps, but for checkpoints and metrics."""
    run, stages = restart.run, restart.again
    for name in (SELECTION, PASSED, JOURNAL, run.metrics.name):
        if (run.path / name).exists():  # before it is written anew
            shutil.copy2(run.path / name, _room(run, run.path / name, aside))
    forget_selections(run.path, set(stages))
    forget_passed(run.path, restart.kept)
    forget_reports(run, restart.kept)
    start_sinks_over(run.path)
    for stage in stages:
        move_aside(run, run.trainer(stage), aside)
        files = [*run.path.glob(f"samples/{stage}/*"), *run.path.glob(f"reports/{stage}/*")]
        records = run.evaluations.glob(f"*/{stage}.step-*")
        for file in (*files, *records):
            step = int(file.name.partition("step-")[2].partition(".")[0])
            if not restart.kept(stage, step):
                move_aside(run, file, aside)
    for page in run.pages:
        move_aside(run, page, aside)
