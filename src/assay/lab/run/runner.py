"""Runs an experiment: trains the stages in file order, selects checkpoints, evaluates at the end.

What is complete is kept, so that `lab.run.resume` goes on with a run by the same `work`. `pages`
writes the pages.

A stage may be trained by several processes: rank 0 has the run, the others follow it. A follower
makes the policy of a run's stage as rank 0 does, takes over its weights, and answers its calls
until the stage ends. It writes nothing.
"""

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from assay.data.files import remove_leftovers
from assay.data.splits import Mixture
from assay.engines.ranks import followed, team
from assay.engines.ray_pool import leave
from assay.errors import AssayError, RunFailure, within
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import SamplingStage, StageSpec, StageSteps, planned
from assay.experiment.tables import patience_seconds
from assay.experiment.toml_write import experiment_toml
from assay.lab.check.all_checks import looked_at
from assay.lab.data.prepare import describe, find_part
from assay.lab.evaluate.answerer import Answerer
from assay.lab.evaluate.checkpoint_selection import (
    choose,
    choose_level,
    chosen_by,
    measure_listed,
    measure_start,
    select,
    selectors,
)
from assay.lab.evaluate.run_evaluation import answerer_of, measure_judges
from assay.lab.models.learner import StagePolicy
from assay.lab.monitor.guards import unseen, watch_stage
from assay.lab.monitor.observer import Noting, Observer, Silent
from assay.lab.monitor.sender import sending
from assay.lab.run.recorder import RunRecorder
from assay.lab.run.trainer_export import ToolCosts, ToolTraining
from assay.lab.session.reward_parts import judge_journal
from assay.lab.session.session import Session
from assay.lab.session.stage_methods import (
    StageInput,
    build_method,
    build_validation,
    largest_of,
    loop_settings,
    notes_of,
    visits_per_epoch,
    with_step_metrics,
)
from assay.lab.session.tool_stage import ToolStage
from assay.rl.policy import Policy
from assay.runs.history import History
from assay.runs.registry import fresh_run, note_run, refuse_existing
from assay.runs.run_directory import (
    CHECKED,
    Manifest,
    RunDirectory,
    Status,
    change_status,
    drop_optimizers,
    write_manifest,
)
from assay.runs.run_names import experiment_of, start_source
from assay.train.checkpoint import TrainState, load_checkpoint
from assay.train.loop import SourceShares, train
from assay.train.ranks import Member, RankedPolicy, serve
from assay.train.sharded import ShardedMember, ShardedOptimizer
from assay.train.update import MicroBatchSize, make_optimizer


def start(
    experiment: Experiment,
    *,
    root: Path,
    new: bool = False,
    observer: Observer | None = None,
    despite: str | None = None,
    beside: bool = False,
) -> list[RunDirectory]:
    """Run an experiment, read and checked whole, once per seed; returns the runs.

    Raises InputError, what `Answerer.check` and `looked_at` raise, and InputError if the name has
    runs (of these seeds, if they may lie `beside` others), unless `new`; also if another process
    starts one at the same time.
    """
    nowhere = RunDirectory(root, experiment.name, "to-be-made")
    alone = Session(experiment, nowhere, experiment.seeds[0], observer or Silent())
    with alone.sharing_workers() as session:
        answerer_of(session).check()
        refuse_existing(root, experiment.name, new, experiment.seeds if beside else None)
        session.make_rows()
        session = looked_at(session, despite)
        runs, spec = [], experiment_toml(experiment)
        for index, seed in enumerate(experiment.seeds):
            others = beside or index > 0
            with fresh_run(root, experiment.name, seed, spec, new=new, beside=others) as run:
                proceed(session.copy(run=run, seed=seed))
            runs.append(run)
    return runs


def proceed(session: Session) -> None:
    """Do the work of a run that this process holds. Raises whatever stopped it, after noting it."""
    with at_work(session) as session:
        work(session)


@contextmanager
def at_work(session: Session) -> Iterator[Session]:
    """Tell of the work on a run that this process holds, and keep its status up to date."""
    run = session.run
    sinks = sending(session.experiment, run, session.seed, Noting(session.observer, run))
    with sinks as observer, session.copy(observer=observer).sharing_workers() as session:
        try:
            with noted(run, observer), session.helpers.recorded_in(run):
                observer.begin(run)
                yield session
        finally:
            observer.end(run)


@contextmanager
def noted(run: RunDirectory, observer: Observer) -> Iterator[None]:
    """Set the run's status while it works, and when the work ends."""
    note(run, status="running", message="", finished="", guard="")
    remove_leftovers(run.path)
    try:
        yield
    except AssayError as error:
        guards = error.guards if isinstance(error, RunFailure) else ()
        status = note(run, status="failed", message=str(error), guard=" ".join(guards))
        if guards:
            observer.report(run, status.stage, status.step, "guard")
        raise
    except KeyboardInterrupt:
        note(run, status="interrupted", message="interrupted by the user")
        raise
    except BaseException as error:
        note(run, status="failed", message=f"{type(error).__name__}: {error}")
        raise
    note(run, status="finished", message="")


