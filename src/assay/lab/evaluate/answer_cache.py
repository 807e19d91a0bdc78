"""Turns that a run has on record already, so that no prompt is answered twice.

Two evaluations may put the same prompt to the same checkpoint and only judge the answer by other
rules. What is drawn follows from prompt, seed, item and repeat, so the record of one serves the
other. A dialogue's later prompts follow from its world, which is not on record: dialogues neither
take answers from a record nor give any. Which evaluations exist is the session's to know.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from assay.data.episode import Context, Turn
from assay.lab.evaluate.answering import Answers
from assay.lab.setup.evaluation import Evaluation
from assay.rl.policy import SampleKey, Sampling
from assay.runs.records import read_columns
from assay.runs.run_directory import RunDirectory

Known = Mapping[tuple[Context, SampleKey], Turn]


def known_turns(
    run: RunDirectory, evaluation: Evaluation, others: Iterable[Evaluation], checkpoint: str
) -> Known:
    """The turns of finished records of a checkpoint that were sampled as `evaluation` samples."""
    found = {}
    for other in others:
        alike = (other.sampling, other.seed) == (evaluation.sampling, evaluation.seed)
        alike = alike and evaluation.dialogue is None and other.dialogue is None
        if other is not evaluation and alike and other.record.finished(run, checkpoint):
            found |= recorded_turns(run, other, checkpoint)
    return found


def recorded_turns(run: RunDirectory, evaluation: Evaluation, checkpoint: str) -> Known:
    """The turns of a finished record, by prompt and what names the draw. Raises DamagedRecord."""
    contexts = dict(zip(evaluation.record.items, evaluation.contexts, strict=True))
    file = evaluation.record.file(run.evaluations, checkpoint)
    columns = read_columns(file, ["item_id", "repeat", "tokens", "ended"])
    found = {}
    for item, repeat, tokens, ended in zip(*columns.values(), strict=True):
        turn = Turn(contexts[item], tuple(tokens), (True,) * len(tokens), ended=ended)
        found[turn.context, SampleKey(evaluation.seed, item, repeat)] = turn
    return found


@dataclass(frozen=True)
class Remembering:
    """Answers what is known from the record, and the rest by sampling."""

    answers: Answers
    known: Known

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """See `Answers.sample`."""
        asked = list(zip(contexts, keys, strict=True))
        missing = [pair for pair in asked if pair not in self.known]
        fresh: list[Turn] = []
        if missing:
            fresh = self.answers.sample([c for c, _ in missing], [k for _, k in missing], sampling)
        turns = {**self.known, **dict(zip(missing, fresh, strict=True))}
        return [turns[pair] for pair in asked]

    def conversations(self) -> AbstractContextManager[int | None]:
        """See `Answers.conversations`."""
        return self.answers.conversations()
