"""Goes on with the runs of an experiment: resumes what stopped, measures what was added.

A resumed run is taken back to its newest whole checkpoint. Damaged ones are moved to a folder of
their own, and the manifest says where and why; nothing is deleted. Rewards of the steps that are
trained again stay journalled, so that these give the same ones. A finished run is measured on
reporting evaluations that were added since, so that a sweep with a longer `evaluate.` axis need not
train again; its spec and manifest stay as they were. Selecting evaluations are never added, because
they belong to the training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from assay.engines.ranks import check_ranks
from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.tables import EngineSpec, EvaluateSpec
from assay.lab.check.all_checks import looked_at, reason_of
from assay.lab.evaluate.checkpoint_selection import measure_listed, named_checkpoints
from assay.lab.evaluate.run_evaluation import answerer_of
from assay.lab.monitor.guards import check_guards, pass_guards
from assay.lab.monitor.observer import Observer, Silent
from assay.lab.run.runner import at_work, manifest_now, start, work
from assay.lab.session.manifest import check_base, check_manifest, rows_still_there
from assay.lab.session.session import Session
from assay.lab.session.validate import check_whole
from assay.runs.cost_ledger import LEDGER, check_costs, lost_costs, put_aside_unreadable
from assay.runs.history import evaluation_records
from assay.runs.metrics import check_history, truncate_metrics
from assay.runs.protection import guard_delete
from assay.runs.registry import check_same, newest, note_run
from assay.runs.run_code import restore_code
from assay.runs.run_directory import (
    OPTIMIZER,
    PUT_ASIDE,
    RunDirectory,
    check_checkpoint,
    continuable,
    hold_run,
    read_manifest,
    read_status,
    step_name,
    stored_status,
    write_manifest,
)
from assay.runs.run_files import DamagedFile
from assay.runs.run_names import experiment_of
from assay.tasks.user_code import forget_changed_files


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
    with hold_run(run.path), at_work(session) as session:
        take_back(session)
        work(session)
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


def take_back(session: Session) -> None:
    """Take a run back to where it goes on: its newest whole checkpoint, and what was recorded up to
    it. Raises what `check_manifest`, `check_guards` and `put_aside` do, and InputError where the
    metrics are not those of a checkpoint."""
    run = session.run
    if run.manifest.exists():
        check_manifest(run, manifest_now(answerer_of(session)))
    begun = [name for name in session.experiment.stage if run.checkpoint_steps(name)]
    for name in begun:
        check_guards(session.experiment, run, name, run.checkpoint_steps(name)[-1])
    for name in begun[-1:]:
        put_damaged_aside(session, name)
    reached = StagePlace(next(iter(session.experiment.stage), ""), 0)
    for name in begun:
        for step in run.checkpoint_steps(name)[-1:]:
            check_history(run, name, step)
            reached = StagePlace(name, step)
    if reached.stage and run.metrics.exists():
        truncate_metrics(run.metrics, reached.stage, reached.step)


def put_damaged_aside(session: Session, name: str) -> None:
    """Put aside the damaged checkpoints of a stage behind its newest whole one. Raises DamagedFile
    where only one without optimizer state is left, and for a stage that another tool trains."""
    run, damaged, start = session.run, dict[StagePlace, DamagedFile](), StagePlace(name, 0)
    fix = "start another run with --new"
    for step in reversed(run.checkpoint_steps(name)):
        place, folder = StagePlace(name, step), run.checkpoint(name, step)
        goes_on = continuable(folder)
        try:
            check_checkpoint(folder, fix, optimizer=goes_on)
        except DamagedFile as problem:
            if session.experiment.stage[name].trainer is not None:
                raise
            damaged[place] = problem
            if goes_on:
                continue
            if len(damaged) == 1:
                raise InputError(f"{OPTIMIZER} is missing", file=folder, fix=fix) from problem
        start = place
        break
    if not damaged:
        return
    first = next(iter(damaged.values()))
    if start.step and not continuable(run.checkpoint(name, start.step)):
        problem = f"{first.problem}, and no checkpoint before it keeps its optimizer state"
        raise DamagedFile(problem, file=first.file, fix=fix)
    places = sorted(damaged, key=lambda place: place.step)
    aside = put_aside(run, places, start, str(first.file).removeprefix(f"{run.path}/"))
    for place, problem in damaged.items():
        session.observer.note(
            f"warning: {place} is damaged: {problem.file}: {problem.problem}; it now lies in "
            f"{aside}, and the stage goes on from {start}"
        )


ASIDE = "aside"


@dataclass(frozen=True, slots=True)
class StagePlace:
    """A step of a stage; step 0 is its start."""

    stage: str
    step: int

    def __str__(self) -> str:
        return f"{self.stage}.{step_name(self.step)}"


def put_aside(
    run: RunDirectory, checkpoints: Sequence[StagePlace], start: StagePlace, damage: str
) -> Path:
    """Record in the manifest that damaged checkpoints are put aside, then move them with their
    records to a folder, which is returned.

    `start` is where the run goes on, `damage` the first damaged file. Raises InputError if a
    checkpoint is protected or other runs need it.
    """
    for place in checkpoints:
        guard_delete(run.root, run.checkpoint(place.stage, place.step), within=run.path)
    taken = [int(p.name) for p in (run.path / ASIDE).glob("[0-9]*") if p.name.isdigit()]
    aside = run.path / ASIDE / f"{max(taken, default=0) + 1:03d}"
    manifest = read_manifest(run)
    entry = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "checkpoints": [str(place) for place in checkpoints],
        "start": str(start),
        "damage": damage,
        "folder": aside.relative_to(run.path).as_posix(),
    }
    manifest.setdefault("time", {}).setdefault(PUT_ASIDE, []).append(entry)
    write_manifest(run, manifest)
    # The last first and each after its records: a kill leaves no record without its checkpoint, and
    # no checkpoint without earlier ones.
    for place in reversed(checkpoints):
        records = sorted(run.evaluations.glob(f"*/{place}.*"))  # finished and unfinished
        for path in (*records, run.checkpoint(place.stage, place.step)):
            if path.exists():
                target = aside / path.relative_to(run.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
    return aside


def lacking(run: RunDirectory, experiment: Experiment) -> dict[str, EvaluateSpec]:
    """Reporting evaluations of a finished run that lack a record: those that were added after it
    was made, and those whose record was deleted."""
    records = {record.name: record for record in evaluation_records(run)}

    def done(name: str, spec: EvaluateSpec) -> bool:
        wanted = [*named_checkpoints(run, spec)]
        return name in records and all(records[name].finished(run, each) for each in wanted)

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
        measure_listed(session, [evaluations[name] for name in added])
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
