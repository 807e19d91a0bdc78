"""How many visits an epoch of a stage has: rows, or the pairs that they give a dpo stage."""

from assay.experiment.stage_tables import DpoStage, StageSpec
from assay.lab.setup.prepare import find_part, rows_per_epoch
from assay.lab.setup.reward_parts import reward_of
from assay.lab.setup.session import Session
from assay.lab.setup.stage_pairs import pairs_per_epoch


def visits_per_epoch(session: Session, stage: StageSpec) -> int:
    """Rows or pairs that one epoch of a stage visits. Raises what judging candidates raises."""
    if not isinstance(stage, DpoStage):
        return rows_per_epoch(session.sets, stage.data)
    root = session.run.root
    judge = None if stage.reward is None else reward_of(session.task, stage.reward, root)
    return pairs_per_epoch(stage, judge, find_part(session.sets, stage.data))
