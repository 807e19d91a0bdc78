"""The prompt that a stored sample answers, rendered again."""

from functools import partial
from pathlib import Path
from typing import Any

from assay.data.episode import Context
from assay.errors import InputError
from assay.experiment.base_table import RenderingSettings
from assay.experiment.tables import EvaluateSpec
from assay.lab.setup.evaluation import encoded_evaluation
from assay.lab.setup.learner import first_context
from assay.lab.setup.prepare import find_part
from assay.lab.setup.session import Session
from assay.runs.history import read_description
from assay.tasks.rendered_dialogue import dialogue_of


def prompt_of(session: Session, line: dict[str, Any]) -> str:
    """The prompt that a line of `find_samples` answers, rendered again, control tokens included.
    Raises InputError where the data holds the row no longer."""
    file = session.run.path / line["file"]
    if file.is_relative_to(session.run.evaluations):
        rendering, context = _evaluation_prompt(session, file, line["item_id"])
    else:
        rendering, context = _training_prompt(session, file.parent.name, line["row_id"])
    return session.learner.encoder(rendering).text(context)


def _evaluation_prompt(
    session: Session, file: Path, item_id: str
) -> tuple[RenderingSettings, Context]:
    stored = read_description(file.parent / "evaluation.json")
    if stored.name in session.experiment.evaluate:
        evaluation = session.evaluations[stored.name]
    else:
        about = {"benchmark": stored.benchmark, "role": stored.role, "options": stored.options}
        spec = EvaluateSpec.model_validate({**about, "checkpoints": ("base",)})
        given = (stored.name, spec, session.task, {}, session.learner, session.seed)
        evaluation = encoded_evaluation(*given, root=session.run.root)
    ids = [item.id for item in evaluation.items]
    if item_id not in ids:
        raise InputError(f"{evaluation.spec.benchmark} has no item {item_id!r} any more")
    return evaluation.spec, evaluation.contexts[ids.index(item_id)]


def _training_prompt(
    session: Session, stage_name: str, row_id: str
) -> tuple[RenderingSettings, Context]:
    stage = session.experiment.stage[stage_name]
    for row in find_part(session.sets, stage.data):
        if row.id == row_id:
            encoder, task = session.learner.encoder(stage), session.task
            return stage, first_context(encoder, task, row, partial(dialogue_of, task))
    raise InputError(f"{stage.data} has no row {row_id!r} any more")
