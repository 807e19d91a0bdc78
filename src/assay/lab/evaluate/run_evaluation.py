"""Runs an evaluation with any answerer: samples, judges and records answers in chunks.

A complete record is not made again; an interrupted one continues after its last chunk. Returns
counts of outcomes; statistics are in `judge`.
"""

import json
import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from assay.data.episode import Completion, Reward
from assay.data.files import lock
from assay.data.hashing import prompt_sha256
from assay.data.splits import conversation_of
from assay.errors import InputError
from assay.experiment.checkpoint_reference import BASE, CheckpointReference
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import Answerer, Chunks, ItemAnswer
from assay.lab.evaluate.endpoint_answerer import EndpointAnswerer
from assay.lab.evaluate.local_answerer import FIELD, OWN, LocalAnswerer, SpreadLocalAnswerer
from assay.lab.models.learner import arm_of
from assay.lab.monitor.observer import Observer
from assay.lab.session.evaluation import Evaluation, make_evaluation
from assay.lab.session.manifest import about_run, evaluation_table
from assay.lab.session.reward_parts import judge_journal
from assay.lab.session.session import Session
from assay.rollout.episodes import telling
from assay.runs.records import (
    CLUSTER,
    FACTS,
    OUTCOME,
    PROMPT,
    RecordWriter,
    conversation_columns,
    error_type,
    recorded_outcomes,
    refuse_fallbacks,
)
from assay.runs.run_directory import Manifest
from assay.tasks.helper_model import find_helper
from assay.tasks.running import RewardRunner
from assay.tasks.task import FixedArm


@dataclass
class FunctionAnswerer(Answerer):
    """An arm of a task: a function from items to answers, such as the best choice by search or one
    program for every problem. Nothing is opened; there is one checkpoint, "base"."""

    arm: FixedArm

    def check(self) -> None:
        """Raise InputError without the arm's helper model, which is not opened."""
        if self.arm.helper and self.arm.helper not in self.session.experiment.helpers:
            find_helper({}, self.arm.helper, "model")

    def evaluation(
        self, name: str, spec: EvaluateSpec, reference: CheckpointReference = BASE
    ) -> Evaluation:
        """See `Answerer`. Raises InputError for items that the arm cannot answer."""
        session = self.session
        sets = session.sets if spec.data is not None else {}
        source, root = session.experiment.model, session.run.root
        made = make_evaluation(name, spec, session.task, sets, source, session.seed, {}, root)
        if without := [item.id for item in made.items if self.arm.needs not in item.extra]:
            problem = f"item {without[0]} has no {self.arm.needs}"
            raise InputError(problem, field=f"evaluate.{name}", fix=self.arm.fix)
        for item in made.items:
            self.arm.check(item)
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
        self, evaluation: Evaluation, checkpoint: str, chunks: Chunks, folder: Path
    ) -> Generator[list[ItemAnswer]]:
        """See `Answerer`; every repeat of an item is the same. Raises HelperFailed."""
        for chunk in chunks:
            items = {place: evaluation.items[place] for place, _ in chunk}
            completions = self.arm.answers(self.session.helpers, [*items.values()])
            answers = dict(zip(items, completions, strict=True))
            yield [
                ItemAnswer(items[place], repeat, completion, read, len(completion.tokens))
                for place, repeat in chunk
                for completion, read in (answers[place],)
            ]


JUDGEMENTS = "judgements.jsonl"
"""The journal of judges, beside the chunks of a record and deleted with them."""


def answerer_of(session: Session) -> Answerer:
    """The answerer of a run's model: an endpoint, an arm of a task, or a learner in this process,
    or in those of a cluster. Raises InputError for an arm on a cluster."""
    engine = session.experiment.engine
    source, spread = session.experiment.model, (engine is not None and engine.evaluate != OWN)
    if source.startswith("openai:"):
        if spread:
            session.observer.note("an endpoint is asked from here: Ray has nothing to spread")
        return EndpointAnswerer(session)
    arm = arm_of(session.task, source)
    if arm is None:
        return SpreadLocalAnswerer(session) if spread else LocalAnswerer(session)
    if spread:
        problem = f"{source} is no model: it answers in this process"
        raise InputError(problem, field=FIELD, fix="leave it out")
    return FunctionAnswerer(session, arm, chunk=arm.chunk)


def measure_stored(session: Session, evaluation: Evaluation, name: str) -> None:
    """Measure a checkpoint by its name in records, unless it was measured or another process is
    measuring it. Raises RunFailure where nothing is scored; for fallback metrics also where it was
    measured."""
    if not evaluation.record.finished(session.run, name):
        with claimed(evaluation.record.parts(session.run.evaluations, name)) as mine:
            if mine and not evaluation.record.finished(session.run, name):
                answerer = answerer_of(session)
                measure(session, evaluation, answerer, name)
    else:
        file = evaluation.record.file(session.run.evaluations, name)
        refuse_fallbacks(evaluation.name, name, file)


