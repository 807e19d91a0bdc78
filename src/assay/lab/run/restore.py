"""Restores a stage from its newest whole checkpoint: a damaged one is named and put aside.

The checkpoint before it keeps its optimizer state for that, and a stage with one checkpoint begins
anew. What is trained again is journalled already, so that the same rewards are given.
"""

import torch

from assay.lab.monitor.observer import Observer
from assay.lab.run.put_aside import Place, put_aside
from assay.rl.policy import Policy
from assay.runs.checkpoints import CheckpointDamaged, check_checkpoint
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import checkpoint_steps
from assay.train.checkpoint import NotContinuable, load_checkpoint
from assay.train.train_state import TrainState


def is_whole(run: RunDirectory, stage: str, step: int) -> bool:
    """Whether every file of a checkpoint is as it was written, but for the optimizer's state."""
    try:
        check_checkpoint(run.checkpoint(stage, step), fix="")
    except CheckpointDamaged:
        return False
    return True


def restore(
    run: RunDirectory,
    stage: str,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    observer: Observer,
) -> TrainState:
    """What the stage's newest whole checkpoint holds, or a fresh state where there is none.

    Raises CheckpointDamaged where damage leaves only checkpoints without optimizer state.
    """
    state, damaged = TrainState(), dict[Place, CheckpointDamaged]()
    gone: NotContinuable | None = None
    for step in reversed(checkpoint_steps(run, stage)):
        try:
            state, gone = load_checkpoint(run.checkpoint(stage, step), policy, optimizer), None
            break
        except CheckpointDamaged as problem:
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
    damaged: dict[Place, CheckpointDamaged],
    gone: NotContinuable,
) -> CheckpointDamaged | NotContinuable:
    """Why the stage cannot go on by itself."""
    fix = f"start the stage over: assay resume {run} --from {stage}.step-0"
    if not damaged:
        return NotContinuable(gone.problem, file=gone.file, fix=fix)
    first = next(iter(damaged.values()))
    problem = f"{first.problem}, and no checkpoint before it keeps its optimizer state"
    return CheckpointDamaged(problem, file=first.file, fix=fix)


def _tell(
    run: RunDirectory,
    start: Place,
    damaged: dict[Place, CheckpointDamaged],
    observer: Observer,
) -> None:
    """Put the damaged checkpoints aside, in the run's manifest and before everybody's eyes."""
    first = next(iter(damaged.values()))
    aside = put_aside(run, sorted(damaged, key=lambda p: p.step), start, _inside(run, first))
    for place, problem in damaged.items():
        observer.note(
            f"warning: {place} is damaged: {problem.file}: {problem.problem}; it now lies in "
            f"{aside}, and the stage goes on from {start}"
        )


def _inside(run: RunDirectory, problem: CheckpointDamaged) -> str:
    return str(problem.file).removeprefix(f"{run.path}/")
