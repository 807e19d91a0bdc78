"""The folder of a checkpoint, without its tensors: its name, whether it is whole, what may go.

`train.checkpoint` writes and loads what lies in it; whoever only asks about a checkpoint needs no
torch.
"""

from pathlib import Path

from assay.data.checksums import find_damage
from assay.errors import InputError

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
