"""Checkpoint folders without their tensors: names, completeness, and which one is `STAGE.best`.

`train.checkpoint` writes and loads the tensors; this module needs no torch. How the best checkpoint
is chosen is in `judge.selection`.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.data.files import find_damage
from assay.errors import InputError
from assay.runs.run_files import as_entry, read_json, write_listed

STATE = "state.json"


OPTIMIZER = "optimizer.pt"


class CheckpointDamaged(InputError):
    """A file of a checkpoint is missing, or is not as it was written."""


def step_name(step: int) -> str:
    """Folder name of the checkpoint after `step` steps."""
    return f"step-{step:06d}"


def steps_in(folder: Path) -> list[int]:
    """Steps of the complete checkpoints in a stage's folder, ascending."""
    found = folder.glob("step-*") if folder.is_dir() else ()
    return sorted(int(p.name.removeprefix("step-")) for p in found if (p / STATE).is_file())


def check_checkpoint(checkpoint: Path, fix: str, *, optimizer: bool = False) -> None:
    """Raise CheckpointDamaged, with `fix`, unless every file is as it was written.

    The optimizer's state counts where `optimizer` says so: it may have been removed, and only a
    stage that continues reads it. Checkpoints of older versions have no checksums to compare.
    """
    for damage in find_damage(checkpoint, unless=() if optimizer else (OPTIMIZER,)):
        raise CheckpointDamaged(damage.problem, file=damage.file, fix=fix)


def continuable(checkpoint: Path) -> bool:
    """Whether a checkpoint still has its optimizer state."""
    return (checkpoint / OPTIMIZER).is_file()


def drop_optimizers(folder: Path, keep: int) -> None:
    """Remove the optimizer state of the checkpoints in a stage's folder but the `keep` newest."""
    steps = steps_in(folder)
    for step in steps[: len(steps) - keep]:
        drop_optimizer(folder / step_name(step))


def drop_optimizer(checkpoint: Path) -> None:
    """Remove the optimizer state of a checkpoint: it is no longer to be continued from."""
    (checkpoint / OPTIMIZER).unlink(missing_ok=True)


SELECTION = "selection.json"


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected checkpoint of one stage. Checkpoints are named as in records."""

    checkpoint: str
    """`STAGE.best`: a checkpoint of the stage, or its start."""
    start: str
    """The stage's start."""
    evaluation: str
    """The selecting evaluation."""
    score: float
    """Score of `checkpoint` on dev items."""
    looks: int
    """Checkpoints that were compared with the start."""

    @property
    def promoted(self) -> bool:
        """Whether a later checkpoint took the place of the start."""
        return self.checkpoint != self.start


def write_selection(run: Path, stage: str, selection: Selection) -> None:
    """Store the selection of `stage` in the run folder."""
    chosen = _read(run) | {stage: asdict(selection)}
    write_listed(run, run / SELECTION, json.dumps(chosen, indent=2) + "\n")


def forget_selections(run: Path, stages: Collection[str]) -> None:
    """Remove the selections of stages that are trained again."""
    chosen = _read(run)
    if chosen.keys() & stages:
        left = {stage: selection for stage, selection in chosen.items() if stage not in stages}
        write_listed(run, run / SELECTION, json.dumps(left, indent=2) + "\n")


def read_selection(run: Path, stage: str) -> Selection | None:
    """The selection of `stage`; None before there is one."""
    chosen = _read(run).get(stage)
    return as_entry(Selection, chosen, run / SELECTION) if chosen else None


def read_selections(run: Path) -> dict[str, Selection]:
    """The selections by stage."""
    found = _read(run).items()
    return {stage: as_entry(Selection, chosen, run / SELECTION) for stage, chosen in found}


def _read(run: Path) -> dict:
    """The file; a run of the first version knows the step alone, and no start."""
    file = run / SELECTION
    found = read_json(file, dict) if file.exists() else {}
    for stage, chosen in found.items():
        if "step" in chosen:
            name = f"{stage}.step-{chosen.pop('step'):06d}"
            found[stage] = {"checkpoint": name, "start": "", "looks": 0, **chosen}
    return found
