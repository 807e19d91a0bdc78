"""The looks that a run took at the items that choose: a stage's start and its checkpoints, scored.

Read from the records again, so that what was chosen can be explained. Choosing is
`checkpoint_selection`'s.
"""

from dataclasses import dataclass

from assay.experiment.checkpoint_reference import checkpoint_name, parse_checkpoint
from assay.experiment.read_file import read_experiment
from assay.judge.promotion import Promotion, promote
from assay.judge.scores import ItemScores, on_one_scale
from assay.runs.chosen_checkpoints import read_selection
from assay.runs.measurements import evaluation_records, measured_checkpoints
from assay.runs.records import EvaluationRecord, read_scores
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import RunNotFound, resolve_checkpoint


@dataclass(frozen=True)
class Look:
    """One checkpoint on the items that choose."""

    step: int
    """0 for what the stage started from."""
    name: str
    """As records name it."""
    scores: ItemScores


def looks(run: RunDirectory, stage: str) -> list[Look]:
    """The first selecting evaluation's looks at a stage, by step, all on one scale.

    The start comes first where it was measured. Raises what reading the records raises.
    """
    for record in evaluation_records(run):
        if record.role != "select":
            continue
        measured = measured_checkpoints(run, record)
        steps = {name: parse_checkpoint(name) for name in measured}
        names = {n: r.step for n, r in steps.items() if r and r.stage == stage and r.step}
        if names:
            start = start_name(run, stage)
            return _scored(run, record, ({start: 0} if start in measured else {}) | names)
    return []


def explained(run: RunDirectory, stage: str) -> Promotion | None:
    """The gate's figures for a stage, computed again; None where start or checkpoints lack."""
    found = looks(run, stage)
    if len(found) < 2 or found[0].step != 0:
        return None
    return promote(found[0].scores, {look.step: look.scores for look in found[1:]})


def start_name(run: RunDirectory, stage: str) -> str:
    """What a stage started from, as records name it; "" where that is not known yet."""
    chosen = read_selection(run.path, stage)
    if chosen and chosen.start:
        return chosen.start
    reference = parse_checkpoint(read_experiment(run.spec).stage[stage].start)
    assert reference is not None, "the spec was checked"
    try:
        return checkpoint_name(resolve_checkpoint(run, reference))
    except RunNotFound:  # the stage before has left no checkpoint yet, or it was deleted
        return ""


def _scored(run: RunDirectory, record: EvaluationRecord, names: dict[str, int]) -> list[Look]:
    scores = on_one_scale(*(read_scores(run, record, name) for name in names))
    return [
        Look(step, name, each) for (name, step), each in zip(names.items(), scores, strict=True)
    ]