def note(run: RunDirectory, **changes: str) -> Status:
    """Update the run's status file and the lab's index; returns the status."""
    if changes["status"] != "running":
        changes["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    status = change_status(run.path, **changes)
    note_run(run)
    return status


def work(session: Session) -> None:
    """Stages, then reports. Raises InputError before anything is written."""
    answerer = answerer_of(session)
    if not session.run.manifest.exists():
        write_manifest(session.run, manifest_now(answerer))
    for made in session.sets.values() if answerer.in_process else ():
        session.observer.note(describe(made, session.experiment.data[made.name]))
    measure_judges(answerer)
    for name in session.experiment.stage:
        run_stage(session, name)
    for name in unseen(session.experiment, History(session.run).metrics):
        metric = session.experiment.guard[name].metric
        session.observer.note(f"guard {name!r} watched nothing: no step recorded {metric!r}")
    measure_listed(session, answerer.evaluations().values())
    for name in session.experiment.stage:
        drop_optimizers(session.run.checkpoints(name), keep=0)


def manifest_now(answerer: Answerer) -> Manifest:
    """The fingerprints of a run as it would be executed now, with the findings before it."""
    manifest, checked = answerer.manifest(), answerer.session.checked
    return manifest if checked is None else {**manifest, CHECKED: checked}


def run_stage(session: Session, name: str) -> None:
    """Train one stage from its last checkpoint to its last step."""
    stage = session.experiment.stage[name]
    choose_level(session, name)
    inputs = session.stage_input(stage)
    with within(f"stage.{name}"):
        steps = planned(stage, visits_per_epoch(stage, inputs))
    done = session.run.checkpoint_steps(name)
    choosing = selectors(session, name)
    chosen = chosen_by(session.run, session.experiment, name, bool(choosing))
    if done and done[-1] >= steps.last and chosen:
        return
    for evaluation in choosing[:1]:
        measure_start(session, name, evaluation)
    leave()
    if stage.trainer is not None:
        costs = ToolCosts()
        recorder = stage_recorder(session, name, steps, done[-1] if done else 0)
        recorder = replace(recorder, costs=costs)
        made = ToolStage(
            session, name, stage.trainer, start_source(session.run, name, session.experiment)
        )
        ToolTraining(made, recorder, costs).train()
    else:
        # LoRA draws its first weights from torch's generator.
        torch.manual_seed(session.seed)
        opened = session.learner.policy(session.run, stage)
        for words in opened.notes:
            session.observer.note(f"{name}: {words}")
        train_stage(session, name, stage, inputs, opened, steps)
        del opened
        gc.collect()
    choose(session, name)


def stage_recorder(session: Session, name: str, steps: StageSteps, step: int) -> RunRecorder:
    """Writes the history of a stage behind `step`."""
    stage = session.experiment.stage[name]

    def add_files(folder: Path) -> None:
        """What makes a checkpoint a complete model for other programs, and the run's ledger."""
        session.learner.complete(session.run, stage, folder)
        session.helpers.keep_costs(folder)

    return RunRecorder(
        session.run,
        name,
        steps.last,
        steps.saved,
        session.observer,
        add_files=add_files,
        after_checkpoint=lambda answers, step: select(session, name, answers, step),
        guards=watch_stage(session.experiment, session.run, name, step),
        due=lambda step: why_due(session.experiment, name, step, steps.last),
        costs=session.helpers.step_costs,
    )


def train_stage(
    session: Session,
    name: str,
    stage: StageSpec,
    inputs: StageInput,
    opened: StagePolicy,
    steps: StageSteps,
) -> None:
    """The stage's loop, continued from its newest checkpoint if there is one."""
    policy, optimizer = opened.policy, stage_optimizer(opened.policy, stage)
    state = TrainState()
    for step in session.run.checkpoint_steps(name)[-1:]:
        state = load_checkpoint(session.run.checkpoint(name, step), policy, optimizer)

    recorder = stage_recorder(session, name, steps, state.step)
    session.observer.stage(name, stage.method, state.step, steps.last)
    if state.step:
        select(session, name, policy, state.step)
    runner = None
    if isinstance(stage, SamplingStage) and not stage.stored and inputs.judge is not None:
        file = session.run.judgements(name)
        journal = judge_journal(file, session.helpers, stage.reward, inputs.judge)
        recorder = replace(recorder, judgements=journal)
        runner = session.reward_runner(inputs.judge, stage, journal)
        runner.told = partial(session.observer.inside, "judged")
        inputs = replace(inputs, score=runner.score)
    try:
        method = build_method(stage, inputs, steps.last)
        largest = largest_of(stage, method, inputs.encoder)
        for words in (*notes_of(method), *opened.fit(largest)):
            session.observer.note(f"{name}: {words}")
        if isinstance(inputs.order, Mixture):
            method = SourceShares(method, inputs.order, session.seed)
        method = with_step_metrics(stage, session.task, steps.last, method)
        looks = [lambda policy, step: opened.measured()]
        if stage.validation is not None:
            rows = find_part(session.sets, stage.validation)
            looks.append(build_validation(stage, inputs, rows, steps.validated).look)

        def measure(policy: Policy, step: int) -> Mapping[str, float]:
            return {name: value for look in looks for name, value in look(policy, step).items()}

        session.helpers.stage(name, state.step + 1)
        settings = loop_settings(stage, steps.last)
        with ranked(session, name, opened, optimizer, largest) as (trained, optimizer):
            train(trained, method, optimizer, state, settings, recorder, measure)
    finally:
        if runner is not None:
            runner.close()


FOLLOWER = (sys.executable, "-m", "assay.lab.run.runner")


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


def why_due(experiment: Experiment, stage: str, step: int, steps: int) -> str:
    """Why a report is due after `step` of a stage's `steps`; "" where none is."""
    every = experiment.report_every
    if any(m.stage == stage and m.step == step for m in experiment.milestone.values()):
        return "milestone"
    if every and step % every == 0:
        return "steps"
    return "end" if step == steps and (every or experiment.milestone) else ""
