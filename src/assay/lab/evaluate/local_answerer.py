"""A learner in this process as an `Answerer`: a run's checkpoint, or the policy in memory.

Decodes answers; `run_evaluation` judges and records.
"""

import gc
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch

from assay.data.episode import Completion, Turn
from assay.data.files import canonical_json, sha256_text
from assay.data.row import Row
from assay.engines.ray_pool import NodeNeeds, RayPool, as_they_come, connect, look_at_nodes
from assay.errors import RunFailure
from assay.experiment.base_table import RenderingSettings
from assay.experiment.checkpoint_reference import BASE, CheckpointReference, parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import StageSpec
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import Answerer, Chunks, ItemAnswer, Request, holder, plain_name
from assay.lab.models.learner import Encoder, refuse_longer
from assay.lab.monitor.observer import Silent
from assay.lab.session.evaluation import Evaluation, encoded_evaluation
from assay.lab.session.manifest import make_manifest, rows_still_there
from assay.lab.session.session import Session
from assay.models.precision import Precision
from assay.rl.policy import SampleKey
from assay.rollout.episodes import Samples, run_episodes
from assay.runs.run_directory import Manifest, RunDirectory, runs_of
from assay.runs.run_names import experiment_of
from assay.train.sampled_groups import FAILED

CHUNK = 256


@dataclass
class LocalAnswerer(Answerer):
    """See `Answerer`. Checkpoints are read from disk unless a policy is given, which is asked."""

    policy: Samples | None = None
    chunk: int = field(default_factory=lambda: CHUNK, kw_only=True)
    in_process: ClassVar[bool] = True

    def check(self) -> None:
        """See `Learner.check`."""
        self.session.learner.check()

    def evaluations(self) -> Mapping[str, Evaluation]:
        """See `Answerer`."""
        return self.session.evaluations

    def evaluation(
        self, name: str, spec: EvaluateSpec, reference: CheckpointReference = BASE
    ) -> Evaluation:
        """See `Answerer`; asked as the checkpoint was trained. Raises InputError."""
        session = self.session
        trained_by = stage_of(session.experiment.stage, reference) or RenderingSettings()
        written = {name: getattr(trained_by, name) for name in RenderingSettings.model_fields}
        spec = spec.model_copy(update=written)
        learner, trained = session.learner, rows_still_there(session)
        refuse_longer("sampling.max_tokens", spec.sampling.max_tokens, learner.positions)
        context = (session.task, {}, learner, session.seed, trained, session.run.root)
        return encoded_evaluation(name, spec, *context)

    def manifest(self) -> Manifest:
        """See `Answerer`."""
        return make_manifest(self.session)

    def answers(
        self, evaluation: Evaluation, checkpoint: str, chunks: Chunks, folder: Path
    ) -> Generator[list[ItemAnswer]]:
        """See `Answerer`; one chunk is sampled at a time, as one batch."""
        policy = self.policy or self.read(checkpoint)
        try:
            for chunk in chunks:
                yield self.answered(evaluation, policy, chunk)
        finally:
            del policy
            gc.collect()

    def read(self, checkpoint: str) -> Samples:
        """A checkpoint of the run, ready to sample."""
        reference = parse_checkpoint(checkpoint)
        assert reference is not None, f"{checkpoint!r} is no name of a checkpoint"
        return self.session.learner.sampler(self.session.run, reference)

    def answered(
        self, evaluation: Evaluation, policy: Samples, chunk: Sequence[Request]
    ) -> list[ItemAnswer]:
        """The answers to one chunk, sampled as one batch."""
        samples = [(evaluation.items[place], repeat) for place, repeat in chunk]
        keys = [SampleKey(evaluation.seed, item.id, repeat) for item, repeat in samples]
        learner = self.session.learner
        encoder = learner.encoder(evaluation.spec)
        sampling = evaluation.sampling
        if sampling.stop is not None:
            encoder = encoder.stopping_at(sampling.stop.strings)
            sampling = replace(sampling, stop=encoder.stop)
        if evaluation.dialogue is None:
            contexts = [evaluation.contexts[place] for place, _ in chunk]
            sampled = policy.sample(contexts, keys, sampling)
            texts = [Completion(encoder.decode(t.actions), t.actions, t.ended) for t in sampled]
            return [
                in_tokens(encoder, *request, completion, [turn])
                for request, completion, turn in zip(samples, texts, sampled, strict=True)
            ]
        dialogues = [encoder.environment(item, evaluation.dialogue(item)) for item, _ in samples]
        # No dialogue goes beyond what the model can read at once.
        played = run_episodes(policy, dialogues, keys, sampling, learner.positions)
        return [
            replace(
                in_tokens(encoder, *request, dialogue.completion(each.ended), each.turns),
                failure=each.failure and FAILED + each.failure,
                several=True,
            )
            for request, dialogue, each in zip(samples, dialogues, played, strict=True)
        ]


