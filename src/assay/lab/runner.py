"""Runs an experiment: stages in file order, selection on the way, evaluations at the end.

Resuming is running again: what is complete on disk is left alone, what is not is done from the
last checkpoint. Drawing pages is the report's business.
"""

import gc
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from assay.errors import AssayError, InputError
from assay.lab.activations import fit_activations
from assay.lab.evaluate import Answers, Evaluation, decode_with, run_evaluation
from assay.lab.known_answers import Remembering, known_turns
from assay.lab.manifest import check_manifest, make_manifest, write_manifest
from assay.lab.metrics import truncate_metrics
from assay.lab.observer import Observer, Silent
from assay.lab.prepare import describe, find_part, make_renderer
from assay.lab.recorder import RunRecorder
from assay.lab.records import read_scores
from assay.lab.registry import note_run
from assay.lab.run_directory import RunDirectory, create_run
from assay.lab.run_names import checkpoint_steps
from assay.lab.selection import read_best, write_best
from assay.lab.session import Session
from assay.lab.spec.experiment import Experiment
from assay.lab.spec.names import check_names
from assay.lab.spec.read import read_experiment
from assay.lab.spec.references import CheckpointReference, parse_checkpoint
from assay.lab.spec.stage import SamplingStage, StageSpec
from assay.lab.spec.toml_write import experiment_toml
from assay.lab.stage_methods import (
    StageInput,
    build_method,
    loop_settings,
    reward_of,
    steps_of,
)
from assay.lab.status import hold_run, read_status, stored_status, write_status
from assay.models.optimizer import make_optimizer
from assay.rl.policy import Policy
from assay.rollout.language import LanguagePolicy, LocalSampler
from assay.train.checkpoint import load_checkpoint
from assay.train.loop import train
from assay.train.state import TrainState


class NothingToResume(InputError):
    """The run is finished."""


def start(
    file: Path,
    overrides: Sequence[str] = (),
    *,
    root: Path,
    new: bool = False,
    observer: Observer | None = None,
) -> list[RunDirectory]:
    """Run an experiment file, once per seed; returns the runs. Raises RunExists and SpecError."""
    experiment = read_experiment(file, overrides)
    check_names(experiment, file, overrides)
    runs = []
    for index, seed in enumerate(experiment.seeds):
        text = experiment_toml(experiment)
        run = create_run(root, experiment.name, seed=seed, spec=text, new=new or index > 0)
        execute(Session(experiment, run, seed, observer or Silent()))
        runs.append(run)
    return runs


def resume(run: RunDirectory, *, observer: Observer | None = None) -> RunDirectory:
    """Continue an interrupted or failed run. Raises NothingToResume for a finished one."""
    status = read_status(run.path)
    if status.status == "finished":
        raise NothingToResume(f"run {run} is finished", fix="start another with --new")
    experiment = read_experiment(run.spec)
    execute(Session(experiment, run, status.seed, observer or Silent()))
    return run


def execute(session: Session) -> None:
    """Do what is left of a run, and keep its status true whatever happens.

    Raises whatever stopped the run, after noting it.
    """
    path = session.run.path
    with hold_run(path):
        note(session, status="running", message="", finished="")
        try:
            work(session)
        except AssayError as error:
            note(session, status="failed", message=str(error))
            raise
        except KeyboardInterrupt:
            note(session, status="interrupted", message="interrupted by the user")
            raise
        except Exception as error:
            note(session, status="failed", message=f"{type(error).__name__}: {error}")
            raise
        note(session, status="finished", message="")


