"""Trains a stage with several processes: rank 0 has the run, the others follow it.

A follower makes the policy of a run's stage as rank 0 does, takes over its weights, and answers its
calls until the stage ends. It writes nothing.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from assay.engines.ranks import followed, team
from assay.errors import AssayError
from assay.experiment.stage_tables import StageSpec
from assay.experiment.tables import patience_seconds
from assay.lab.models.learner import StagePolicy
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.models.precision import make_optimizer
from assay.rl.policy import Policy
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of
from assay.train.ranks import Member, RankedPolicy, serve
from assay.train.sharded import ShardedMember, ShardedOptimizer
from assay.train.update import MicroBatchSize

FOLLOWER = (sys.executable, "-m", "assay.lab.run.ranks")


@dataclass(frozen=True, slots=True)
class StageOpening:
    """The stage that followers are to open."""

    run: RunDirectory
    seed: int
    stage: str
    largest: MicroBatchSize
    sharded: bool


KINDS = {False: Member, True: ShardedMember}
"""What each rank is, by whether weights are sharded."""


def stage_optimizer(policy: Policy, stage: StageSpec) -> torch.optim.Optimizer:
    """The optimizer of a stage's trained weights."""
    options = stage.optimizer
    return make_optimizer(
        policy.module.parameters(),
        name=options.name,
        weight_decay=options.weight_decay,
        betas=options.betas,
    )


@contextmanager
def ranked(
    session: Session,
    name: str,
    opened: StagePolicy,
    optimizer: torch.optim.Optimizer,
    largest: MicroBatchSize,
) -> Iterator[tuple[Policy, torch.optim.Optimizer]]:
    """The policy of a stage and its optimizer, whose work all ranks of the experiment share; as
    they are where there is one. Raises RunFailure, then and inside."""
    engine = session.experiment.engine
    if engine is None or engine.ranks == 1:
        yield opened.policy, optimizer
        return
    sharded = engine.sharded
    if sharded is None:
        whole = engine.sample == "vllm" or opened.fits(largest, engine.ranks)
        sharded = not whole
    with team(engine.ranks, FOLLOWER, patience_seconds(engine)) as others:
        how = ", each with a part of the weights" if sharded else ""
        threads = f"{others.threads} thread{'s' * (others.threads > 1)} each"
        session.observer.note(f"{name}: {others.size} ranks of {threads}{how}")
        others.tell([StageOpening(session.run, session.seed, name, largest, sharded)] * others.size)
        member = KINDS[sharded](opened.policy, optimizer, others)
        # Of sharded moments, the whole ones are let go.
        del optimizer
        spread = RankedPolicy(opened.policy, member, others, engine.sample == "own")
        whole_view: Any = ShardedOptimizer(spread) if sharded else member.optimizer
        yield spread, whole_view
        spread.end()


def follow() -> None:
    """Be another rank than 0: open the stages that rank 0 names, until it names no more."""
    others = followed()
    while (opening := others.told()) is not None:
        experiment = experiment_of(opening.run)
        session = Session(experiment, opening.run, opening.seed, Silent())
        stage = experiment.stage[opening.stage]
        torch.manual_seed(opening.seed)
        opened = session.learner.policy(opening.run, stage)
        opened.fit(opening.largest)
        optimizer = stage_optimizer(opened.policy, stage)
        serve(KINDS[opening.sharded](opened.policy, optimizer, others))
        del opened, optimizer, session
        gc.collect()


if __name__ == "__main__":
    try:
        follow()
    except AssayError as error:
        sys.exit(str(error))
