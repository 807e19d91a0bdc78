"""Runs whose model is behind an endpoint: nothing is trained, benchmarks are asked and recorded.

The manifest of such a run names the endpoint and the model; what weights answer there, nobody here
can know. Asking is `endpoint_answers`' part.
"""

import re
from pathlib import Path

from assay.data.hashing import hash_contents, sha256_text
from assay.data.splits import take
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.endpoint_answers import BASE, EndpointEvaluation, answer_all
from assay.lab.evaluate.outcomes import warn_of_unscored
from assay.lab.setup.evaluation import fewer_of
from assay.lab.setup.manifest import about_run
from assay.lab.setup.session import Session
from assay.rollout.engines.endpoint.client import PREFIX, Endpoint, endpoint_of
from assay.runs.manifest_file import Manifest
from assay.runs.records import EvaluationRecord
from assay.tasks.task import BenchmarkOptions, benchmark

LONGEST_SOURCE = 120
"""Characters of a model's source in the name of the run that holds its measurements."""


def is_endpoint(model: str) -> bool:
    """Whether a model is asked through an endpoint."""
    return model.startswith(PREFIX)


def endpoint_for(session: Session) -> Endpoint:
    """The endpoint of a run's model. Raises EndpointError where there is none to ask."""
    endpoint = endpoint_of(session.experiment.model, session.experiment.endpoint)
    endpoint.check()
    return endpoint


def endpoint_run_name(skill: str, source: str, url: str) -> str:
    """The name of the run that holds what a model at an endpoint was measured on."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", source).strip("-")
    return f"eval-{skill}-{plain[:LONGEST_SOURCE]}-{sha256_text(f'{source} {url}')[:8]}"


def make_endpoint_evaluation(name: str, spec: EvaluateSpec, session: Session) -> EndpointEvaluation:
    """Items of a benchmark, fingerprinted; `spec.benchmark` is given.

    Raises UnknownNameError for names, SplitError where fewer items exist than are taken.
    """
    made = benchmark(
        session.task, spec.benchmark or "", BenchmarkOptions(spec.options, session.run.root)
    )
    items = made.items
    if spec.take is not None:
        items = take(items, spec.take.rows, spec.take.how).rows
    record = EvaluationRecord(
        name=name,
        benchmark=made.name,
        role=spec.role,
        items=tuple(item.id for item in items),
        items_hash=hash_contents(items),
        repeats=spec.repeats,
        fewer=fewer_of(spec, len(items)),
        sampling=spec.sampling.model_dump(),
        rendering=f"endpoint: {spec.rendering}",
        checker=made.checker,
        options=dict(made.options),
        seed=session.seed,
    )
    return EndpointEvaluation(spec, session.task, made, tuple(items), record, session.seed)


def endpoint_evaluations(session: Session) -> list[EndpointEvaluation]:
    """The evaluations of the run's experiment."""
    tables = session.experiment.evaluate
    return [make_endpoint_evaluation(name, spec, session) for name, spec in tables.items()]


def measure_through(session: Session, evaluation: EndpointEvaluation, endpoint: Endpoint) -> Path:
    """The record of an evaluation, made where it is not there yet. Raises EndpointError."""
    if evaluation.record.finished(session.run, BASE):
        return evaluation.record.file(session.run.evaluations, BASE)
    with session.reward_runner(evaluation.made.score) as runner:
        folder = session.run.evaluations
        file = answer_all(evaluation, endpoint, folder, session.observer, runner)
    warn_of_unscored(session.observer, evaluation.record.name, BASE, file)
    return file


def endpoint_manifest(session: Session) -> Manifest:
    """See `lab.setup.manifest.make_manifest`; weights are unknown."""
    experiment = session.experiment
    url = endpoint_of(experiment.model, experiment.endpoint).url
    return {
        **about_run(session),
        "base_weights": {"source": experiment.model, "endpoint": url},
        "data": {},
        "stages": {},
        "evaluation": {e.record.name: _table(e) for e in endpoint_evaluations(session)},
    }


def _table(evaluation: EndpointEvaluation) -> dict[str, object]:
    record = evaluation.record
    kept = ("benchmark", "role", "items_hash", "repeats", "sampling", "rendering", "checker")
    return {**{key: getattr(record, key) for key in kept}, "options": dict(record.options)}


def work_through_endpoint(session: Session) -> None:
    """All evaluations of a run's experiment. Raises EndpointError."""
    endpoint = endpoint_for(session)
    for evaluation in endpoint_evaluations(session):
        measure_through(session, evaluation, endpoint)