def note(session: Session, **changes: str) -> None:
    """Update the run's status file and the lab's index."""
    if changes["status"] != "running":
        changes["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    write_status(session.run.path, replace(stored_status(session.run.path), **changes))  # type: ignore[arg-type]
    note_run(session.run)


def work(session: Session) -> None:
    """Stages, then reports."""
    manifest = make_manifest(session)
    if session.run.manifest.exists():
        check_manifest(session.run, manifest)
    else:
        write_manifest(session.run, manifest)
    for made in session.sets.values():
        session.observer.note(describe(made, session.experiment.data[made.name]))
    for name in session.experiment.stage:
        run_stage(session, name)
    for evaluation in session.evaluations.values():
        if evaluation.spec.role == "report":
            report(session, evaluation)


def run_stage(session: Session, name: str) -> None:
    """Train one stage from its last checkpoint to its last step."""
    stage = session.experiment.stage[name]
    rows = find_part(session.sets, stage.data)
    steps = steps_of(stage, len(rows))
    done = checkpoint_steps(session.run, name)
    chosen = not selectors(session, name) or read_best(session.run.path, name) is not None
    if done and done[-1] >= steps and chosen:
        return
    # LoRA draws its first weights from torch's generator.
    torch.manual_seed(session.seed)
    policy, adaptation = session.shelf.policy(stage, session.base.end_tokens)
    session.observer.note(
        f"{name}: {adaptation.kind}, {adaptation.trainable:,} of {adaptation.total:,} weights "
        f"trained ({adaptation.share:.1%})"
    )
    fit_activations(session, stage, policy.module, adaptation)
    train_stage(session, name, stage, policy, steps, done)
    choose(session, name)
    del policy
    gc.collect()


def train_stage(
    session: Session,
    name: str,
    stage: StageSpec,
    policy: LanguagePolicy,
    steps: int,
    done: Sequence[int],
) -> None:
    """The stage's loop, continued from the newest checkpoint if there is one."""
    options = stage.optimizer
    optimizer = make_optimizer(
        policy.module.parameters(),
        name=options.name,
        lr=options.lr,
        weight_decay=options.weight_decay,
        betas=options.betas,
    )
    recorder = RunRecorder(
        session.run,
        name,
        steps,
        stage.checkpoint_every,
        session.observer,
        session.base.tokenizer,
        after_checkpoint=lambda answers, step: select(session, name, answers, step),
    )
    state = TrainState()
    if done:
        state = load_checkpoint(session.run.checkpoint(name, done[-1]), policy, optimizer)
    truncate_metrics(session.run.metrics, name, state.step)
    session.observer.stage(name, stage.method, state.step, steps)
    if done:
        select(session, name, policy, state.step)
    runner = None
    if isinstance(stage, SamplingStage) and stage.reward is not None:  # type: ignore[attr-defined]
        judge = reward_of(session.task, stage.reward)  # type: ignore[attr-defined]
        runner = session.reward_runner(judge, stage.reward_deadline)
    given = StageInput(
        session.task,
        find_part(session.sets, stage.data),
        make_renderer(session.base.tokenizer, stage.rendering),
        session.seed,
        runner,
        session.base.end_tokens,
    )
    try:
        method = build_method(stage, given, steps)
        train(policy, method, optimizer, state, loop_settings(stage, steps), recorder)
    finally:
        if runner is not None:
            runner.close()


def selectors(session: Session, stage: str) -> list[Evaluation]:
    """The evaluations that choose among the checkpoints of a stage."""
    found = []
    for evaluation in session.evaluations.values():
        references = map(parse_checkpoint, evaluation.spec.checkpoints)
        if evaluation.spec.role == "select" and any(r and r.stage == stage for r in references):
            found.append(evaluation)
    return found


def select(session: Session, stage: str, policy: Policy, step: int) -> None:
    """Let the selecting evaluations look at a checkpoint that is still in memory."""
    for evaluation in selectors(session, stage):
        measure(session, evaluation, policy, f"{stage}.step-{step:06d}")


def choose(session: Session, stage: str) -> None:
    """Note the checkpoint with the best mean on the dev items; the earliest among equals."""
    for evaluation in selectors(session, stage)[:1]:
        scores = {
            step: read_scores(session.run, evaluation.record, f"{stage}.step-{step:06d}").mean
            for step in checkpoint_steps(session.run, stage)
        }
        best = max(scores, key=lambda step: (scores[step], -step))
        write_best(session.run.path, stage, best, evaluation=evaluation.name, score=scores[best])


def report(session: Session, evaluation: Evaluation) -> None:
    """Measure every checkpoint that a reporting evaluation names and that was not measured yet."""
    for text in evaluation.spec.checkpoints:
        for reference in expand(session, text):
            name = checkpoint_name(reference)
            if evaluation.record.finished(session.run, name):
                continue
            model = session.shelf.plain(reference)
            answers = LocalSampler(model, session.base.end_tokens, session.precision.compute)
            measure(session, evaluation, answers, name)
            del model, answers
            gc.collect()


def measure(session: Session, evaluation: Evaluation, answers: Answers, checkpoint: str) -> None:
    """Make one record, or what is left of it."""
    renderer = make_renderer(session.base.tokenizer, evaluation.spec.rendering)
    known = known_turns(session.run, evaluation, session.evaluations.values(), checkpoint)
    with session.reward_runner(evaluation.score) as runner:
        run_evaluation(
            evaluation,
            Remembering(answers, known),
            checkpoint,
            session.run.evaluations,
            decode_with(renderer, session.base.end_tokens),
            session.observer,
            runner,
        )


def expand(session: Session, text: str) -> list[CheckpointReference]:
    """The checkpoints that a name means, each by its step."""
    reference = parse_checkpoint(text)
    assert reference is not None
    if reference.stage is None:
        return [reference]
    steps = checkpoint_steps(session.run, reference.stage)
    if reference.which == "best":
        steps = [read_best(session.run.path, reference.stage) or steps[-1]]
    elif reference.which == "last":
        steps = steps[-1:]
    elif reference.which == "step":
        steps = [s for s in steps if s == reference.step]
    return [CheckpointReference(reference.stage, "step", step) for step in steps]


def checkpoint_name(reference: CheckpointReference) -> str:
    """`base` or `sft.step-000040`: how records name a checkpoint."""
    if reference.stage is None:
        return "base"
    return f"{reference.stage}.step-{reference.step:06d}"


def experiment_of(run: RunDirectory) -> Experiment:
    """The resolved experiment of a run."""
    return read_experiment(run.spec)
