"""Evaluates a checkpoint that exists: a run's, into that run's records, or any model's.

A model without a run of its own gets one that trains nothing, so that its records have a place and
a manifest. A record that exists is not made again.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from json import dumps, loads
from pathlib import Path
from typing import Any

from assay.data.files import remove_leftovers
from assay.data.hashing import sha256_text
from assay.experiment.checkpoint_reference import CheckpointReference, checkpoint_name
from assay.experiment.experiment import Experiment
from assay.experiment.tables import EvaluateSpec
from assay.experiment.toml_write import experiment_toml
from assay.lab.check.openable import refuse_longer, refuse_unopenable
from assay.lab.evaluate.checkpoint_selection import measure_stored
from assay.lab.evaluate.endpoint_answers import BASE
from assay.lab.evaluate.endpoint_runs import (
    LONGEST_SOURCE,
    endpoint_run_name,
    is_endpoint,
    make_endpoint_evaluation,
    measure_through,
)
from assay.lab.monitor.observer import Observer
from assay.lab.run.runner import execute, note, noted
from assay.lab.setup.evaluation import Evaluation, make_evaluation
from assay.lab.setup.manifest import check_base, rows_still_there
from assay.lab.setup.session import Session
from assay.models.source import EXAMPLES
from assay.rollout.engines.endpoint.client import endpoint_of
from assay.runs.registry import note_run
from assay.runs.run_directory import RunDirectory, create_run, runs_of
from assay.runs.run_files import read_json
from assay.runs.run_names import (
    experiment_of,
    find_named,
)
from assay.runs.status import RunBusy, hold_run, stored_status
from assay.tasks.task import TASKS, lookup, task

IDENTITY = ("name", "role", "shared")
"""Fields of a record that change neither items nor answers."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What `evaluate_again` did."""

    run: RunDirectory
    evaluation: str
    """The evaluation's name in the run."""
    key: str
    """The folder of its records."""
    checkpoint: str
    made: bool
    """False: the record was there already."""
    file: Path


def evaluate_again(root: Path, target: str, spec: EvaluateSpec, observer: Observer) -> Evaluated:
    """Measure `target`, `NAME@CHECKPOINT` or a model source, as `spec` says on its benchmark.

    `spec.checkpoints` is not looked at, and the rendering is the one that the run trains in. Raises
    InputError for what does not exist, RunBusy while the run is executed elsewhere.
    """
    if is_endpoint(target):
        return evaluate_endpoint(root, target, spec, observer)
    run, reference = find_target(root, target, spec.benchmark or "", observer)
    session = Session(experiment_of(run), run, stored_status(run.path).seed, observer)
    spec = spec.model_copy(update={"rendering": rendering_for(session.experiment, reference)})
    name = checkpoint_name(reference)
    with failure_noted(session):
        evaluation = known_evaluation(run, made_again(session, spec))
        check_base(session)
        finished = evaluation.record.finished(run, name)
        if not finished:
            with held_and_noted(session):
                measure_stored(session, evaluation, reference)
    file = evaluation.record.file(run.evaluations, name)
    return Evaluated(run, evaluation.name, evaluation.record.key, name, not finished, file)


def made_again(session: Session, spec: EvaluateSpec) -> Evaluation:
    """The evaluation of `spec` on its benchmark, under a name of its own. Raises AnswersTooLong."""
    refuse_longer("sampling.max_tokens", spec.sampling.max_tokens, session.base.positions)
    return make_evaluation(
        evaluation_name(spec),
        spec,
        session.task,
        {},
        session.base.tokenizer,
        session.seed,
        rows_still_there(session),
        session.run.root,
    )


def rendering_for(experiment: Experiment, reference: CheckpointReference) -> str:
    """The rendering of the stage that made a checkpoint, of the first stage for the model before
    any; `auto` where nothing is trained.
    """
    stages = experiment.stage
    stage = stages[reference.stage] if reference.stage else next(iter(stages.values()), None)
    return stage.rendering if stage else "auto"


