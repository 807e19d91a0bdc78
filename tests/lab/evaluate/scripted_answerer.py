"""An `Answerer` that follows a script, and an evaluation for it to answer."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from assay.data.episode import Completion, Ended, Turn
from assay.data.files import hash_contents
from assay.data.row import Message, Row
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import Answerer, ItemAnswer, Request
from assay.lab.session.evaluation import Evaluation
from assay.runs.records import EvaluationRecord
from assay.tasks.task import RewardFunction, no_error, task


class ScriptedAnswerer(Answerer):
    """Says of an item and a repeat what the script does; what that raises is a failure."""

    def __init__(
        self,
        script: Callable[[Row, int], str],
        ended: Callable[[Row], Ended] = lambda item: "stop",
        chunk: int = 256,
    ):
        self.script, self.ended, self.chunk = script, ended, chunk
        self.asked: list[Request] = []
        self.closed = False

    def answers(
        self,
        evaluation: Evaluation,
        checkpoint: str,
        chunks: Sequence[Sequence[Request]],
        folder: Path,
    ) -> Generator[list[ItemAnswer]]:
        """See `Answerer`."""
        try:
            for chunk in chunks:
                self.asked += chunk
                yield [self._answered(evaluation.items[n], repeat) for n, repeat in chunk]
        finally:
            self.closed = True

    def _answered(self, item: Row, repeat: int) -> ItemAnswer:
        try:
            text, failure = self.script(item, repeat), ""
        except RuntimeError as error:
            text, failure = "", f"script: {error}"
        turn = Turn((1,), (2,), (True,))
        return ItemAnswer(
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
