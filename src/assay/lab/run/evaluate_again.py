"""Evaluates an existing checkpoint of a run, or any other model.

A run's checkpoint is recorded in its run. Another model gets a run without training, which holds
its records and manifest. A complete record is not made again.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from json import dumps, loads
from pathlib import Path
from typing import Any

from assay.data.files import remove_leftovers, with_scheme
from assay.engines.ray_pool import connect
from assay.errors import look_up
from assay.experiment.checkpoint_reference import CheckpointReference, checkpoint_name
from assay.experiment.tables import EngineSpec, EvaluateSpec
from assay.experiment.toml_write import experiment_toml
from assay.lab.evaluate.endpoint_answerer import endpoint_holder
from assay.lab.evaluate.local_answerer import local_holder
from assay.lab.evaluate.run_evaluation import answerer_of, measure_stored
from assay.lab.models.learner import model_kinds
from assay.lab.monitor.observer import Observer
from assay.lab.run.runner import note, noted, proceed
from assay.lab.session.evaluation import Evaluation
from assay.lab.session.manifest import check_base
from assay.lab.session.session import Session
from assay.runs.history import read_description
from assay.runs.records import EvaluationRecord, refuse_fallbacks
from assay.runs.registry import fresh_run, note_run
from assay.runs.run_code import restore_code
from assay.runs.run_directory import RunDirectory, hold_run, is_held, runs_of, stored_status
from assay.runs.run_names import (
    experiment_of,
    find_named,
)
from assay.tasks.task import TASKS
from assay.tasks.task import task as find_task
from assay.tasks.user_code import forget_changed_files

IDENTITY = ("name", "role", "shared")
"""Fields of a record that change neither items nor answers."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The result of `evaluate_again`."""

    run: RunDirectory
    evaluation: str
    """The evaluation's name in the run."""
    key: str
    """The folder of its records."""
    checkpoint: str
    made: bool
    """False: the record was there already."""
    file: Path


def evaluate_again(
    root: Path,
    target: str,
    spec: EvaluateSpec,
    observer: Observer,
    task: str | None = None,
    on: str | None = None,
) -> Evaluated:
    """Measure `target`, `NAME@CHECKPOINT` or a model source, as `spec` says on its benchmark.

    A model source is asked for the `task` that has the benchmark; None looks for it. `on` takes
    the place of `engine.evaluate` of the run's experiment.

    `spec.checkpoints` is ignored, and a model in this process uses the rendering that it was
    trained with. Raises InputError for what does not exist, or a run that another process executes
    now, InputError for a benchmark that lacks a part, RunFailure for a record whose
    answers a fallback metric scored.
    """
    forget_changed_files()
    if on is not None:
        connect(on, "--on")
    run, reference = find_target(root, target, spec.benchmark or "", observer, task)
    restore_code(run)
    experiment = experiment_of(run)
    if on is not None:
        engine = (experiment.engine or EngineSpec()).model_copy(update={"evaluate": on})
        experiment = experiment.model_copy(update={"engine": engine})
    session = Session(experiment, run, stored_status(run.path).seed, observer)
    name = checkpoint_name(reference)
    label = re.sub(r"[^A-Za-z0-9_-]+", "-", spec.benchmark or "")  # no experiment file named it
    with failure_noted(session):
        made = answerer_of(session).evaluation(label, spec, reference)
        evaluation = known_evaluation(run, made)
        check_base(session)
        finished = evaluation.record.finished(run, name)
        file = evaluation.record.file(run.evaluations, name)
        if finished:
            refuse_fallbacks(evaluation.name, name, file)
        else:
            with held_and_noted(session):
                measure_stored(session, evaluation, name)
    return Evaluated(run, evaluation.name, evaluation.record.key, name, not finished, file)


@contextmanager
def held_and_noted(session: Session) -> Iterator[None]:
    """Lock the run while it is measured. The status of a run without stages is that of its last
    measurement; a run with stages keeps the status of its training."""
    run, alone = session.run, holds_measurements(session)
    with hold_run(run.path):
        remove_leftovers(run.path)
        measured = noted(run, session.observer) if alone else nullcontext()
        with measured, session.helpers.recorded_in(run):
            yield
    note_run(run)


@contextmanager
def failure_noted(session: Session) -> Iterator[None]:
    """No run that holds measurements alone is finished before one of them is."""
    try:
        yield
    except Exception as error:
        measured = any(session.run.evaluations.glob("*/[!.]*.parquet"))
        if holds_measurements(session) and not measured and not is_held(session.run.path):
            note(session.run, status="failed", message=str(error))
        raise


def holds_measurements(session: Session) -> bool:
    """Whether the run is one of those that `model_run` makes."""
    return not session.experiment.stage and not session.experiment.evaluate


def known_evaluation(run: RunDirectory, made: Evaluation) -> Evaluation:
    """The evaluation under the name and role that the run already knows it by, if it does."""
    for file in sorted(run.evaluations.glob("*/evaluation.json")):
        stored = read_description(file)
        if substance(stored) == substance(made.record):
            known = {key: getattr(stored, key) for key in IDENTITY}
            return replace(made, record=replace(made.record, **known))
    return made


def substance(record: EvaluationRecord) -> dict[str, Any]:
    """The fields of a record that its answers and scores depend on."""
    whole = loads(dumps(asdict(record)))
    return {key: value for key, value in whole.items() if key not in IDENTITY}


def find_target(
    root: Path, target: str, benchmark: str, observer: Observer, task: str | None
) -> tuple[RunDirectory, CheckpointReference]:
    """The run that holds the target's records, and the checkpoint in it."""
    target = with_scheme(target, root)
    kind, _, rest = target.partition(":")
    own = None if task is None else find_task(task, root)  # its module may enter a learner
    if ":" in target and kind != "run" and kind in model_kinds(kind, own):
        owners = {known: name for name in TASKS for known in find_task(name).benchmarks}
        skill = look_up(owners, benchmark, "benchmark") if task is None else task
        look_up(find_task(skill, root).benchmarks, benchmark, "benchmark")
        return model_run(root, target, skill, observer), CheckpointReference(None)
    return find_named(root, rest if kind == "run" else target)


def model_run(root: Path, source: str, skill: str, observer: Observer) -> RunDirectory:
    """The run without stages that holds the records of a model source for a task, made where there
    is none that came as far as its manifest. A model that cannot be asked leaves no run behind."""
    make = endpoint_holder if source.startswith("openai:") else local_holder
    experiment = make(root, source, skill)
    if known := [run for run in runs_of(root, experiment.name) if run.manifest.exists()]:
        return known[-1]
    (seed,) = experiment.seeds
    nowhere = RunDirectory(root, experiment.name, "to-be-made")
    answerer_of(Session(experiment, nowhere, seed, observer)).check()
    with fresh_run(root, experiment.name, seed, experiment_toml(experiment), new=False) as run:
        proceed(Session(experiment, run, seed, observer))
    return run