def evaluate_endpoint(root: Path, target: str, spec: EvaluateSpec, observer: Observer) -> Evaluated:
    """Measure a model behind the endpoint that the environment names. Raises EndpointError."""
    endpoint = endpoint_of(target, None)
    endpoint.check()
    skill = task_with(spec.benchmark or "")
    name = endpoint_run_name(skill, target, endpoint.url)
    run = model_run_named(root, target, skill, name, observer, endpoint.url)
    session = Session(experiment_of(run), run, stored_status(run.path).seed, observer)
    with failure_noted(session):
        made = make_endpoint_evaluation(evaluation_name(spec), spec, session)
        finished = made.record.finished(run, BASE)
        if not finished:
            with held_and_noted(session):
                measure_through(session, made, endpoint)
    file = made.record.file(run.evaluations, BASE)
    return Evaluated(run, made.record.name, made.record.key, BASE, not finished, file)


@contextmanager
def held_and_noted(session: Session) -> Iterator[None]:
    """Hold the run while it is measured. The status of one that holds measurements alone says how
    the last one ended; that of a run with stages is about its training.
    """
    with hold_run(session.run.path):
        if holds_measurements(session):
            with noted(session):
                yield
        else:
            remove_leftovers(session.run.path)
            yield
    note_run(session.run)


@contextmanager
def failure_noted(session: Session) -> Iterator[None]:
    """No run that holds measurements alone is finished before one of them is."""
    try:
        yield
    except RunBusy:
        raise
    except Exception as error:
        if holds_measurements(session) and not any(session.run.evaluations.glob("*/[!.]*.parquet")):
            note(session, status="failed", message=str(error))
        raise


def holds_measurements(session: Session) -> bool:
    """Whether the run is one of those that `model_run_named` makes."""
    return not session.experiment.stage and not session.experiment.evaluate


def evaluation_name(spec: EvaluateSpec) -> str:
    """The name of an evaluation that no experiment file named."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", spec.benchmark or "")


def known_evaluation(run: RunDirectory, made: Evaluation) -> Evaluation:
    """The evaluation under the name and role that the run already knows it by, if it does."""
    for file in sorted(run.evaluations.glob("*/evaluation.json")):
        stored = read_json(file, dict)
        if substance(stored) == substance(loads(dumps(asdict(made.record)))):
            known = {key: stored[key] for key in IDENTITY if key in stored}
            record = replace(made.record, **known)
            return replace(made, name=record.name, record=record)
    return made


def substance(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record's answers and scores depend on."""
    # Records of older versions do not say that all were asked the same.
    whole = {"fewer": {}, **record}
    return {key: value for key, value in whole.items() if key not in {"schema", *IDENTITY}}


def find_target(
    root: Path, target: str, benchmark: str, observer: Observer
) -> tuple[RunDirectory, CheckpointReference]:
    """The run that holds the target's records, and the checkpoint in it."""
    kind, _, rest = target.partition(":")
    if kind in EXAMPLES and kind != "run":
        return model_run(root, target, benchmark, observer), CheckpointReference(None)
    return find_named(root, rest if kind == "run" else target)


def model_run(root: Path, source: str, benchmark: str, observer: Observer) -> RunDirectory:
    """The run without stages that holds the records of a model source for a benchmark's task."""
    skill = task_with(benchmark)
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", source).strip("-")
    name = f"eval-{skill}-{plain[:LONGEST_SOURCE]}"
    known = [(run, experiment_of(run).model) for run in runs_of(root, name)]
    if any(model != source for _, model in known):
        # Another source whose name comes out the same has it already: "a b" and "a-b".
        return model_run_named(root, source, skill, f"{name}-{sha256_text(source)[:8]}", observer)
    return model_run_named(root, source, skill, name, observer)


def model_run_named(
    root: Path, source: str, skill: str, name: str, observer: Observer, endpoint: str | None = None
) -> RunDirectory:
    """The run of this name, made where there is none that came as far as its manifest.

    A model that cannot be opened leaves no run behind.
    """
    if known := [run for run in runs_of(root, name) if run.manifest.exists()]:
        return known[-1]
    about = f"Holds the evaluations of {source}; trains nothing"
    experiment = Experiment(name=name, about=about, model=source, endpoint=endpoint, task=skill)
    (seed,) = experiment.seeds
    refuse_unopenable(experiment, root)
    run = create_run(root, name, seed=seed, spec=experiment_toml(experiment), new=True)
    execute(Session(experiment, run, seed, observer))
    return run


def task_with(benchmark: str) -> str:
    """The name of the task that has a benchmark. Raises UnknownNameError with the nearest."""
    owners = {known: name for name in TASKS for known in task(name).benchmarks}
    return lookup(owners, benchmark, "benchmark")
