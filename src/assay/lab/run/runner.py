"""Runs an experiment: trains the stages in file order, selects checkpoints, evaluates at the end.

Running again resumes: complete results are kept, the rest continues from the last checkpoint. A
finished run is measured on reporting evaluations that were added since, so that a sweep with a
longer `evaluate.` axis need not train again; its spec and manifest stay as they were. Selecting
evaluations are never added, because they belong to the training. `pages` writes the pages.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from assay.data.files import remove_leftovers
from assay.data.splits import Mixture
from assay.engines.ranks import check_ranks
from assay.engines.ray_pool import leave
from assay.errors import AssayError, InputError, RunFailure, within
from assay.experiment.checkpoint_reference import checkpoint_name
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import lines_named
from assay.experiment.stage_tables import SamplingStage, StageSpec, due_steps, steps_of
from assay.experiment.tables import EngineSpec, EvaluateSpec
from assay.experiment.toml_write import experiment_toml
from assay.lab.check.all_checks import looked_at, reason_of
from assay.lab.data.prepare import describe, find_part
from assay.lab.evaluate.checkpoint_selection import (
    choose,
    choose_level,
    chosen_by,
    measure_bases,
    measure_reported,
    measure_start,
    named_checkpoints,
    select,
    selectors,
)
from assay.lab.evaluate.judge_labels import measure_judges
from assay.lab.evaluate.run_evaluation import answerer_of
from assay.lab.models.learner import StagePolicy
from assay.lab.monitor.guards import (
    check_guards,
    pass_guards,
    unseen,
    watch_stage,
)
from assay.lab.monitor.observer import Noting, Observer, Silent
from assay.lab.monitor.progress import why_due
from assay.lab.monitor.sender import sending
from assay.lab.run.ranks import ranked, stage_optimizer
from assay.lab.run.recorder import RunRecorder, is_whole, restore
from assay.lab.run.trainer_export import ToolCosts, ToolTraining
from assay.lab.session.manifest import (
    check_base,
    check_manifest,
    judge_sha256,
    rows_still_there,
    write_manifest,
)
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
from assay.lab.session.tool_stage import ToolStage, start_source
from assay.lab.session.validate import check_whole
from assay.rl.policy import Policy
from assay.runs.checkpoints import drop_optimizers
from assay.runs.cost_ledger import LEDGER, check_costs, lost_costs, put_aside_unreadable
from assay.runs.history import History, evaluation_records
from assay.runs.judgement_journal import JudgementJournal
from assay.runs.manifest_file import CHECKED, read_manifest
from assay.runs.metrics import check_history, truncate_metrics
from assay.runs.registry import note_run
from assay.runs.run_code import restore_code
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of
from assay.runs.same_experiment import check_same, fresh_run, newest, refuse_existing
from assay.runs.status import Status, change_status, hold_run, read_status, stored_status
from assay.tasks.user_code import forget_changed_files
from assay.train.loop import SourceShares, train


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
        with lines_named(experiment.origin):
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


def resume(
    run: RunDirectory,
    *,
    observer: Observer | None = None,
    past_guard: bool = False,
    despite: str | None = None,
    ranks: int | None = None,
) -> RunDirectory:
    """Continue an interrupted or failed run. Raises InputError for a finished one.

    A run that was not checked before is checked now (`looked_at`, which may raise). A run that a
    guard stopped continues only with `past_guard`, else InputError is raised; without such a guard
    `past_guard` raises InputError. `ranks` processes go on, else as many as before.
    """
    restore_code(run)
    status = read_status(run.path)
    experiment = experiment_of(run)
    engine = experiment.engine or EngineSpec()
    if ranks is not None and ranks != engine.ranks:
        engine = engine.model_copy(update={"ranks": ranks})
        experiment = experiment.model_copy(update={"engine": engine})
    check_ranks(engine.ranks)
    if not experiment.stage and not experiment.evaluate:
        fix = "repeat the 'assay eval' that it was made by"
        raise InputError(f"run {run} holds what was measured, and trains nothing", fix=fix)
    if status.status == "finished":
        raise InputError(f"run {run} is finished", fix="start another with --new")
    if status.guard and not past_guard:
        fix = f"to go on all the same: assay resume {run.name} --past-guard"
        raise InputError(f"{run}: {status.message}", fix=fix)
    if past_guard and not status.guard:
        raise InputError(f"no guard stopped {run}", fix="resume it without --past-guard")
    forget_changed_files()
    session = Session(experiment, run, status.seed, observer or Silent())
    check_ledger(session, despite)
    session.make_rows()
    session = looked_at(session, despite)
    if status.guard:
        pass_guards(run, status.guard.split(), status.stage, status.step)
    with hold_run(run.path):
        proceed(session)
    return run


def check_ledger(session: Session, despite: str | None) -> None:
    """Raise InputError where the cost ledger lacks calls that it held at the newest checkpoint,
    unless a reason overrides that."""
    run = session.run
    made = [run.checkpoint(s, n) for s in session.experiment.stage for n in run.checkpoint_steps(s)]
    newest = made[-1] if made else run.path
    if not reason_of(despite):
        check_costs(run, newest)
    elif lost := lost_costs(run.path, newest):
        session.observer.note(f"warning: {LEDGER} {lost}; budgets and sums lack those calls")
        put_aside_unreadable(run.path)


def proceed(session: Session) -> None:
    """Do the remaining work of a run that this process holds, and keep its status up to date.
    Raises whatever stopped the run, after noting it."""
    run, stages = session.run, session.experiment.stage
    sinks = sending(session.experiment, run, Noting(session.observer, run))
    with sinks as observer, session.copy(observer=observer).sharing_workers() as session:
        try:
            with noted(run, observer), session.helpers.recorded_in(run):
                observer.begin(run)
                work(session)
                for name in stages:
                    drop_optimizers(run.checkpoints(name), keep=0)
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
    manifest = answerer.manifest()
    if session.checked is not None:
        manifest = {**manifest, CHECKED: session.checked}
    if session.run.manifest.exists():
        check_manifest(session.run, manifest)
    else:
        write_manifest(session.run, manifest)
    for made in session.sets.values() if answerer.in_process else ():
        session.observer.note(describe(made, session.experiment.data[made.name]))
    measure_judges(answerer)
    for name in session.experiment.stage:
        run_stage(session, name)
    evaluations = answerer.evaluations().values()
    measure_bases(session, evaluations)
    for name in unseen(session.experiment, History(session.run).metrics):
        metric = session.experiment.guard[name].metric
        session.observer.note(f"guard {name!r} watched nothing: no step recorded {metric!r}")
    for evaluation in evaluations:
        if evaluation.spec.role == "report":
            measure_reported(session, evaluation)


def run_stage(session: Session, name: str) -> None:
    """Train one stage from its last checkpoint to its last step."""
    stage = session.experiment.stage[name]
    choose_level(session, name)
    inputs = session.stage_input(stage)
    with within(f"stage.{name}"):
        visits = visits_per_epoch(stage, inputs)
        steps = steps_of(stage, visits)
    done = session.run.checkpoint_steps(name)
    if done:
        check_guards(session.experiment, session.run, name, done[-1])
    choosing = selectors(session, name)
    chosen = chosen_by(session.run, session.experiment, name, bool(choosing))
    finished = done and done[-1] >= steps and chosen
    stages = list(session.experiment.stage)
    later = any(session.run.checkpoint_steps(s) for s in stages[stages.index(name) + 1 :])
    if finished and (later or is_whole(session.run, name, done[-1])):
        check_history(session.run, name, done[-1])
        return
    for evaluation in choosing[:1]:
        measure_start(session, name, evaluation)
    leave()
    if stage.trainer is not None:
        costs = ToolCosts()
        recorder = stage_recorder(session, name, visits, done[-1] if done else 0)
        recorder = replace(recorder, costs=costs)
        made = ToolStage(session, name, stage.trainer, start_source(session, name))
        ToolTraining(made, recorder, costs).train()
    else:
        # LoRA draws its first weights from torch's generator.
        torch.manual_seed(session.seed)
        opened = session.learner.policy(session.run, stage)
        for words in opened.notes:
            session.observer.note(f"{name}: {words}")
        train_stage(session, name, stage, inputs, opened, visits)
        del opened
        gc.collect()
    choose(session, name)


def stage_recorder(session: Session, name: str, visits: int, step: int) -> RunRecorder:
    """Writes the history of a stage behind `step`; an epoch has so many visits."""
    stage = session.experiment.stage[name]
    steps = steps_of(stage, visits)

    def add_files(folder: Path) -> None:
        """What makes a checkpoint a complete model for other programs, and the run's ledger."""
        session.learner.complete(session.run, stage, folder)
        session.helpers.keep_costs(folder)

    return RunRecorder(
        session.run,
        name,
        steps,
        due_steps(stage.checkpoint_every, stage, visits),
        session.observer,
        add_files=add_files,
        after_checkpoint=lambda answers, step: select(session, name, answers, step),
        guards=watch_stage(session.experiment, session.run, name, step),
        due=lambda step: why_due(session.experiment, name, step, steps),
        costs=session.helpers.step_costs,
    )


