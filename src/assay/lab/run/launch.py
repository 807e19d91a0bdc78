"""Decides what to do with an experiment that already has runs: start, resume or leave them alone.

A finished run is measured on reporting evaluations that were added since, so that a sweep with a
longer `evaluate.` axis need not train again; its spec and manifest stay as they were. Selecting
evaluations are never added, because they belong to the training. `runner` executes the run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.experiment.checkpoint_reference import checkpoint_name
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import ExperimentSource, read_experiment
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.checkpoint_selection import expand, report
from assay.lab.evaluate.run_evaluation import answerer_of
from assay.lab.monitor.observer import Observer
from assay.lab.run.runner import resume, start
from assay.lab.setup.manifest import RunChanged, check_base, rows_still_there
from assay.lab.setup.session import Session
from assay.runs.history import evaluation_records
from assay.runs.records import EvaluationRecord
from assay.runs.registry import note_run
from assay.runs.run_directory import RunDirectory
from assay.runs.same_experiment import check_same, newest
from assay.runs.status import hold_run, read_status, stored_status


def lacking(run: RunDirectory, experiment: Experiment) -> dict[str, EvaluateSpec]:
    """Reporting evaluations of a finished run that lack a record: those that were added after it
    was made, and those whose record was deleted."""
    records = {record.name: record for record in evaluation_records(run)}
    return {
        name: spec
        for name, spec in experiment.evaluate.items()
        if spec.role == "report" and not _done(run, records.get(name), spec)
    }


def _done(run: RunDirectory, record: EvaluationRecord | None, spec: EvaluateSpec) -> bool:
    if record is None:
        return False
    wanted = [reference for text in spec.checkpoints for reference in expand(run, text)]
    return all(record.finished(run, checkpoint_name(reference)) for reference in wanted)


def measure_added(run: RunDirectory, added: Mapping[str, EvaluateSpec], observer: Observer) -> None:
    """Make the records of `added`, but those that another process makes meanwhile.

    Raises BaseChanged and RunChanged where the model or the training rows are no longer what the
    run was made from, RunBusy while it is executed elsewhere, and what evaluating raises.
    """
    experiment = read_experiment(run.spec)
    whole = experiment.model_copy(update={"evaluate": {**experiment.evaluate, **added}})
    session = Session(whole, run, stored_status(run.path).seed, observer)
    check_base(session)
    if rows_still_there(session) is None:
        problem = f"the rows that {run} was trained on are no longer there, or no longer the same"
        fix = "restore them: else nobody knows whether new items were trained on"
        raise RunChanged(problem, field="data", fix=fix)
    evaluations = answerer_of(session).evaluations()
    with hold_run(run.path, shared=True), session.helpers.recorded_in(run):
        for name in added:
            report(session, evaluations[name])
    note_run(run)


Did = Literal["started", "resumed", "measured", "left alone"]


@dataclass(frozen=True, slots=True)
class Launched:
    """A finished run of the experiment, and what was done for it."""

    run: RunDirectory
    did: Did


def launch(
    source: ExperimentSource,
    overrides: Sequence[str],
    *,
    root: Path,
    new: bool,
    observer: Observer,
    despite: str | None = None,
) -> list[Launched]:
    """Run the experiment, once per seed. Raises InputError, unless `new`, with what can be done."""
    started = start(source, overrides, root=root, new=new, observer=observer, despite=despite)
    return [Launched(run, "started") for run in started]


def launch_or_resume(
    source: ExperimentSource,
    overrides: Sequence[str],
    *,
    root: Path,
    observer: Observer,
    despite: str | None = None,
) -> list[Launched]:
    """For each seed: resume the newest run if it stopped, leave it alone if it is finished, start
    one where there is none. Nothing that is finished is trained again; reporting evaluations that
    the experiment has got since are measured.

    Raises OtherExperiment where the newest run of a seed has other settings.
    """
    experiment = read_experiment(source, overrides)
    done = []
    for seed in experiment.seeds:
        run = newest(root, experiment.name, seed)
        if run is None:
            only = [*overrides, f"seeds=[{seed}]"]
            (run,) = start(source, only, root=root, beside=True, observer=observer, despite=despite)
            done.append(Launched(run, "started"))
            continue
        experiment = read_experiment(source, overrides, like=read_experiment(run.spec))
        check_same(run, experiment)
        did: Did = "left alone"
        if read_status(run.path).status != "finished":
            observer.note(f"resuming {run}")
            run, did = (
                resume(run, observer=observer, despite=despite, log=experiment.log),
                "resumed",
            )
        if added := lacking(run, experiment):
            observer.note(f"measuring {run} on {', '.join(added)}")
            measure_added(run, added, observer)
            did = "resumed" if did == "resumed" else "measured"
        done.append(Launched(run, did))
    return done
