"""Checkpoints of a training stage: complete or absent, never overwritten.

A checkpoint is a folder step-000040 with weights (safetensors), optimizer state, torch's random
state and counters, written under a temporary name, put on disk and renamed. Only the newest
checkpoint of a stage keeps its optimizer state: it is what a stopped stage continues from, and
twice as large as the weights. Which checkpoints are made, and which is best, is decided elsewhere.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from assay.data.files import sync
from assay.errors import InputError
from assay.models.state import strict_load, untied_state
from assay.models.weights import load_weights, save_weights
from assay.rl.policy import Policy
from assay.train.state import TrainState

STATE = "state.json"
MODULE = "module.safetensors"
OPTIMIZER = "optimizer.pt"
RANDOM = "random.pt"
HEADROOM = 64 * 2**20
"""Bytes that must stay free beside a checkpoint, for records and pages."""


class DiskFull(InputError):
    """Not enough free space for a checkpoint; nothing was written."""


class CheckpointExists(InputError):
    """A checkpoint of this step is already there."""


class CheckpointDamaged(InputError):
    """A checkpoint lacks a file that continuing needs."""


def step_name(step: int) -> str:
    """Folder name of the checkpoint after `step` steps."""
    return f"step-{step:06d}"


def steps_in(folder: Path) -> list[int]:
    """Steps of the complete checkpoints in a stage's folder, ascending."""
    found = folder.glob("step-*") if folder.is_dir() else ()
    return sorted(int(p.name.removeprefix("step-")) for p in found if (p / STATE).is_file())


def save_checkpoint(
    folder: Path,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    state: TrainState,
    beside: Callable[[Path], None] = lambda folder: None,
) -> Path:
    """Save weights and state after `state.step` steps; returns the checkpoint's folder.

    `beside` puts further files into the folder before it is complete (a tokenizer). Raises
    DiskFull before anything is written, CheckpointExists rather than overwrite.
    """
    target = folder / step_name(state.step)
    if target.exists():
        raise CheckpointExists("this checkpoint exists", file=target, fix="it is never overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    check_space(folder, policy.module, optimizer)
    temporary = folder / f".{target.name}.part"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    write_module(policy.module, temporary)
    beside(temporary)
    torch.save(optimizer.state_dict(), temporary / OPTIMIZER)
    torch.save({"cpu": torch.get_rng_state()}, temporary / RANDOM)
    (temporary / STATE).write_text(json.dumps(asdict(state)) + "\n", encoding="utf-8")
    for file in sorted(temporary.rglob("*")):
        sync(file)
    sync(temporary)
    os.rename(temporary, target)  # noqa: PTH104 (a plain rename fails where the target exists)
    sync(folder)
    drop_older_optimizers(folder, state.step)
    return target


def write_module(module: torch.nn.Module, folder: Path) -> None:
    """The weights of a language model as the ecosystem names them, of another module by name."""
    if isinstance(module, PreTrainedModel | PeftModel):
        save_weights(module, folder)
    else:
        save_file(untied_state(module.state_dict()), folder / MODULE)


def read_module(module: torch.nn.Module, folder: Path) -> None:
    """Load what `write_module` wrote, completely or not at all."""
    if isinstance(module, PreTrainedModel | PeftModel):
        load_weights(module, folder)
    else:
        strict_load(module, load_file(folder / MODULE), file=folder)


def drop_older_optimizers(folder: Path, newest: int) -> None:
    """Remove the optimizer state of all checkpoints before the newest."""
    for step in steps_in(folder):
        if step < newest:
            (folder / step_name(step) / OPTIMIZER).unlink(missing_ok=True)


def check_space(folder: Path, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise DiskFull unless the checkpoint about to be written fits."""
    tensors = [*module.parameters(), *module.buffers()]
    tensors += [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    needed = sum(t.numel() * t.element_size() for t in tensors) + HEADROOM
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskFull(
            f"a checkpoint needs {needed / 2**20:.0f} MB and {free / 2**20:.0f} MB are free",
            file=folder,
            fix="earlier checkpoints are intact: make room and resume",
        )


def load_checkpoint(
    checkpoint: Path, policy: Policy, optimizer: torch.optim.Optimizer
) -> TrainState:
    """Restore weights, optimizer and random state; returns the counters. Strict in all of them.

    Raises CheckpointDamaged for a missing file, StateDictMismatch for weights that do not fit.
    """
    for name in (STATE, OPTIMIZER, RANDOM):
        if not (checkpoint / name).is_file():
            fix = "only a stage's newest checkpoint can be continued from"
            raise CheckpointDamaged(f"{name} is missing", file=checkpoint, fix=fix)
    read_module(policy.module, checkpoint)
    optimizer.load_state_dict(torch.load(checkpoint / OPTIMIZER, weights_only=True))
    torch.set_rng_state(torch.load(checkpoint / RANDOM, weights_only=True)["cpu"])
    policy.updated()
    return TrainState(**json.loads((checkpoint / STATE).read_text(encoding="utf-8")))
