"""Turns that a run has on record already, so that no prompt is answered twice.

Two evaluations may put the same prompt to the same checkpoint and only judge the answer by other
rules. What is drawn follows from prompt, seed, item and repeat, so the record of one serves the
other. Which evaluations exist is the session's to know.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq

from assay.data.episode import Context, Turn
from assay.lab.evaluate import Answers, Evaluation
from assay.lab.run_directory import RunDirectory
from assay.rl.policy import SampleKey
from assay.rollout.sampling import Sampling

Known = Mapping[tuple[Context, SampleKey], Turn]


def known_turns(
    run: RunDirectory, evaluation: Evaluation, others: Iterable[Evaluation], checkpoint: str
) -> Known:
    """The turns of finished records of a checkpoint that were sampled as `evaluation` samples."""
    found = {}
    for other in others:
        alike = (other.sampling, other.seed) == (evaluation.sampling, evaluation.seed)
        if other is not evaluation and alike and other.record.finished(run, checkpoint):
            found |= recorded_turns(run, other, checkpoint)
    return found


def recorded_turns(run: RunDirectory, evaluation: Evaluation, checkpoint: str) -> Known:
    """The turns of a finished record, by prompt and by what names the draw."""
    contexts = dict(zip(evaluation.record.items, evaluation.contexts, strict=True))
    file = evaluation.record.file(run.evaluations, checkpoint)
    found = {}
    for line in pq.read_table(file, columns=["item_id", "repeat", "tokens", "ended"]).to_pylist():
        context, actions = contexts[line["item_id"]], tuple(line["tokens"])
        key = SampleKey(evaluation.seed, line["item_id"], line["repeat"])
        turn = Turn(context, actions, (True,) * len(actions), ended=line["ended"])
        found[context, key] = turn
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
