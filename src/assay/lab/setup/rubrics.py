"""Opens the rubric of a reward `rubric:FILE`, and the answers of another run that it compares with.

Asks no model: that is `tasks.rubric`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.data.hashing import canonical_json, sha256_text
from assay.data.row import Row
from assay.errors import InputError
from assay.experiment.checkpoint_reference import checkpoint_name
from assay.experiment.rubric_file import AgainstSpec, RubricFile, read_rubric
from assay.runs.history import find_record
from assay.runs.records import read_columns
from assay.runs.run_names import find_named
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.rubric import RUBRIC, Others, Rubric, rubric_reward
from assay.tasks.task import answer_text


@dataclass(frozen=True)
class OpenedRubric:
    """A rubric, and what it compares with."""

    file: Path
    spec: RubricFile
    rubric: Rubric
    others: Others

    @property
    def labels(self) -> Path | None:
        """The rubric's own file of labels, which lies beside it; None where it names none."""
        named = self.spec.labels
        return None if named is None else self.file.parent / named

    @property
    def reward(self) -> JudgeReward:
        """The reward of the rubric."""
        return rubric_reward(self.rubric, self.others)


def open_rubric(kind: str, root: Path) -> OpenedRubric:
    """The rubric of `rubric:FILE`, FILE counting from `root`. Raises InputError."""
    file = root / kind.removeprefix(RUBRIC)
    spec = read_rubric(file)
    if spec.against is None:
        return OpenedRubric(file, spec, spec.rubric(), answer_text)
    try:
        texts = answers_of(spec.against, root)
    except InputError as wrong:
        raise InputError(wrong.problem, file=file, field="against", fix=wrong.fix) from wrong
    known = sha256_text(canonical_json(texts))[:12]
    against = f"{spec.against.run} on {spec.against.evaluation} ({known})"

    def others(row: Row) -> str | None:
        return texts.get(row.id)

    return OpenedRubric(file, spec, spec.rubric(against), others)


def answers_of(spec: AgainstSpec, root: Path) -> Mapping[str, str]:
    """The first answer to each item of another run's evaluation. Raises InputError for a run,
    checkpoint or record that is not there."""
    run, reference = find_named(root, spec.run)
    record, checkpoint = find_record(run, spec.evaluation), checkpoint_name(reference)
    if not record.finished(run, checkpoint):
        problem = f"{run} has no finished record of {record.name} at {checkpoint}"
        raise InputError(problem, fix="measure it first")
    found = read_columns(record.file(run.evaluations, checkpoint), ["item_id", "repeat", "output"])
    lines = zip(*found.values(), strict=True)
    return {item: output for item, repeat, output in lines if repeat == 0}
