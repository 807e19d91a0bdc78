"""`model = "selector:oracle"` as an `Answerer`: for each item the selection of its pool that the
frozen model answers best after, found by search with the item's own answers.

An upper bound for selectors, recorded like any other arm, so that it pairs with them item by item.
It has seen the right answers, which its manifest says and every page of it. Nothing is trained.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from assay.data.episode import Completion
from assay.data.row import Row
from assay.data.splits import conversation_of
from assay.errors import InputError
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import Answered, Request
from assay.lab.setup.evaluation import Evaluation, make_evaluation
from assay.lab.setup.manifest import about_run, evaluation_table
from assay.lab.setup.session import Session
from assay.runs.manifest_file import SEEN_ANSWERS, Manifest
from assay.tasks.demos.demonstrations import POOL, SHOTS
from assay.tasks.demos.frozen import FROZEN, ask
from assay.tasks.demos.oracle_search import BREADTH, best_of, remembering, search_levels
from assay.tasks.demos.selections import selection_text
from assay.tasks.helper_model import find_helper

ORACLE_SOURCE = "selector:oracle"
CHUNK = 16
"""Items recorded together: each needs many answers of the frozen model."""


class NoOracle(InputError):
    """An experiment that an oracle cannot be the model of."""


@dataclass(frozen=True)
class OracleAnswerer:
    """See `Answerer`. There is one checkpoint, "base"."""

    session: Session

    @property
    def chunk(self) -> int:
        """See `Answerer`."""
        return CHUNK

    @property
    def in_process(self) -> bool:
        """See `Answerer`: there is no learner."""
        return False

    def check(self) -> None:
        """Raise UnknownHelper without a frozen model, which is not opened."""
        if FROZEN not in self.session.experiment.helpers:
            find_helper({}, FROZEN, "model")

    def evaluations(self) -> Mapping[str, Evaluation]:
        """See `Answerer`. Raises NoOracle for items without pools."""
        tables = self.session.experiment.evaluate
        return {name: self._made(name, spec) for name, spec in tables.items()}

    def evaluation(
        self, name: str, spec: EvaluateSpec, reference: CheckpointReference
    ) -> Evaluation:
        """See `Answerer`."""
        return self._made(name, spec)

    def _made(self, name: str, spec: EvaluateSpec) -> Evaluation:
        session = self.session
        sets = session.sets if spec.data is not None else {}
        given = (session.task, sets, ORACLE_SOURCE, session.seed, {}, session.run.root)
        made = make_evaluation(name, spec, *given)
        if without := [item.id for item in made.items if POOL not in item.extra]:
            fix = 'choose a benchmark of task = "demos"'
            raise NoOracle(f"item {without[0]} has no pool", field=f"evaluate.{name}", fix=fix)
        clustered = any(conversation_of(item) != item.id for item in made.items)
        return replace(made, clustered=clustered)

    def manifest(self) -> Manifest:
        """See `Answerer`."""
        session, made = self.session, self.evaluations()
        return {
            **about_run(session),
            "helpers": session.helpers.recorded(),
            "base_weights": {"source": ORACLE_SOURCE, SEEN_ANSWERS: True, "breadth": BREADTH},
            "data": {},
            "stages": {},
            "evaluation": {name: evaluation_table(session, each) for name, each in made.items()},
        }

    def answers(
        self,
        evaluation: Evaluation,
        checkpoint: str,
        chunks: Sequence[Sequence[Request]],
        folder: Path,
    ) -> Generator[list[Answered]]:
        """See `Answerer`; every repeat of an item is the same. Raises HelperFailed."""
        for chunk in chunks:
            items = {place: evaluation.items[place] for place, _ in chunk}
            found = dict(zip(items, self._best([*items.values()]), strict=True))
            yield [_answered(items[place], repeat, found[place]) for place, repeat in chunk]

    def _best(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        frozen = find_helper(self.session.helpers, FROZEN, "model")
        asked = remembering(partial(ask, frozen))
        best: dict[str, tuple[int, ...]] = {}
        for shots in sorted({row.extra[SHOTS] for row in rows}):
            same = [row for row in rows if row.extra[SHOTS] == shots]
            found = search_levels(asked, same, shots, BREADTH)[shots]
            best |= {r.id: best_of(each).picks for r, each in zip(same, found, strict=True)}
        return [best[row.id] for row in rows]


def _answered(item: Row, repeat: int, picks: tuple[int, ...]) -> Answered:
    completion = Completion(selection_text(picks), picks, "stop")
    return Answered(item, repeat, completion, len(item.extra[POOL]), len(picks))
