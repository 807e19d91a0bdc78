"""Checkpoints of a training stage: complete or absent, never overwritten.

A checkpoint is a folder step-000040 with weights (safetensors), optimizer state, torch's random
state, counters and the sha256 of each of these files, written under a temporary name, fsynced and
renamed; loading compares the hashes first. Only the two newest of a stage keep their optimizer
state, twice as large as the weights: a stopped stage continues from the newest, or the one before
if that is damaged. When to save, and which checkpoint is best, is decided elsewhere.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.optim.optimizer import StateDict

from assay.data.episode import Completion, Context, Reward, Turn
from assay.data.files import sync, write_checksums
from assay.data.row import Row
from assay.errors import InputError, RunFailure
from assay.experiment.training_settings import AdaptiveKl
from assay.rl.objectives import Objective
from assay.rl.packed import Packed
from assay.rl.policy import Policy
from assay.rl.sampling_proof import Sums
from assay.runs.run_directory import (
    OPTIMIZER,
    STATE,
    check_checkpoint,
    continuable,
    drop_optimizers,
    step_name,
)
from assay.runs.run_files import DamagedFile


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stage stands; the order of rows and all randomness follow from it."""

    step: int = 0
    """Finished steps of the stage."""
    cursor: int = 0
    """Rows consumed from the shuffled stream."""
    kl_coef: float | None = None
    """An adaptive KL coefficient as the last step left it; None before the first."""


@dataclass
class TrainState:
    """Counters that a checkpoint saves. Changed by the loop alone."""

    step: int = 0
    """See `Place`."""
    cursor: int = 0
    """See `Place`."""
    skipped: int = 0
    """Updates skipped for a non-finite gradient."""
    kl_coef: float | None = None
    """See `Place`."""
    sampling: Sums = field(default_factory=dict)
    """See `SamplingProof.run`."""

    @property
    def place(self) -> Place:
        """Where the stage stands."""
        return Place(self.step, self.cursor, self.kl_coef)


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One sampled completion as it is recorded."""

    row_id: str
    visit: int
    """Earlier visits of the stage to this row; the samples of one visit are a group."""
    sample: int
    """Index among all completions of this row in the stage."""
    text: str
    tokens: tuple[int, ...]
    behaviour_logps: tuple[float, ...]
    reward: Reward
    advantage: float | None
    """None where another trainer did not say it."""
    ended: str
    """"" where it did not say it."""
    prompt: Context | None = None
    """What a single answer followed; None in an episode of several turns."""
    completion: Completion | None = None
    """Of an episode of several turns: what was judged."""
    turns: tuple[Turn, ...] = ()
    """Of an episode of several turns: each with the context it had."""
    entropies: tuple[float, ...] = ()
    """Of each token, in nats; none where they are not known."""
    variances: tuple[float, ...] = ()
    """Of log-probs at each token, for the proof of how they were drawn; not recorded."""


@dataclass(frozen=True)
class Batch:
    """What a method collected for one step."""

    updates: tuple[Packed, ...]
    """One optimizer update each, in order; empty when nothing carries signal."""
    objective: Objective
    metrics: dict[str, float] = field(default_factory=dict)
    samples: tuple[SampleRecord, ...] = ()
    consumed: int = 0
    """Rows of the shuffled stream that this step used."""
    adaptive_kl: AdaptiveKl | None = None
    """Moves the KL coefficient after the step."""


@dataclass(frozen=True, slots=True)
class Journalled:
    """A reward that an interrupted attempt at a step recorded, and the tokens it judged."""

    tokens: tuple[int, ...]
    """All actions of the completion, several turns laid end to end."""
    reward: Reward


class Journal(Protocol):
    """The records of an interrupted attempt at a step, and where it is told how far a step is."""

    def inside(self, part: str, done: int, total: int) -> None:
        """Of the step under way `done` of `total` completions are sampled, judged or trained."""
        ...

    def recorded_rewards(self, step: int) -> Mapping[str, Journalled]:
        """Rewards already journalled for this step by an interrupted run, by completion."""
        ...


class Recorder(Journal, Protocol):
    """Where a stage's history goes; implemented by the lab, trivially by tests."""

    def samples(self, step: int, records: Sequence[SampleRecord]) -> None:
        """Journal a step's completions; called before the update that uses them."""
        ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """One line of the stage's metrics."""
        ...

    def checkpoint(
        self, policy: Policy, optimizer: torch.optim.Optimizer, state: TrainState
    ) -> None:
        """Called after every step; saves where one is due."""
        ...


Score = Callable[[Sequence[tuple[Row, Completion]]], list[Reward]]
"""Judges completions; exceptions and deadlines come back as abstentions."""


class Method(Protocol):
    """A training method: collects what one step trains on."""

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """The batch of the step that follows `place`."""
        ...


