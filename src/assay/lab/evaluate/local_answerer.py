"""A model in this process as an `Answerer`: a run's checkpoint, or the policy in memory.

Renders prompts and decodes answers. A turn that is already recorded is not sampled again.
`run_evaluation` judges and records.
"""

import gc
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import PretrainedConfig

from assay.data.episode import Completion, Context, Turn
from assay.data.hashing import sha256_text
from assay.data.row import Row
from assay.errors import InputError
from assay.experiment.checkpoint_reference import CheckpointReference, parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import SamplingStage
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import Answered, Request, holder, plain_name
from assay.lab.setup.checkpoint_models import model_folder
from assay.lab.setup.evaluation import (
    Evaluation,
    RenderedEvaluation,
    decode_with,
    rendered_evaluation,
)
from assay.lab.setup.manifest import make_manifest, rows_still_there
from assay.lab.setup.session import Session
from assay.models.folder import CONFIG
from assay.models.load import check_loadable
from assay.models.supported import refuse_untrainable
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.episodes import Samples, run_episodes
from assay.runs.manifest_file import Manifest
from assay.runs.records import read_columns
from assay.runs.run_directory import RunDirectory, runs_of
from assay.runs.run_names import experiment_of
from assay.tasks.rendered_dialogue import RenderedDialogue
from assay.train.sampled_groups import FAILED

CHUNK = 256
Known = Mapping[tuple[Context, SampleKey], Turn]


class AnswersTooLong(InputError):
    """`max_tokens` that no answer of the model can have."""


@dataclass(frozen=True)
class LocalAnswerer:
    """See `Answerer`. Checkpoints are read from disk unless a policy is given, which is asked."""

    session: Session
    policy: Samples | None = None

    @property
    def chunk(self) -> int:
        """See `Answerer`."""
        return CHUNK

    @property
    def in_process(self) -> bool:
        """See `Answerer`."""
        return True

    def check(self) -> None:
        """See `refuse_unopenable`."""
        refuse_unopenable(self.session.experiment, self.session.run.root)

    def evaluations(self) -> Mapping[str, RenderedEvaluation]:
        """See `Answerer`."""
        return self.session.evaluations

    def evaluation(
        self, name: str, spec: EvaluateSpec, reference: CheckpointReference
    ) -> RenderedEvaluation:
        """See `Answerer`; rendered as the checkpoint was trained. Raises AnswersTooLong."""
        session = self.session
        rendering = rendering_for(session.experiment, reference)
        spec = spec.model_copy(update={"rendering": rendering})
        refuse_longer("sampling.max_tokens", spec.sampling.max_tokens, session.base.positions)
        tokenizer, trained = session.base.tokenizer, rows_still_there(session)
        given = (session.task, {}, tokenizer, session.seed, trained, session.run.root)
        return rendered_evaluation(name, spec, *given)

    def manifest(self) -> Manifest:
        """See `Answerer`."""
        return make_manifest(self.session)

    def answers(
        self,
        evaluation: Evaluation,
        checkpoint: str,
        chunks: Sequence[Sequence[Request]],
        folder: Path,
    ) -> Generator[list[Answered]]:
        """See `Answerer`; one chunk is sampled at a time, as one batch."""
        assert isinstance(evaluation, RenderedEvaluation)
        session = self.session
        others = session.evaluations.values()
        known = known_turns(session.run, evaluation, others, checkpoint)
        policy = Remembering(self.policy or self._read(checkpoint), known)
        try:
            for chunk in chunks:
                yield self._answered(evaluation, policy, chunk)
        finally:
            del policy
            gc.collect()

    def _read(self, checkpoint: str) -> Samples:
        session, reference = self.session, parse_checkpoint(checkpoint)
        assert reference is not None, f"{checkpoint!r} is no name of a checkpoint"
        model = session.shelf.plain(reference)
        return session.shelf.sampler(model, session.base.end_tokens, torch.get_num_threads())

    def _answered(
        self, evaluation: RenderedEvaluation, policy: Samples, chunk: Sequence[Request]
    ) -> list[Answered]:
        asked = [(evaluation.items[place], repeat) for place, repeat in chunk]
        keys = [SampleKey(evaluation.seed, item.id, repeat) for item, repeat in asked]
        decode = decode_with(evaluation.renderer, self.session.base.end_tokens)
        if evaluation.dialogue is None:
            contexts = [evaluation.contexts[place] for place, _ in chunk]
            sampled = policy.sample(contexts, keys, evaluation.sampling)
            texts = [Completion(decode(t.actions), t.actions, t.ended) for t in sampled]
            return [
                in_tokens(*request, completion, [turn])
                for request, completion, turn in zip(asked, texts, sampled, strict=True)
            ]
        dialogues = [
            RenderedDialogue(evaluation.dialogue(item), evaluation.renderer, decode)
            for item, _ in asked
        ]
        # No dialogue goes beyond what the model can read at once.
        positions = self.session.base.positions
        played = run_episodes(policy, dialogues, keys, evaluation.sampling, positions)
        return [
            replace(
                in_tokens(*request, dialogue.completion(each.ended), each.turns),
                failure=each.failure and FAILED + each.failure,
                several=True,
            )
            for request, dialogue, each in zip(asked, dialogues, played, strict=True)
        ]


