"""How many visits an epoch of a stage has: rows, or the pairs or packs that they give."""

from assay.experiment.stage_tables import DpoStage, SftStage, StageSpec
from assay.lab.setup.prepare import find_part, rows_per_epoch
from assay.lab.setup.reward_parts import reward_of
from assay.lab.setup.session import Session
from assay.lab.setup.stage_methods import packs_of_conversations, stored_conversations
from assay.lab.setup.stage_pairs import pairs_per_epoch


def visits_per_epoch(session: Session, stage: StageSpec) -> int:
    """Rows, pairs or packs that one epoch of a stage visits. Raises what judging candidates raises,
    and reading rows."""
    if isinstance(stage, SftStage) and stage.pack_tokens is not None:
        given = session.stage_input(stage, find_part(session.sets, stage.data), None)
        stored = stored_conversations(given, stage.loss_on)
        return len(packs_of_conversations(given.encoder, stored, stage.pack_tokens))
    if not isinstance(stage, DpoStage):
        return rows_per_epoch(session.sets, stage.data)
    root = session.run.root
    judge = None if stage.reward is None else reward_of(session.task, stage.reward, root)
    return pairs_per_epoch(stage, judge, find_part(session.sets, stage.data))