@contextmanager
def claimed(parts: Path) -> Iterator[bool]:
    """Whether this process may make the record with these chunks; no other may meanwhile."""
    parts.mkdir(parents=True, exist_ok=True)
    try:
        handle = lock(parts, wait=False)
    except (BlockingIOError, FileNotFoundError):  # at work, or done in this moment
        yield False
        return
    try:
        yield True
    finally:
        os.close(handle)


def measure(session: Session, evaluation: Evaluation, answerer: Answerer, checkpoint: str) -> None:
    """Make or complete one record, and warn where its score is doubtful. Raises RunFailure and
    RunFailure."""
    folder = session.run.evaluations
    file = evaluation.record.parts(folder, checkpoint) / JUDGEMENTS
    journal = judge_journal(file, session.helpers, evaluation.spec.reward, evaluation.score)
    runners = session.reward_runner(evaluation.score, evaluation.spec, journal)
    with session.helpers.evaluation(evaluation.name, checkpoint), runners as runner:
        file = run_evaluation(evaluation, answerer, checkpoint, folder, session.observer, runner)
    for warning in recorded_outcomes(file).warnings:
        session.observer.note(f"warning: {checkpoint} on {evaluation.name}: {warning}")
    refuse_fallbacks(evaluation.name, checkpoint, file)


def run_evaluation(
    evaluation: Evaluation,
    answerer: Answerer,
    checkpoint: str,
    folder: Path,
    observer: Observer,
    runner: RewardRunner,
) -> Path:
    """Sample and judge the missing answers of a record; returns its file. Raises RunFailure, and
    what `Answerer.answers` does."""
    requests, size = evaluation.record.jobs(checkpoint), answerer.chunk
    with RecordWriter(folder, evaluation.record, checkpoint) as writer:
        starts = [n for n in range(0, len(requests), size) if not writer.has_chunk(n // size)]
        chunks = [requests[start : start + size] for start in starts]
        begins = {
            (evaluation.items[place].id, repeat): n for n, (place, repeat) in enumerate(requests)
        }
        done = len(requests) - sum(map(len, chunks))

        def told(count: int) -> None:
            """Tell of answers inside a chunk: none is the last, which is told once recorded."""
            most = len(requests) - 1
            observer.evaluation(evaluation.name, checkpoint, min(done + count, most), most + 1)

        with closing(answerer.answers(evaluation, checkpoint, chunks, writer.parts)) as coming:
            for _ in chunks:
                observer.evaluation(evaluation.name, checkpoint, done, len(requests))
                started = time.perf_counter()
                with telling(told):
                    answered = next(coming)
                fresh = [n for n, each in enumerate(answered) if not each.failure]
                rewards = [Reward(None, why=each.failure) for each in answered]
                scored = runner.score([(answered[n].item, named(answered[n])) for n in fresh])
                for n, reward in zip(fresh, scored, strict=True):
                    rewards[n] = reward
                seconds = (time.perf_counter() - started) / len(answered)
                lines = [
                    record_line(evaluation, checkpoint, each, reward, seconds)
                    for each, reward in zip(answered, rewards, strict=True)
                ]
                first = begins[answered[0].item.id, answered[0].repeat]
                writer.write_chunk(first // size, lines)
                done += len(answered)
        writer.refuse_unscored()
        file = writer.finish()
    observer.evaluation(evaluation.name, checkpoint, len(requests), len(requests))
    return file


def named(each: ItemAnswer) -> Completion:
    """The completion with its name in the evaluation."""
    return replace(each.completion, id=f"{each.item.id}#{each.repeat}")


def record_line(
    evaluation: Evaluation, checkpoint: str, each: ItemAnswer, reward: Reward, seconds: float
) -> dict[str, object]:
    """One line of an evaluation record."""
    item, completion = each.item, each.completion
    line = {
        "sample_id": f"{evaluation.name}/{checkpoint}/{item.id}#{each.repeat}",
        "item_id": item.id,
        "repeat": each.repeat,
        "output": completion.text,
        "tokens": list(completion.tokens),
        "completion_tokens": each.completion_tokens,
        "prompt_tokens": each.prompt_tokens,
        "score": reward.value,
        "parts": json.dumps(dict(reward.parts), sort_keys=True),
        "error": error_type(evaluation.classify, item, completion, reward),
        "why": reward.why,
        "ended": completion.ended,
        FACTS: json.dumps(dict(reward.facts), sort_keys=True),
        OUTCOME: reward.outcome,
        PROMPT: None if each.several or not each.turns else prompt_sha256(each.turns[0].context),
        "seconds": seconds,
    }
    if evaluation.clustered:
        line[CLUSTER] = conversation_of(item)
    if each.several:
        line |= conversation_columns(completion.messages, each.turns)
    return line
