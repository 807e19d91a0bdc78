"""Evaluations whose items are answered in processes of a cluster, and recorded by this one alone.

The model is opened by each process, which answers whole chunks: the batches that one process would
make, so that their answers are the same. Whatever a dead process was at is done again. A model at
an endpoint is asked from here: no process that dies takes a paid call along.
"""

import gc
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from assay.data.hashing import canonical_json, sha256_text
from assay.engines.ray_pool import Needs, RayPool, as_they_come, connect, look_at_nodes
from assay.errors import RunFailure
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import Answered, Request
from assay.lab.evaluate.local_answerer import Known, LocalAnswerer, Remembering, known_turns
from assay.lab.monitor.observer import Silent
from assay.lab.setup.evaluation import Evaluation, encoded_evaluation
from assay.lab.setup.session import Session
from assay.models.precision import Precision
from assay.rl.policy import SampleKey
from assay.rollout.episodes import Samples
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of

FIELD = "engine.evaluate"
OWN = "own"


def is_spread(session: Session) -> bool:
    """Whether a cluster answers the evaluations of a session."""
    engine = session.experiment.engine
    return engine is not None and engine.evaluate != OWN


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
class Opening:
    """What another process needs to open an evaluation of a run as this one did."""

    run: RunDirectory
    seed: int
    name: str
    spec: EvaluateSpec = field(hash=False)
    fingerprint: str
    """Of all that answers depend on, as this process has it."""
    precision: Precision
    threads: int

    def opened(self) -> tuple[Session, Evaluation]:
        """The evaluation. Raises RunFailure where it comes out other than the fingerprint says."""
        return _opened(self)


@lru_cache(maxsize=1)
def _opened(opening: Opening) -> tuple[Session, Evaluation]:
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
    found: list[Any] = [record.items, record.items_hash, record.sampling, record.rendering]
    found += [record.checker, record.options, evaluation.seed]
    encoder = session.learner.encoder(evaluation.spec)
    found += [[encoder.plain(context) for context in evaluation.contexts]]
    found += [session.learner.fingerprint]
    return sha256_text(canonical_json(found))


@dataclass(frozen=True)
class SpreadLocalAnswerer(LocalAnswerer):
    """See `Answerer`: every process reads the checkpoint once, and answers whole chunks."""

    def check(self) -> None:
        """See `Answerer`; looks at the cluster as well."""
        super().check()
        pool_of(self.session)

    def answers(
        self,
        evaluation: Evaluation,
        checkpoint: str,
        chunks: Sequence[Sequence[Request]],
        folder: Path,
    ) -> Generator[list[Answered]]:
        """See `Answerer`."""
        session = self.session
        others = session.evaluations.values()
        known = known_turns(session.run, evaluation, others, checkpoint)
        about = (session.run, session.seed, evaluation.name, evaluation.spec)
        hashed = fingerprint(session, evaluation)
        opening = Opening(*about, hashed, session.precision, torch.get_num_threads())
        gpu = session.precision.device != "cpu"
        needs = Needs(1.0, 1.0) if gpu else Needs(float(opening.threads))
        calls = []
        for chunk in chunks:
            keys = [
                (evaluation.contexts[place], SampleKey(evaluation.seed, items.id, repeat))
                for place, repeat in chunk
                for items in (evaluation.items[place],)
            ]
            own = {key: known[key] for key in keys if key in known}
            calls.append((answer_chunk, (opening, checkpoint, tuple(chunk), own)))
        yield from as_they_come(pool_of(session), needs, calls)


def answer_chunk(
    opening: Opening, checkpoint: str, chunk: Sequence[Request], known: Known
) -> list[Answered]:
    """Answer one chunk in the process that this is called in."""
    session, evaluation = opening.opened()
    policy = Remembering(_policy(opening, checkpoint), known)
    return LocalAnswerer(session).answered(evaluation, policy, chunk)


_KEPT: dict[tuple[RunDirectory, str, Precision], Samples] = {}
"""The one checkpoint that this process has read."""


def _policy(opening: Opening, checkpoint: str) -> Samples:
    key = (opening.run, checkpoint, opening.precision)
    if key not in _KEPT:
        _KEPT.clear()
        gc.collect()
        session, _ = opening.opened()
        _KEPT[key] = LocalAnswerer(session).read(checkpoint)
    return _KEPT[key]