def train_stage(
    session: Session,
    name: str,
    stage: StageSpec,
    inputs: StageInput,
    opened: StagePolicy,
    visits: int,
) -> None:
    """The stage's loop, continued from the newest whole checkpoint if there is one; an epoch has so
    many visits."""
    steps, policy = steps_of(stage, visits), opened.policy
    optimizer = stage_optimizer(policy, stage)
    state = restore(session.run, name, policy, optimizer, session.observer)
    if state.step:
        check_history(session.run, name, state.step)

    recorder = stage_recorder(session, name, visits, state.step)
    truncate_metrics(session.run.metrics, name, state.step)
    session.observer.stage(name, stage.method, state.step, steps)
    if state.step:
        select(session, name, policy, state.step)
    runner = None
    if isinstance(stage, SamplingStage) and not stage.stored and inputs.judge is not None:
        judge_hash = judge_sha256(session.helpers, stage.reward, inputs.judge)
        journal = JudgementJournal(session.run.judgements(name), judge_hash)
        recorder = replace(recorder, judgements=journal)
        runner = session.reward_runner(inputs.judge, stage, journal)
        runner.told = partial(session.observer.inside, "judged")
        inputs = replace(inputs, score=runner.score)
    try:
        method = build_method(stage, inputs, steps)
        largest = largest_of(stage, method, inputs.encoder)
        for words in (*notes_of(method), *opened.fit(largest)):
            session.observer.note(f"{name}: {words}")
        if isinstance(inputs.order, Mixture):
            method = SourceShares(method, inputs.order, session.seed)
        method = with_step_metrics(stage, session.task, steps, method)
        looks = [lambda policy, step: opened.measured()]
        if stage.validation is not None:
            due = due_steps(stage.validation_every, stage, visits)
            rows = find_part(session.sets, stage.validation)
            looks.append(build_validation(stage, inputs, rows, due).look)

        def measure(policy: Policy, step: int) -> Mapping[str, float]:
            return {name: value for look in looks for name, value in look(policy, step).items()}

        session.helpers.stage(name, state.step + 1)
        settings = loop_settings(stage, steps)
        with ranked(session, name, opened, optimizer, largest) as (trained, optimizer):
            train(trained, method, optimizer, state, settings, recorder, measure)
    finally:
        if runner is not None:
            runner.close()