def in_tokens(item: Row, repeat: int, completion: Completion, turns: Sequence[Turn]) -> Answered:
    """An answer whose turns are known token by token."""
    prompt = len(turns[-1].context) if turns else 0
    return Answered(item, repeat, completion, prompt, len(completion.tokens), tuple(turns))


def rendering_for(experiment: Experiment, reference: CheckpointReference) -> str:
    """The rendering of the stage that made a checkpoint, of the first stage for the model before
    any; `auto` where nothing is trained.
    """
    stages = experiment.stage
    stage = stages[reference.stage] if reference.stage else next(iter(stages.values()), None)
    return stage.rendering if stage else "auto"


def local_holder(root: Path, source: str, skill: str) -> Experiment:
    """The experiment of the run that holds what a model source is measured on: no stages."""
    plain = plain_name(skill, source)
    known = [experiment_of(run).model for run in runs_of(root, plain)]
    if any(model != source for model in known):
        # Another source whose name comes out the same has it already: "a b" and "a-b".
        plain = f"{plain}-{sha256_text(source)[:8]}"
    return holder(plain, source, skill)


def refuse_unopenable(experiment: Experiment, root: Path) -> None:
    """Raise what `load.check_loadable` does, ModelUnsupported for stages that cannot train, and
    AnswersTooLong. No weights are read.
    """
    folder = model_folder(experiment.model, root)
    config, _ = check_loadable(folder)
    if experiment.stage:
        refuse_untrainable(config, folder / CONFIG)
    refuse_beyond(experiment, config)


def refuse_beyond(experiment: Experiment, config: PretrainedConfig) -> None:
    """Raise AnswersTooLong where the answers of a stage or an evaluation may be too long."""
    positions = config.max_position_embeddings
    limits = {
        f"stage.{name}": stage.sampling.max_tokens
        for name, stage in experiment.stage.items()
        if isinstance(stage, SamplingStage)
    }
    limits |= {f"evaluate.{n}": e.sampling.max_tokens for n, e in experiment.evaluate.items()}
    for place, limit in limits.items():
        refuse_longer(f"{place}.sampling.max_tokens", limit, positions)


def refuse_longer(field: str, limit: int, positions: int | None) -> None:
    """Raise AnswersTooLong where `limit` is more than all that the model reads at once."""
    if positions is not None and limit > positions:
        problem = f"{limit} tokens, and the model reads {positions} at once"
        raise AnswersTooLong(problem, field=field, fix="allow fewer")


def known_turns(
    run: RunDirectory,
    evaluation: RenderedEvaluation,
    others: Iterable[RenderedEvaluation],
    checkpoint: str,
) -> Known:
    """The turns of finished records of a checkpoint that were sampled as `evaluation` samples.

    Two evaluations may put the same prompt and judge the answer by other rules. A turn follows from
    prompt, seed, item and repeat, so one record serves both. Dialogues neither take turns from a
    record nor give any: their later prompts follow from an environment that is not on record.
    """
    found = {}
    for other in others:
        alike = (other.sampling, other.seed) == (evaluation.sampling, evaluation.seed)
        alike = alike and evaluation.dialogue is None and other.dialogue is None
        if other is not evaluation and alike and other.record.finished(run, checkpoint):
            found |= recorded_turns(run, other, checkpoint)
    return found


def recorded_turns(run: RunDirectory, evaluation: RenderedEvaluation, checkpoint: str) -> Known:
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
    """Gives the turns that are on record, and samples the others."""

    answers: Samples
    known: Known

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """See `rollout.episodes.Samples`."""
        asked = list(zip(contexts, keys, strict=True))
        missing = [pair for pair in asked if pair not in self.known]
        fresh: list[Turn] = []
        if missing:
            fresh = self.answers.sample([c for c, _ in missing], [k for _, k in missing], sampling)
        turns = {**self.known, **dict(zip(missing, fresh, strict=True))}
        return [turns[pair] for pair in asked]

    def conversations(self) -> AbstractContextManager[int | None]:
        """See `rollout.episodes.Samples`."""
        return self.answers.conversations()
