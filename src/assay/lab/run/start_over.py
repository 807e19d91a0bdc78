"""Takes a run back to a checkpoint, so that its stage and those after it are trained again.

All that came later is put aside: checkpoints, records, samples, metrics, reports, what was chosen.
Training again is the runner's part.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from assay.data.files import atomic_write_bytes, atomic_write_text
from assay.errors import InputError
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.read_file import read_experiment
from assay.lab.monitor.guards import PASSED, forget_passed
from assay.lab.monitor.observer import Observer
from assay.lab.monitor.report_journal import JOURNAL, forget_reports
from assay.lab.run.put_aside import Place, begin_aside, copy_aside, move_aside, move_checkpoints
from assay.runs.checkpoints import SELECTION, check_checkpoint, continuable, forget_selections
from assay.runs.metrics import check_history, cut_history
from assay.runs.registry import note_run
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import read_json
from assay.runs.run_names import checkpoint_steps
from assay.runs.status import hold_run, stored_status, write_status

BEGUN = "start-over.json"
"""Is there as long as a run is being taken back."""
PAGES = ("report.html", "report.md")


class NoStart(InputError):
    """A place that a run cannot be trained again from."""


@dataclass(frozen=True)
class Restart:
    """A run and the place in it to go back to."""

    run: RunDirectory
    start: Place

    @cached_property
    def stages(self) -> Sequence[str]:
        """The stages in their order."""
        return list(read_experiment(self.run.spec).stage)

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
    """Put aside what a run did after `STAGE.step-N`; step 0 is the start of the stage.

    Raises NoStart, CheckpointDamaged, HistoryLost, ProtectedPath, RunBusy, and changes nothing.
    """
    with hold_run(run.path):
        restart = Restart(run, find_start(run, place))
        before = restart.before
        if before is not None:
            check_history(run, before.stage, before.step)
        aside = begin_aside(run, restart.dropped, restart.start)
        atomic_write_text(run.path / BEGUN, json.dumps({"from": place}) + "\n")
        # Whatever happens from here on, the run is not what it was when it finished.
        start = restart.start
        status = replace(stored_status(run.path), status="interrupted", message="", guard="")
        write_status(run.path, replace(status, finished="", stage=start.stage, step=start.step))
        _forget(restart, aside)
        move_checkpoints(run, restart.dropped, aside)
        if before is None:
            atomic_write_bytes(run.metrics, b"")
        else:
            cut_history(run, before.stage, before.step)
        (run.path / BEGUN).unlink()
    note_run(run)
    observer.note(f"{run} starts over from {start}; what came later lies in {aside}")


def begun(run: RunDirectory) -> str:
    """The place that a run was being taken back to when its process was killed; "" if none."""
    file = run.path / BEGUN
    return str(read_json(file, dict).get("from", "")) if file.exists() else ""


def find_start(run: RunDirectory, text: str) -> Place:
    """The place that `STAGE.step-N` means. Raises NoStart, CheckpointDamaged."""
    stages = read_experiment(run.spec).stage
    reference = parse_checkpoint(text)
    if reference is None or reference.step is None or reference.stage not in stages:
        raise NoStart(f"{text!r} is no step of a stage of {run}", fix=_possible(run, stages))
    place = Place(reference.stage, reference.step)
    folder = run.checkpoint(place.stage, place.step)
    if not place.step:
        return place
    if not continuable(folder):
        lacks = "has no optimizer state" if folder.is_dir() else "does not exist"
        fix = _possible(run, [place.stage])
        raise NoStart(f"{run}: checkpoint {place} {lacks}, which continuing needs", fix=fix)
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
        copy_aside(run, run.path / name, aside)
    forget_selections(run.path, set(stages))
    forget_passed(run.path, restart.kept)
    forget_reports(run, restart.kept)
    for stage in stages:
        files = [*run.path.glob(f"samples/{stage}/*"), *run.path.glob(f"reports/{stage}/*")]
        records = run.evaluations.glob(f"*/{stage}.step-*")
        for file in (*files, *records):
            step = int(file.name.partition("step-")[2].partition(".")[0])
            if not restart.kept(stage, step):
                move_aside(run, file, aside)
    for name in PAGES:
        move_aside(run, run.path / name, aside)
