"""The weights that sampled a step, or the nearest stored before it, and gradients at them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from assay.experiment.stage_tables import StageSpec, start_of
from assay.lab.setup.activations import fit_activations
from assay.lab.setup.manifest import check_base
from assay.lab.setup.session import Session
from assay.rl.policy import Policy
from assay.rollout.policies.language import LanguagePolicy
from assay.runs.checkpoints import check_checkpoint, step_name, steps_in
from assay.runs.run_names import checkpoint_directory
from assay.train.checkpoint import read_module
from assay.train.train_state import Batch
from assay.train.update import accumulate


@dataclass(frozen=True, slots=True)
class Weights:
    """Which weights a step is scored with."""

    checkpoint: str
    """`base`, or `STAGE.step-N` as records name it."""
    behind: int
    """Steps of the stage between these weights and those that sampled."""

    @property
    def exact(self) -> bool:
        """Whether these weights sampled the step."""
        return self.behind == 0


def find_weights(session: Session, name: str, stage: StageSpec, step: int) -> Weights:
    """The newest stored weights from which the step was sampled or led up to."""
    before = [s for s in steps_in(session.run.checkpoints(name)) if s < step]
    if before:
        return Weights(f"{name}.{step_name(before[-1])}", step - 1 - before[-1])
    return Weights(start_name(session, stage), step - 1)


def start_name(session: Session, stage: StageSpec) -> str:
    """What the stage started from, by its step. Raises RunNotFound where it is gone."""
    reference = start_of(stage)
    if reference.stage is None:
        return "base"
    return f"{reference.stage}.{checkpoint_directory(session.run, reference).name}"


def load_policy(session: Session, name: str, stage: StageSpec, weights: Weights) -> LanguagePolicy:
    """The stage's policy with these weights, its KL reference as `stage` says.

    Raises BaseChanged where the run's base model is another than it was, CheckpointDamaged.
    """
    check_base(session)
    # A stage draws its adapter's first weights from this seed.
    torch.manual_seed(session.seed)
    policy, adaptation = session.shelf.policy(stage, session.base.end_tokens)
    fit_activations(session, stage, policy.module, adaptation)
    folder = checkpoint_folder(session, name, weights)
    if folder is not None:
        check_checkpoint(folder, "restore it, or name another step")
        read_module(policy.module, folder)
    return policy


def checkpoint_folder(session: Session, name: str, weights: Weights) -> Path | None:
    """The folder of a checkpoint of the stage itself; None where the stage's start is meant."""
    own, _, step = weights.checkpoint.partition(".")
    return session.run.checkpoints(name) / step if own == name else None


def accumulate_pass(policy: Policy, batch: Batch, passes: int, micro_tokens: int) -> float | None:
    """Leave the mean gradient of the updates of the first of `passes` at the parameters.

    All at the same weights, while a later update of a real step begins where the one before led.
    Returns the mean absolute difference to the log-probs of the rollout, if the objective has it.
    """
    first = batch.updates[: len(batch.updates) // passes]
    found = [accumulate(policy, packed, batch.objective, micro_tokens) for packed in first]
    for parameter in policy.module.parameters():
        if parameter.grad is not None:
            parameter.grad /= len(first)
    gaps = [sums["rollout_gap_mean"] for sums in found if "rollout_gap_mean" in sums]
    return sum(gaps) / sum(sums["tokens"] for sums in found) if gaps else None


def take_gradient(policy: Policy) -> dict[str, Tensor]:
    """The gradients that lie at the parameters, on the CPU; they are there no longer."""
    found = {
        name: parameter.grad.cpu()
        for name, parameter in policy.module.named_parameters()
        if parameter.grad is not None
    }
    policy.module.zero_grad(set_to_none=True)
    return found