def lacking(run: RunDirectory, experiment: Experiment) -> dict[str, EvaluateSpec]:
    """Reporting evaluations of a finished run that lack a record: those that were added after it
    was made, and those whose record was deleted."""
    records = {record.name: record for record in evaluation_records(run)}

    def done(name: str, spec: EvaluateSpec) -> bool:
        wanted = [*named_checkpoints(run, spec)]
        return name in records and all(
            records[name].finished(run, checkpoint_name(reference)) for reference in wanted
        )

    every = experiment.evaluate.items()
    return {n: spec for n, spec in every if spec.role == "report" and not done(n, spec)}


def measure_added(run: RunDirectory, added: Mapping[str, EvaluateSpec], observer: Observer) -> None:
    """Make the records of `added`, but those that another process makes meanwhile.

    Raises InputError where the model or the training rows are no longer what the
    run was made from, InputError while it is executed elsewhere, and what evaluating raises.
    """
    experiment = experiment_of(run)
    whole = experiment.model_copy(update={"evaluate": {**experiment.evaluate, **added}})
    session = Session(whole, run, stored_status(run.path).seed, observer)
    check_base(session)
    if rows_still_there(session) is None:
        problem = f"the rows that {run} was trained on are no longer there, or no longer the same"
        fix = "restore them: else nobody knows whether new items were trained on"
        raise InputError(problem, field="data", fix=fix)
    answerer = answerer_of(session)
    evaluations = answerer.evaluations()
    with hold_run(run.path, shared=True), session.helpers.recorded_in(run):
        described = read_manifest(run)
        # A run that was taken over knows of its evaluations only now what a comparison asks.
        if own := added.keys() & experiment.evaluate.keys() - described["evaluation"].keys():
            tables = answerer.manifest()["evaluation"]
            own_tables = {name: tables[name] for name in added if name in own}
            write_manifest(run, {**described, "evaluation": described["evaluation"] | own_tables})
        for name in added:
            measure_reported(session, evaluations[name])
    note_run(run)


Did = Literal["started", "resumed", "measured", "left alone"]


@dataclass(frozen=True, slots=True)
class Launched:
    """A finished run of the experiment, and what was done for it."""

    run: RunDirectory
    did: Did


def launch_or_resume(
    experiment: Experiment,
    *,
    root: Path,
    observer: Observer,
    despite: str | None = None,
) -> list[Launched]:
    """For each seed: resume the newest run if it stopped, leave it alone if it is finished, start
    one where there is none. Nothing that is finished is trained again; reporting evaluations that
    the experiment has got since are measured.

    Raises InputError where the newest run of a seed has other settings.
    """
    done = []
    for seed in experiment.seeds:
        run = newest(root, experiment.name, seed)
        if run is None:
            check_whole(experiment, root)
            only = experiment.model_copy(update={"seeds": (seed,)})
            (run,) = start(only, root=root, beside=True, observer=observer, despite=despite)
            done.append(Launched(run, "started"))
            continue
        check_same(run, experiment)
        did: Did = "left alone"
        if read_status(run.path).status != "finished":
            observer.note(f"resuming {run}")
            ranks = (experiment.engine or EngineSpec()).ranks
            options = {"despite": despite, "ranks": ranks}
            run = resume(run, observer=observer, **options)
            did = "resumed"
        if added := lacking(run, experiment):
            observer.note(f"measuring {run} on {', '.join(added)}")
            measure_added(run, added, observer)
            did = "resumed" if did == "resumed" else "measured"
        done.append(Launched(run, did))
    return done
