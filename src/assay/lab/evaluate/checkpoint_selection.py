"""Selects the best checkpoint of a stage, and lists the checkpoints that a run measures.

The best checkpoint of a stage is its start unless a later one is shown better (`judge.selection`).
Trains nothing; `run_evaluation` measures.
"""

from collections.abc import Iterable

from assay.experiment.checkpoint_reference import (
    CheckpointReference,
    checkpoint_name,
    parse_checkpoint,
)
from assay.experiment.stage_tables import start_of
from assay.judge.selection import promote
from assay.lab.evaluate.local_answerer import LocalAnswerer
from assay.lab.evaluate.run_evaluation import measure, measure_stored
from assay.lab.setup.evaluation import Evaluation
from assay.lab.setup.session import Session
from assay.rl.policy import Policy
from assay.runs.checkpoints import Selection, write_selection
from assay.runs.records import read_scores
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import checkpoint_steps, resolve_checkpoint


def selectors(session: Session, stage: str) -> list[Evaluation]:
    """The selecting evaluations of a stage."""
    found = []
    for evaluation in session.evaluations.values():
        references = map(parse_checkpoint, evaluation.spec.checkpoints)
        if evaluation.spec.role == "select" and any(r and r.stage == stage for r in references):
            found.append(evaluation)
    return found


def select(session: Session, stage: str, policy: Policy, step: int) -> None:
    """Measure a checkpoint that is in memory with the selecting evaluations."""
    for evaluation in selectors(session, stage):
        measure(session, evaluation, LocalAnswerer(session, policy), f"{stage}.step-{step:06d}")


def choose(session: Session, stage: str) -> None:
    """Store the stage's best checkpoint: its start, unless a later one is shown better."""
    for evaluation in selectors(session, stage)[:1]:
        start = checkpoint_name(stage_start(session, stage))
        names = {step: f"{stage}.step-{step:06d}" for step in checkpoint_steps(session.run, stage)}
        scores = {
            name: read_scores(session.run, evaluation.record, name)
            for name in (start, *names.values())
        }
        found = promote(scores[start], {step: scores[name] for step, name in names.items()})
        best = start if found.step is None else names[found.step]
        chosen = Selection(best, start, evaluation.name, scores[best].mean, looks=len(names))
        write_selection(session.run.path, stage, chosen)


def stage_start(session: Session, stage: str) -> CheckpointReference:
    """The checkpoint that a stage starts from, by its step."""
    return resolve_checkpoint(session.run, start_of(session.experiment.stage[stage]))


def measure_bases(session: Session, evaluations: Iterable[Evaluation]) -> None:
    """Measure `base` with the selecting evaluations that list it: a recommendation against it needs
    its scores, also where no stage of theirs starts from it."""
    for evaluation in evaluations:
        if evaluation.spec.role == "select" and "base" in evaluation.spec.checkpoints:
            measure_stored(session, evaluation, CheckpointReference(None))


def report(session: Session, evaluation: Evaluation) -> None:
    """Measure every checkpoint that a reporting evaluation names and that was not measured yet."""
    for text in evaluation.spec.checkpoints:
        for reference in expand(session.run, text):
            measure_stored(session, evaluation, reference)


def expand(run: RunDirectory, text: str) -> list[CheckpointReference]:
    """The checkpoints of a run that a name means, each by its step."""
    reference = parse_checkpoint(text)
    assert reference is not None
    if reference.stage is None:
        return [reference]
    if reference.which == "best":
        return [resolve_checkpoint(run, reference)]
    steps = checkpoint_steps(run, reference.stage)
    if reference.which == "last":
        steps = steps[-1:]
    elif reference.which == "step":
        steps = [s for s in steps if s == reference.step]
    return [CheckpointReference(reference.stage, "step", step) for step in steps]
