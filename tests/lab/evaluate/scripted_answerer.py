"""An `Answerer` that follows a script, and an evaluation for it to answer."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from assay.data.episode import Completion, Ended, Turn
from assay.data.hashing import hash_contents
from assay.data.row import Message, Row
from assay.experiment.checkpoint_reference import BASE, CheckpointReference
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import Answered, Request
from assay.lab.setup.evaluation import Evaluation
from assay.runs.manifest_file import Manifest
from assay.runs.records import EvaluationRecord
from assay.tasks.task import RewardFunction, no_error, task


@dataclass
class ScriptedAnswerer:
    """Says of an item and a repeat what the script does; what that raises is a failure."""

    script: Callable[[Row, int], str]
    ended: Callable[[Row], Ended] = lambda item: "stop"
    chunk: int = 256
    in_process: ClassVar[bool] = False
    asked: list[Request] = field(default_factory=list)
    closed: bool = False

    def check(self) -> None:
        """A script can always be asked."""

    def evaluations(self) -> Mapping[str, Evaluation]:
        """It belongs to no experiment."""
        return {}

    def evaluation(
        self, name: str, spec: EvaluateSpec, reference: CheckpointReference = BASE
    ) -> Evaluation:
        """It knows no benchmark."""
        raise NotImplementedError

    def manifest(self) -> Manifest:
        """It has no weights."""
        return {}

    def answers(
        self,
        evaluation: Evaluation,
        checkpoint: str,
        chunks: Sequence[Sequence[Request]],
        folder: Path,
    ) -> Generator[list[Answered]]:
        """See `Answerer`."""
        try:
            for chunk in chunks:
                self.asked += chunk
                yield [self._answered(evaluation.items[n], repeat) for n, repeat in chunk]
        finally:
            self.closed = True

    def _answered(self, item: Row, repeat: int) -> Answered:
        try:
            text, failure = self.script(item, repeat), ""
        except RuntimeError as error:
            text, failure = "", f"script: {error}"
        turn = Turn((1,), (2,), (True,))
        return Answered(
            item, repeat, Completion(text, (2,), self.ended(item)), 1, 1, (turn,), failure
        )


def made_evaluation(
    score: RewardFunction, items: int, repeats: int = 1, gold: str = "42"
) -> Evaluation:
    """An evaluation of items i0, i1, ... with one gold answer."""
    rows = tuple(Row(f"i{n}", (Message("user", "?"),), gold=gold) for n in range(items))
    ids = tuple(row.id for row in rows)
    record = EvaluationRecord(
        "test", "rows", "report", ids, hash_contents(rows), repeats, {}, "", "", {}, 1
    )
    return Evaluation(
        spec=EvaluateSpec(benchmark="rows", role="report", checkpoints=("base",)),
        task=task("math"),
        items=rows,
        score=score,
        classify=no_error,
        record=record,
        seed=1,
    )
