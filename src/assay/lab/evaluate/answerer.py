"""The interface between an evaluation and its model, which may be in this process or an endpoint.

An `Answerer` opens, identifies and samples its model. `run_evaluation` judges and records the
answers, and holds the register of answerers.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from assay.data.episode import Completion, Turn
from assay.data.files import sha256_text
from assay.data.row import Row
from assay.experiment.checkpoint_reference import BASE, CheckpointReference
from assay.experiment.experiment import Experiment
from assay.experiment.tables import EvaluateSpec
from assay.lab.session.evaluation import Evaluation
from assay.lab.session.session import Session
from assay.runs.run_directory import Manifest
from assay.tasks.user_code import SCHEME

LONGEST_SOURCE = 120
"""Characters of a model's source in the name of the run that holds its measurements."""

Request = tuple[int, int]
"""The place of an item in its evaluation, and the number of the repeat."""
Chunks = Sequence[Sequence[Request]]


@dataclass(frozen=True)
class ItemAnswer:
    """The answer to one request, or its complete dialogue."""

    item: Row
    repeat: int
    completion: Completion
    prompt_tokens: int | None
    """Tokens of the last turn; None if the server did not count them."""
    completion_tokens: int | None
    """Tokens of all turns; None if the server did not count each."""
    turns: tuple[Turn, ...] = ()
    """Token by token; none of an endpoint."""
    failure: str = ""
    """The reason of an abstention; "" if there is an answer."""
    several: bool = False
    """Whether the item could take several turns."""


@dataclass
class Answerer:
    """The model of one run, as evaluations ask it; `session` is that of the run."""

    session: Session
    chunk: int = field(default=64, kw_only=True)
    """Answers recorded together. An interrupted evaluation judges at most so many again."""
    in_process: ClassVar[bool] = False
    """Whether the learner is opened here, so that data is encoded and checked."""

    def check(self) -> None:
        """Raise InputError for a model that cannot be asked, before a run is made for it."""

    def evaluations(self) -> Mapping[str, Evaluation]:
        """The evaluations of the run's experiment, made ready.

        Raises InputError for what they name and cannot be opened.
        """
        tables = self.session.experiment.evaluate
        return {name: self.evaluation(name, spec) for name, spec in tables.items()}

    def evaluation(
        self, name: str, spec: EvaluateSpec, reference: CheckpointReference = BASE
    ) -> Evaluation:
        """An evaluation of one checkpoint that the run's experiment does not hold."""
        raise NotImplementedError

    def manifest(self) -> Manifest:
        """The fingerprints of the run: its model, training rows and evaluations."""
        raise NotImplementedError

    def answers(
        self, evaluation: Evaluation, checkpoint: str, chunks: Chunks, folder: Path
    ) -> Generator[list[ItemAnswer]]:
        """The answers of a checkpoint to each chunk of requests, a whole chunk at a time and in
        whatever order they come; closed at the end.

        Samples nothing before the first chunk is requested. `folder` exists until the record is
        complete and may hold replies that cost money. An answer depends on seed, item and repeat,
        not on the chunk. Raises RunFailure or InputError if no further request can be answered.
        """
        raise NotImplementedError


def plain_name(skill: str, source: str) -> str:
    """A name for a run made of a model's source, with only what a folder's name may hold."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", source).strip("-")
    if skill.startswith(SCHEME):
        # Two files may have one name.
        skill = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', Path(skill).stem)}-{sha256_text(skill)[:8]}"
    return f"eval-{skill}-{plain[:LONGEST_SOURCE]}"


def holder(name: str, source: str, skill: str, endpoint: str | None = None) -> Experiment:
    """An experiment that trains nothing and names no evaluation."""
    about = f"Holds the evaluations of {source}; trains nothing"
    return Experiment(name=name, about=about, model=source, endpoint=endpoint, task=skill)