RANDOM = "random.pt"
CONTINUABLE = 2
"""How many of a stage's checkpoints keep their optimizer state: the newest."""
HEADROOM = 64 * 2**20
"""Bytes that must stay free beside a checkpoint, for records and pages."""


def save_checkpoint(
    folder: Path,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    state: TrainState,
    beside: Callable[[Path], None] = lambda folder: None,
) -> Path:
    """Save weights and state after `state.step` steps; returns the checkpoint's folder.

    `beside` puts further files into the folder before it is complete (a tokenizer). Raises
    InputError where there is no room, before anything is written, and rather than overwrite, and
    RunFailure where the optimizer does not give all of its moments.
    """
    target = folder / step_name(state.step)
    if target.exists():
        raise InputError("this checkpoint exists", file=target, fix="it is never overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    check_space(folder, policy.module, optimizer)
    moments, moved = optimizer.state_dict(), len(optimizer.state)
    if (lost := moved - len(moments["state"])) > 0:
        raise RunFailure(f"the optimizer gives no moments of {lost} of {moved} weights to be saved")
    temporary = folder / f".{target.name}.part"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    policy.save(temporary)
    beside(temporary)
    states = {OPTIMIZER: moments, RANDOM: {"cpu": torch.get_rng_state()}}
    for name, values in states.items():
        # Through Python's file, a full disk is an OSError; torch's own says "unexpected pos".
        with (temporary / name).open("wb") as stream:
            torch.save(values, stream)
    (temporary / STATE).write_text(json.dumps(state_fields(state)) + "\n", encoding="utf-8")
    write_checksums(temporary)
    for file in sorted(temporary.rglob("*")):
        sync(file)
    sync(temporary)
    os.rename(temporary, target)  # noqa: PTH104 (a plain rename fails where the target exists)
    sync(folder)
    drop_optimizers(folder, keep=CONTINUABLE)
    return target


def check_space(folder: Path, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise InputError unless the checkpoint about to be written fits."""
    tensors = [*module.parameters(), *module.buffers()]
    tensors += [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    needed = sum(t.numel() * t.element_size() for t in tensors) + HEADROOM
    free = shutil.disk_usage(folder).free
    if free < needed:
        problem = f"a checkpoint needs {needed / 2**20:.0f} MB and {free / 2**20:.0f} MB are free"
        fix = "earlier checkpoints are intact: make room and resume"
        raise InputError(problem, file=folder, fix=fix)


def load_checkpoint(
    checkpoint: Path, policy: Policy, optimizer: torch.optim.Optimizer
) -> TrainState:
    """Restore weights, optimizer and random state; returns the counters. Strict in all of them.

    Raises DamagedFile for a missing, cut or changed file, InputError for a checkpoint without its
    optimizer state, both before anything is restored, and for weights that do not fit.
    """
    fix = "restore it, or continue from the checkpoint before"
    check_checkpoint(checkpoint, fix, optimizer=continuable(checkpoint))
    if not continuable(checkpoint):
        fix = "start another run with --new"
        raise InputError(f"{OPTIMIZER} is missing", file=checkpoint, fix=fix)
    state = _read_state(checkpoint / STATE, fix)
    moments = _read_tensors(checkpoint / OPTIMIZER, fix, "state", "param_groups")
    random = _read_tensors(checkpoint / RANDOM, fix, "cpu")
    policy.load(checkpoint)
    optimizer.load_state_dict(moments)
    torch.set_rng_state(random["cpu"])
    policy.updated()
    return state


def state_fields(state: TrainState) -> dict[str, Any]:
    """The state as a checkpoint's file holds it, with an adaptive coefficient and the sums of a
    sampling proof where there are such."""
    own: dict[str, Any] = {} if state.kl_coef is None else {"kl_coef": state.kl_coef}
    if state.sampling:
        own["sampling"] = state.sampling
    return {"step": state.step, "cursor": state.cursor, "skipped": state.skipped, **own}


def _read_state(file: Path, fix: str) -> TrainState:
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        fields.pop("without_bonus", None)  # A count of earlier versions; guards read the metrics.
        return TrainState(**fields)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        problem = f"cannot be read: {' '.join(str(error).split())}"
        raise DamagedFile(problem, file=file, fix=fix) from error


def _read_tensors(file: Path, fix: str, *keys: str) -> StateDict:
    try:
        # The optimizer puts its states where the weights are, whichever GPU wrote them.
        tensors = torch.load(file, map_location="cpu", weights_only=True)
        whole = all(key in tensors for key in keys)
    except Exception as error:  # whatever the reader meets in a file that was cut or changed
        problem = "is missing, cut short or something else"
        raise DamagedFile(problem, file=file, fix=fix) from error
    if not whole:
        raise DamagedFile(f"does not hold {' and '.join(keys)}", file=file, fix=fix)
    return tensors
