"""Checkpoint folders without their tensors: names and completeness.

`train.checkpoint` writes and loads the tensors; this module needs no torch.
"""

from pathlib import Path

from assay.data.files import Damage, compare, find_damage, recorded_checksums
from assay.runs.run_files import DamagedFile, read_json

STATE = "state.json"
OPTIMIZER = "optimizer.pt"


def step_name(step: int) -> str:
    """Folder name of the checkpoint after `step` steps."""
    return f"step-{step:06d}"


def steps_in(folder: Path) -> list[int]:
    """Steps of the complete checkpoints in a stage's folder, ascending."""
    folders = folder.glob("step-*") if folder.is_dir() else ()
    return sorted(int(p.name.removeprefix("step-")) for p in folders if (p / STATE).is_file())


def check_checkpoint(checkpoint: Path, fix: str, *, optimizer: bool = False) -> None:
    """Raise DamagedFile, with `fix`, unless every file is as it was written, and for the step
    that the folder says.

    The optimizer's state counts where `optimizer` says so: it may have been removed, and only a
    stage that continues reads it. Checkpoints of older versions have no checksums to compare.
    """
    check_place(checkpoint, fix)
    for damage in find_damage(checkpoint, unless=() if optimizer else (OPTIMIZER,)):
        raise DamagedFile(damage.problem, file=damage.file, fix=fix)


def check_place(checkpoint: Path, fix: str) -> None:
    """Raise DamagedFile, with `fix`, where a folder holds another checkpoint than it says."""
    if damage := misplaced(checkpoint):
        raise DamagedFile(damage.problem, file=damage.file, fix=fix)


def misplaced(checkpoint: Path) -> Damage | None:
    """What a folder holds that is called after another checkpoint: its checksums name it, of one
    outside of a lab the state has the step."""
    recorded, state = recorded_checksums(checkpoint), checkpoint / STATE
    if isinstance(recorded, Damage):
        return recorded
    if not state.is_file() or (recorded and compare(state, recorded.get(STATE, ""))):
        return None  # `find_damage` says it
    try:
        step = read_json(state, dict).get("step")
    except DamagedFile as error:
        return Damage(state, error.problem)
    if type(step) is not int or step_name(step) == checkpoint.name:
        return None
    return Damage(checkpoint, f"holds the checkpoint of step {step}")


def continuable(checkpoint: Path) -> bool:
    """Whether a checkpoint still has its optimizer state."""
    return (checkpoint / OPTIMIZER).is_file()


def drop_optimizers(folder: Path, keep: int) -> None:
    """Remove the optimizer state of the checkpoints in a stage's folder but the `keep` newest: the
    others are no longer to be continued from."""
    steps = steps_in(folder)
    for step in steps[: len(steps) - keep]:
        (folder / step_name(step) / OPTIMIZER).unlink(missing_ok=True)
