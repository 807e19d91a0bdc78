"""`model = "workflow:NAME"` as an `Answerer`: a fixed workflow, the same program for every problem.

What a trained policy has to beat, recorded like any other arm, so that it pairs with it item by
item. Nothing is opened and nothing is trained; the program runs where every program does, in the
reward.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.data.episode import Completion
from assay.data.hashing import sha256_text
from assay.data.splits import conversation_of
from assay.errors import InputError
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import Answered, Request
from assay.lab.setup.evaluation import Evaluation, make_evaluation
from assay.lab.setup.manifest import about_run, evaluation_table
from assay.lab.setup.session import Session
from assay.runs.manifest_file import Manifest
from assay.tasks.task import lookup
from assay.tasks.workflows.fixed_workflows import FIXED_SOURCES
from assay.tasks.workflows.policy_prompt import fenced
from assay.tasks.workflows.problems import PROBLEM_TYPE

WORKFLOW = "workflow"
CHUNK = 64
"""Items recorded together."""


class NoProblems(InputError):
    """An experiment whose items are no problems of workflows."""


@dataclass(frozen=True)
class FixedAnswerer:
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

    @property
    def source(self) -> str:
        """The model of the experiment, `workflow:NAME`."""
        return self.session.experiment.model

    def check(self) -> None:
        """Raise UnknownNameError for a workflow that there is not."""
        lookup(FIXED_SOURCES, self.source.partition(":")[2], "fixed workflow")

    def evaluations(self) -> Mapping[str, Evaluation]:
        """See `Answerer`. Raises NoProblems."""
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
        given = (session.task, sets, self.source, session.seed, {}, session.run.root)
        made = make_evaluation(name, spec, *given)
        if without := [item.id for item in made.items if PROBLEM_TYPE not in item.extra]:
            fix = 'choose a benchmark of task = "workflows"'
            raise NoProblems(f"item {without[0]} has no type", field=f"evaluate.{name}", fix=fix)
        clustered = any(conversation_of(item) != item.id for item in made.items)
        return replace(made, clustered=clustered)

    def manifest(self) -> Manifest:
        """See `Answerer`."""
        session, made = self.session, self.evaluations()
        return {
            **about_run(session),
            "helpers": session.helpers.recorded(),
            "base_weights": {"source": self.source, "sha256": self._sha256()},
            "data": {},
            "stages": {},
            "evaluation": {name: evaluation_table(session, each) for name, each in made.items()},
        }

    def _programs(self) -> Mapping[str, str]:
        return lookup(FIXED_SOURCES, self.source.partition(":")[2], "fixed workflow")

    def _sha256(self) -> str:
        return sha256_text("\n".join(self._programs().values()))

    def answers(
        self,
        evaluation: Evaluation,
        checkpoint: str,
        chunks: Sequence[Sequence[Request]],
        folder: Path,
    ) -> Generator[list[Answered]]:
        """See `Answerer`."""
        programs = self._programs()
        for chunk in chunks:
            answered = []
            for place, repeat in chunk:
                item = evaluation.items[place]
                kind = "code" if item.extra[PROBLEM_TYPE] == "code" else "text"
                completion = Completion(fenced(programs[kind]))
                answered.append(Answered(item, repeat, completion, 0, 0))
            yield answered
