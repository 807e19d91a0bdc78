"""Evaluations whose items are answered in processes of a cluster, and recorded by this one alone.

A model with weights is opened by each process, which answers whole chunks: the batches that one
process would make, so that their answers are the same. Of a model at an endpoint only the dialogues
are played there: calls that cost money are sent from here and journalled as they always are, so
that no process which dies takes one along. Whatever a dead process was at is done again.
"""

import gc
import itertools
import socket
import threading
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from assay.data.episode import Ended
from assay.data.hashing import canonical_json, sha256_text
from assay.data.row import Message, Row
from assay.engines.ray_pool import (
    LOOK_AGAIN,
    MOST_LOST,
    Lost,
    Needs,
    Pool,
    as_they_come,
    connect,
    look_at_nodes,
    room_of,
)
from assay.errors import InputError, RunFailure
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import Answered, Request
from assay.lab.evaluate.endpoint_answerer import EndpointAnswerer
from assay.lab.evaluate.local_answerer import Known, LocalAnswerer, Remembering, known_turns
from assay.lab.monitor.observer import Silent
from assay.lab.setup.evaluation import Evaluation, encoded_evaluation, make_evaluation
from assay.lab.setup.session import Session
from assay.models.precision import Precision
from assay.rl.policy import SampleKey
from assay.rollout.episodes import Samples
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of
from assay.tasks.task import Asked, Dialogue

FIELD = "engine.evaluate"
OWN = "own"
DIALOGUES = Needs(1.0)
MOST_PLAYED = 512
"""Dialogues that one process keeps; at most 64 are under way at once."""


def is_spread(session: Session) -> bool:
    """Whether a cluster answers the evaluations of a session."""
    engine = session.experiment.engine
    return engine is not None and engine.evaluate != OWN


def pool_of(session: Session) -> Pool:
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
    encoded: bool
    """Whether a learner is opened, whose tokens the prompts are."""
    fingerprint: str
    """Of all that answers depend on, as this process has it."""
    precision: Precision | None = None
    threads: int = 1

    def opened(self) -> tuple[Session, Evaluation]:
        """The evaluation. Raises RunFailure where it comes out other than the fingerprint says."""
        return _opened(self)


@lru_cache(maxsize=1)
def _opened(opening: Opening) -> tuple[Session, Evaluation]:
    torch.set_num_threads(opening.threads)
    run, spec = opening.run, opening.spec
    session = Session(experiment_of(run), run, opening.seed, Silent())
    sets = session.sets if spec.data is not None else {}
    about, own = (opening.name, spec, session.task, sets), (session.seed, None, run.root)
    if opening.encoded:
        session.__dict__["precision"] = opening.precision
        made = encoded_evaluation(*about, session.learner, *own)
    else:
        made = make_evaluation(*about, f"endpoint: {spec.rendering}", *own)
    if fingerprint(session, made, opening.encoded) != opening.fingerprint:
        raise RunFailure(
            f"{opening.name}: a node has other items, prompts, weights or checkers than here "
            "(give every node the same packages, cache and files)"
        )
    return session, made


def fingerprint(session: Session, evaluation: Evaluation, encoded: bool) -> str:
    """The sha256 of what an evaluation's answers depend on, apart from the checkpoint."""
    record = evaluation.record
    found: list[Any] = [record.items, record.items_hash, record.sampling, record.rendering]
    found += [record.checker, record.options, evaluation.seed]
    if encoded:
        encoder = session.learner.encoder(evaluation.spec)
        found += [[encoder.plain(context) for context in evaluation.contexts]]
        found += [session.learner.fingerprint]
    return sha256_text(canonical_json(found))


def opening_of(session: Session, evaluation: Evaluation, encoded: bool) -> Opening:
    """What other processes open an evaluation of this session by."""
    about = (session.run, session.seed, evaluation.name, evaluation.spec, encoded)
    hashed = fingerprint(session, evaluation, encoded)
    precision = session.precision if encoded else None
    return Opening(*about, hashed, precision, torch.get_num_threads())


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
        opening = opening_of(session, evaluation, encoded=True)
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


_KEPT: dict[tuple[RunDirectory, str, Precision | None], Samples] = {}
"""The one checkpoint that this process has read."""


def _policy(opening: Opening, checkpoint: str) -> Samples:
    key = (opening.run, checkpoint, opening.precision)
    if key not in _KEPT:
        _KEPT.clear()
        gc.collect()
        session, _ = opening.opened()
        _KEPT[key] = LocalAnswerer(session).read(checkpoint)
    return _KEPT[key]


