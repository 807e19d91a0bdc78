"""Renders the prompts of recorded samples again, from the data and the model of their run."""

from functools import partial
from pathlib import Path
from typing import Any

from assay.data.episode import Context
from assay.errors import InputError
from assay.experiment.base_table import RenderingSettings
from assay.experiment.tables import EvaluateSpec
from assay.lab.setup.evaluation import Evaluation, encoded_evaluation
from assay.lab.setup.learner import first_context
from assay.lab.setup.prepare import find_part
from assay.lab.setup.session import Session
from assay.runs.run_files import read_json
from assay.tasks.rendered_dialogue import dialogue_of


def prompt_of(session: Session, line: dict[str, Any]) -> str:
    """The prompt that a line of `find_samples` answers, rendered again, control tokens included.

    Raises InputError where the data holds the row no longer.
    """
    file = session.run.path / line["file"]
    if file.is_relative_to(session.run.evaluations):
        rendering, context = _evaluation_prompt(session, file, line["item_id"])
    else:
        rendering, context = _training_prompt(session, file.parent.name, line["row_id"])
    return session.learner.encoder(rendering).text(context)


def evaluation_of(session: Session, folder: Path) -> Evaluation:
    """The evaluation whose records lie in `folder`, from what they say about themselves."""
    stored = read_json(folder / "evaluation.json", dict)
    if stored["name"] in session.experiment.evaluate:
        return session.evaluations[stored["name"]]
    spec = EvaluateSpec(
        benchmark=stored["benchmark"],
        role=stored["role"],
        checkpoints=("base",),
        options=stored["options"],
    )
    given = (stored["name"], spec, session.task, {}, session.learner, session.seed)
    return encoded_evaluation(*given, root=session.run.root)


def _evaluation_prompt(
    session: Session, file: Path, item_id: str
) -> tuple[RenderingSettings, Context]:
    evaluation = evaluation_of(session, file.parent)
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
