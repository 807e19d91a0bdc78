"""A task's arm as an `Answerer`: a function from items to answers, such as the best choice by
search or one program for every problem.

Recorded like any other model, so that it pairs with them item by item. Nothing is opened and
nothing is trained; there is one checkpoint, "base".
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.data.splits import conversation_of
from assay.errors import InputError
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import Answered, Request
from assay.lab.setup.evaluation import Evaluation, make_evaluation
from assay.lab.setup.manifest import about_run, evaluation_table
from assay.lab.setup.session import Session
from assay.runs.manifest_file import Manifest
from assay.tasks.helper_model import find_helper
from assay.tasks.task import FixedArm


@dataclass(frozen=True)
class FunctionAnswerer:
    """See `Answerer`."""

    session: Session
    arm: FixedArm

    @property
    def chunk(self) -> int:
        """See `Answerer`."""
        return self.arm.chunk

    @property
    def in_process(self) -> bool:
        """See `Answerer`: there is no learner."""
        return False

    def check(self) -> None:
        """Raise UnknownHelper without the arm's helper model, which is not opened."""
        if self.arm.helper and self.arm.helper not in self.session.experiment.helpers:
            find_helper({}, self.arm.helper, "model")

    def evaluations(self) -> Mapping[str, Evaluation]:
        """See `Answerer`. Raises InputError for items that the arm cannot answer."""
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
        source, root = session.experiment.model, session.run.root
        made = make_evaluation(name, spec, session.task, sets, source, session.seed, {}, root)
        if without := [item.id for item in made.items if self.arm.needs not in item.extra]:
            problem = f"item {without[0]} has no {self.arm.needs}"
            raise InputError(problem, field=f"evaluate.{name}", fix=self.arm.fix)
        clustered = any(conversation_of(item) != item.id for item in made.items)
        return replace(made, clustered=clustered)

    def manifest(self) -> Manifest:
        """See `Answerer`."""
        session, made = self.session, self.evaluations()
        return {
            **about_run(session),
            "helpers": session.helpers.recorded(),
            "base_weights": {"source": session.experiment.model, **self.arm.about},
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
            found = self.arm.answers(self.session.helpers, [*items.values()])
            answers = dict(zip(items, found, strict=True))
            yield [
                Answered(items[place], repeat, completion, read, len(completion.tokens))
                for place, repeat in chunk
                for completion, read in (answers[place],)
            ]