@dataclass(frozen=True)
class SpreadEndpointAnswerer(EndpointAnswerer):
    """See `Answerer`: dialogues are played by other processes, calls are sent by this one."""

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
        if evaluation.dialogue is None:
            words = "single questions to an endpoint are asked from here: Ray has nothing to spread"
            self.session.observer.note(f"{evaluation.name}: {words}")
            yield from super().answers(evaluation, checkpoint, chunks, folder)
            return
        opening = opening_of(self.session, evaluation, encoded=False)
        requests = sum(map(len, chunks))
        pool = pool_of(self.session)
        with closing(Stage(pool, opening, evaluation, requests)) as stage:
            played = replace(evaluation, dialogue=stage.dialogue)
            yield from super().answers(played, checkpoint, chunks, folder)


class Stage:
    """Processes that play dialogues; safe to use from several threads."""

    def __init__(self, pool: Pool, opening: Opening, evaluation: Evaluation, requests: int):
        """Begins as many as there is room for. Raises InputError where there is none."""
        self._pool, self._opening = pool, opening
        self._places = {item.id: place for place, item in enumerate(evaluation.items)}
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._hosts: list[Any] = []
        self._coming: dict[Any, Any] = {}
        for _ in range(min(room_of(pool, DIALOGUES, InputError), requests)):
            self._begin()

    def dialogue(self, item: Row) -> "PlayedElsewhere":
        """The dialogue with an item."""
        return PlayedElsewhere(self, self._places[item.id], next(self._numbers))

    def play(self, dialogue: "PlayedElsewhere") -> tuple[Asked | None, tuple[Message, ...]]:
        """What is asked next, and the messages once nothing is. Raises what the dialogue does."""
        given = (self._opening, dialogue.number, dialogue.place, tuple(dialogue.heard))
        last = ""
        for _ in range(MOST_LOST):
            host = self._host(dialogue.number)
            try:
                asked, messages, exit = self._pool.take(self._pool.call(host, play, *given))
            except Lost as error:
                last = str(error)
                self._replace(host)
                continue
            if exit is not None:
                raise exit
            return asked, messages
        raise RunFailure(f"{MOST_LOST} processes died at one dialogue: {last}")

    def close(self) -> None:
        """Give the processes back."""
        for host in self._hosts:
            self._pool.rest(DIALOGUES, host)
        for host in self._coming.values():
            self._pool.drop(host)

    def _begin(self) -> None:
        host = self._pool.host(DIALOGUES)
        self._coming[self._pool.call(host, socket.gethostname)] = host

    def _replace(self, host: Any) -> None:
        with self._lock:
            if host in self._hosts:
                self._hosts.remove(host)
                self._begin()

    def _host(self, number: int) -> Any:
        """The process that plays a dialogue, the same as long as none comes or goes."""
        with self._lock:
            while True:
                seconds = 0.0 if self._hosts else LOOK_AGAIN
                for ticket in self._pool.ready([*self._coming], seconds) if self._coming else ():
                    host = self._coming.pop(ticket)
                    try:
                        self._pool.take(ticket)
                    except Lost:
                        self._begin()
                    else:
                        self._hosts.append(host)
                if self._hosts:
                    return self._hosts[number % len(self._hosts)]
                room_of(self._pool, DIALOGUES, RunFailure)


@dataclass
class PlayedElsewhere:
    """A dialogue in another process, told anew to another one where that dies; see `Dialogue`."""

    stage: Stage
    place: int
    number: int
    heard: list[tuple[str, Ended]] = field(default_factory=list)
    messages: tuple[Message, ...] = ()

    def asks(self) -> Asked | None:
        """See `Dialogue`."""
        asked, self.messages = self.stage.play(self)
        return asked

    def hears(self, text: str, ended: Ended) -> None:
        """See `Dialogue`; what the answer leads to is raised by `asks`."""
        self.heard.append((text, ended))


_PLAYED: dict[tuple[Opening, int], tuple[Dialogue, int]] = {}
"""Dialogues under way in this process, and how many answers each has heard."""


def play(
    opening: Opening, number: int, place: int, heard: Sequence[tuple[str, Ended]]
) -> tuple[Asked | None, tuple[Message, ...], SystemExit | None]:
    """What a dialogue asks after it has heard these answers, in the process that this is called in;
    in the end its messages, or how it would have ended the process."""
    _, evaluation = opening.opened()
    assert evaluation.dialogue is not None
    try:
        known = _PLAYED.pop((opening, number), None)
        dialogue, count = known or (evaluation.dialogue(evaluation.items[place]), 0)
        for text, ended in heard[count:]:
            dialogue.asks()
            dialogue.hears(text, ended)
        asked = dialogue.asks()
    except SystemExit as error:
        return None, (), error
    if asked is None:
        return None, dialogue.messages, None
    if len(_PLAYED) >= MOST_PLAYED:
        _PLAYED.pop(next(iter(_PLAYED)))  # one that was given up; else it is told anew
    _PLAYED[opening, number] = dialogue, len(heard)
    return asked, (), None