def in_tokens(
    encoder: Encoder, item: Row, repeat: int, completion: Completion, turns: Sequence[Turn]
) -> ItemAnswer:
    """An answer whose turns are known token by token."""
    prompt = encoder.size(turns[-1].context) if turns else 0
    return ItemAnswer(item, repeat, completion, prompt, len(completion.tokens), tuple(turns))


def stage_of(stages: Mapping[str, StageSpec], reference: CheckpointReference) -> StageSpec | None:
    """The stage that made a checkpoint, the first for the model before any; None where nothing is
    trained."""
    return stages[reference.stage] if reference.stage else next(iter(stages.values()), None)


def local_holder(root: Path, source: str, skill: str) -> Experiment:
    """The experiment of the run that holds what a model source is measured on: no stages."""
    plain = plain_name(skill, source)
    known = [experiment_of(run).model for run in runs_of(root, plain)]
    if any(model != source for model in known):
        # Another source whose name comes out the same has it already: "a b" and "a-b".
        plain = f"{plain}-{sha256_text(source)[:8]}"
    return holder(plain, source, skill)


FIELD = "engine.evaluate"
OWN = "own"


def pool_of(session: Session) -> RayPool:
    """The cluster of a session. Raises InputError where it cannot answer in the session's lab."""
    engine = session.experiment.engine
    assert engine is not None
    pool, root = connect(engine.evaluate, FIELD), session.run.root
    if root not in pool.looked:
        look_at_nodes(pool, root)
        pool.looked.add(root)
    return pool


@dataclass(frozen=True)
class EvaluationOpening:
    """What another process needs to open an evaluation of a run as this one did."""

    run: RunDirectory
    seed: int
    name: str
    spec: EvaluateSpec = field(hash=False)
    fingerprint: str
    """Of all that answers depend on, as this process has it."""
    precision: Precision
    threads: int


@lru_cache(maxsize=1)
def _opened(opening: EvaluationOpening) -> tuple[Session, Evaluation]:
    """The evaluation. Raises RunFailure where it comes out other than the fingerprint says."""
    torch.set_num_threads(opening.threads)
    run, spec = opening.run, opening.spec
    session = Session(experiment_of(run), run, opening.seed, Silent())
    sets = session.sets if spec.data is not None else {}
    session.__dict__["precision"] = opening.precision
    about, own = (opening.name, spec, session.task, sets), (session.seed, None, run.root)
    made = encoded_evaluation(*about, session.learner, *own)
    if fingerprint(session, made) != opening.fingerprint:
        raise RunFailure(
            f"{opening.name}: a node has other items, prompts, weights or checkers than here "
            "(give every node the same packages, cache and files)"
        )
    return session, made


def fingerprint(session: Session, evaluation: Evaluation) -> str:
    """The sha256 of what an evaluation's answers depend on, apart from the checkpoint."""
    record = evaluation.record
    parts: list[Any] = [record.items, record.items_hash, record.sampling, record.rendering]
    parts += [record.checker, record.options, evaluation.seed]
    encoder = session.learner.encoder(evaluation.spec)
    parts += [[encoder.plain(context) for context in evaluation.contexts]]
    parts += [session.learner.fingerprint]
    return sha256_text(canonical_json(parts))


@dataclass
class SpreadLocalAnswerer(LocalAnswerer):
    """See `Answerer`: every process reads the checkpoint once, and answers whole chunks."""

    def check(self) -> None:
        """See `Answerer`; looks at the cluster as well."""
        super().check()
        pool_of(self.session)

    def answers(
        self, evaluation: Evaluation, checkpoint: str, chunks: Chunks, folder: Path
    ) -> Generator[list[ItemAnswer]]:
        """See `Answerer`."""
        session = self.session
        about = (session.run, session.seed, evaluation.name, evaluation.spec)
        hashed = fingerprint(session, evaluation)
        opening = EvaluationOpening(*about, hashed, session.precision, torch.get_num_threads())
        gpu = session.precision.device != "cpu"
        needs = NodeNeeds(1.0, 1.0) if gpu else NodeNeeds(float(opening.threads))
        calls = [(answer_chunk, (opening, checkpoint, tuple(chunk))) for chunk in chunks]
        yield from as_they_come(pool_of(session), needs, calls)


def answer_chunk(
    opening: EvaluationOpening, checkpoint: str, chunk: Sequence[Request]
) -> list[ItemAnswer]:
    """Answer one chunk in the process that this is called in."""
    session, evaluation = _opened(opening)
    return LocalAnswerer(session).answered(evaluation, _policy(opening, checkpoint), chunk)


_KEPT: dict[tuple[RunDirectory, str, Precision], Samples] = {}
"""The one checkpoint that this process has read."""


def _policy(opening: EvaluationOpening, checkpoint: str) -> Samples:
    key = (opening.run, checkpoint, opening.precision)
    if key not in _KEPT:
        _KEPT.clear()
        gc.collect()
        session, _ = _opened(opening)
        _KEPT[key] = LocalAnswerer(session).read(checkpoint)
    return _KEPT[key]
