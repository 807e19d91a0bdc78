"""Trains a stage with several processes: rank 0 has the run, the others follow it.

A follower makes the policy of a run's stage as rank 0 does, takes over its weights, and answers its
calls until the stage ends. It writes nothing.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from assay.engines.ranks import followed, joined, launched, team
from assay.errors import AssayError
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import StageSpec
from assay.lab.monitor.observer import Silent
from assay.lab.setup.session import Session
from assay.models.optimizer import make_optimizer
from assay.rl.policy import Policy
from assay.runs.run_directory import RunDirectory
from assay.train.ranks import Member, RankedPolicy, serve

FOLLOWER = (sys.executable, "-m", "assay.lab.run.ranks")


@dataclass(frozen=True, slots=True)
class Opening:
    """The stage that followers are to open."""

    run: RunDirectory
    seed: int
    stage: str


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
    session: Session, name: str, policy: Policy, optimizer: torch.optim.Optimizer
) -> Iterator[Policy]:
    """The policy of a stage, whose work all ranks of the experiment share; as it is where there is
    one. Raises RankLost and RanksDiffer, then and inside."""
    engine = session.experiment.engine
    if engine is None or engine.ranks == 1:
        yield policy
        return
    with team(engine.ranks, FOLLOWER) as others:
        others.tell([Opening(session.run, session.seed, name)] * others.size)
        member = Member(policy, optimizer, others)
        whole = RankedPolicy(policy, member, others, spreads_sampling=engine.sample == "own")
        yield whole
        whole.end()


def follow() -> None:
    """Be another rank than 0: open the stages that rank 0 names, until it names no more."""
    others = followed()
    while (opening := others.told()) is not None:
        experiment = read_experiment(opening.run.spec)
        session = Session(experiment, opening.run, opening.seed, Silent())
        stage = experiment.stage[opening.stage]
        torch.manual_seed(opening.seed)
        policy = session.learner.policy(opening.run, stage).policy
        serve(Member(policy, stage_optimizer(policy, stage), others))
        del policy, session
        gc.collect()


@contextmanager
def leading() -> Iterator[None]:
    """Around the work of rank 0: processes that torchrun started end with it."""
    yield
    if launched():
        others = joined()
        others.tell([None] * others.size)


if __name__ == "__main__":
    try:
        follow()
    except AssayError as error:
        sys.exit(str(error))
