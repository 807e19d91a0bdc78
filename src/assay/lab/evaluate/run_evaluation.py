"""Runs an evaluation with any answerer: samples, judges and records answers in chunks.

A complete record is not made again; an interrupted one continues after its last chunk. Returns
counts of outcomes; statistics are in `judge`.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from assay.data.episode import Completion, Reward
from assay.data.files import lock
from assay.data.hashing import prompt_sha256
from assay.data.splits import conversation_of
from assay.errors import InputError, RunFailure
from assay.experiment.checkpoint_reference import BASE, CheckpointReference, checkpoint_name
from assay.experiment.tables import EvaluateSpec
from assay.judge.identity import MANY_FALLBACKS, MOST_FALLBACKS, is_fallback
from assay.judge.verdict import FEW_UNSCORED
from assay.lab.evaluate.answerer import Answerer, Chunks, ItemAnswer
from assay.lab.evaluate.endpoint_answerer import EndpointAnswerer
from assay.lab.evaluate.local_answerer import FIELD, OWN, LocalAnswerer, SpreadLocalAnswerer
from assay.lab.models.learner import arm_of
from assay.lab.monitor.observer import Observer
from assay.lab.session.evaluation import Evaluation, make_evaluation
from assay.lab.session.manifest import about_run, evaluation_table, judge_sha256
from assay.lab.session.session import Session
from assay.rollout.episodes import telling
from assay.runs.judgement_journal import JudgementJournal
from assay.runs.manifest_file import Manifest
from assay.runs.records import (
    CLUSTER,
    FACTS,
    OUTCOME,
    PROMPT,
    RecordWriter,
    conversation_columns,
    outcome,
    read_columns,
)
from assay.tasks.helper_model import find_helper
from assay.tasks.running import RewardRunner
from assay.tasks.task import TRUNCATED, FixedArm, error_type


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
MANY_TRUNCATED = 0.1
"""A larger share of answers that were cut and count as wrong is warned of."""


@dataclass(frozen=True, slots=True)
class RecordedOutcomes:
    """The answers of a record, counted; the most frequent kinds first."""

    answers: int
    outcomes: Mapping[str, int]
    """Right and wrong answers and types of errors such as "truncated"; those without a score are
    not among them."""
    unscored: Mapping[str, int]
    """Reasons of answers without a score by kind, such as "endpoint: HTTP 400"."""
    fallback: int | None = None
    """Answers that a fallback metric scored; None where no answer says what scored it."""

    @property
    def fallback_share(self) -> float:
        """The share of the answers that a fallback metric scored."""
        return (self.fallback or 0) / max(self.answers, 1)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the record's score doubtful; `refuse_fallbacks` stops at more fallbacks."""
        warnings, missing = [], sum(self.unscored.values())
        if missing > FEW_UNSCORED * self.answers:
            warnings.append(
                f"{missing} of {self.answers} answers ({missing / self.answers:.1%}, more than "
                f"{FEW_UNSCORED:.0%}) have no score, most often: {next(iter(self.unscored))}; no "
                "verdict is given that they could undo"
            )
        if MANY_FALLBACKS < self.fallback_share <= MOST_FALLBACKS:
            warnings.append(
                f"a fallback metric scored {self.fallback} of {self.answers} answers "
                f"({self.fallback_share:.1%}, more than {MANY_FALLBACKS:.0%}): the score is not "
                "the benchmark's, and no verdict is given on it"
            )
        cut = self.outcomes.get(TRUNCATED, 0)
        if cut > MANY_TRUNCATED * self.answers:
            warnings.append(
                f"{cut} of {self.answers} answers ({cut / self.answers:.1%}, more than "
                f"{MANY_TRUNCATED:.0%}) count as wrong because they were cut at the token limit; "
                "raise sampling.max_tokens"
            )
        return tuple(warnings)


def recorded_outcomes(file: Path) -> RecordedOutcomes:
    """Reads a record's columns. Raises DamagedFile."""
    columns = read_columns(file, ["score", "error", "why", "parts"], [OUTCOME])
    scores = columns["score"]
    judged = columns.get(OUTCOME) or [""] * len(scores)
    lines = zip(scores, columns["error"], judged, strict=True)
    scored = Counter(outcome(*line) for line in lines if line[0] is not None)
    reasons = [why for why, score in zip(columns["why"], scores, strict=True) if score is None]
    unscored = Counter(map(kind_of_reason, reasons))
    return RecordedOutcomes(
        len(scores),
        dict(scored.most_common()),
        dict(unscored.most_common()),
        fallbacks(columns["parts"]),
    )


def kind_of_reason(why: str) -> str:
    """What answers without a score have in common, such as "endpoint: HTTP 400"; of a helper model
    also which one it was."""
    parts = why.split(": ")
    return ": ".join(parts[: 3 if parts[0].endswith("gave no answer") else 2])


def fallbacks(texts: Sequence[str]) -> int | None:
    """The answers that a fallback metric scored, by their parts; None where none says so."""
    known = {text: is_fallback(json.loads(text)) for text in set(texts)}
    marks = [known[text] for text in texts if known[text] is not None]
    return sum(map(bool, marks)) if marks else None


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


def measure_stored(
    session: Session, evaluation: Evaluation, reference: CheckpointReference
) -> None:
    """Measure a checkpoint that is resolved to its step, unless it was measured or another process
    is measuring it. Raises RunFailure where nothing is scored; for
    fallback metrics also where it was measured."""
    name = checkpoint_name(reference)
    if not evaluation.record.finished(session.run, name):
        with claimed(evaluation.record.parts(session.run.evaluations, name)) as mine:
            if mine and not evaluation.record.finished(session.run, name):
                measure(session, evaluation, answerer_of(session), name)
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
    judge = judge_sha256(session.helpers, evaluation.spec.reward, evaluation.score)
    parts = evaluation.record.parts(folder, checkpoint)
    journal = JudgementJournal(parts / JUDGEMENTS, judge)
    runners = session.reward_runner(evaluation.score, evaluation.spec, journal)
    with session.helpers.evaluation(evaluation.name, checkpoint), runners as runner:
        file = run_evaluation(evaluation, answerer, checkpoint, folder, session.observer, runner)
    for warning in recorded_outcomes(file).warnings:
        session.observer.note(f"warning: {checkpoint} on {evaluation.name}: {warning}")
    refuse_fallbacks(evaluation.name, checkpoint, file)


def refuse_fallbacks(name: str, checkpoint: str, file: Path) -> None:
    """Raise RunFailure for a record most of whose answers a fallback metric scored; the record
    is kept."""
    outcomes = recorded_outcomes(file)
    if outcomes.fallback_share > MOST_FALLBACKS:
        raise RunFailure(
            f"{checkpoint} on {name}: a fallback metric scored {outcomes.fallback} of "
            f"{outcomes.answers} answers ({outcomes.fallback_share:.1%}, more than "
            f"{MOST_FALLBACKS:.0%}); the record is kept: {file} (give every question what "
            "its metric needs; the facts of its answers say what lacks)"
        )


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
        refuse_unscored(evaluation.name, checkpoint, writer)
        file = writer.finish()
    observer.evaluation(evaluation.name, checkpoint, len(requests), len(requests))
    return file


def refuse_unscored(name: str, checkpoint: str, writer: RecordWriter) -> None:
    """Raise RunFailure where no answer has a score. They are kept beside the record, and asked
    for anew when the run goes on."""
    if writer.file.exists():
        return
    columns = [read_columns(part, ["score", "why"]) for part in writer.chunks]
    if not columns or any(score is not None for each in columns for score in each["score"]):
        return
    reasons = Counter(kind_of_reason(why) for each in columns for why in each["why"])
    kept = writer.set_aside()
    (why, _) = reasons.most_common(1)[0]
    raise RunFailure(
        f"{checkpoint} on {name}: none of {reasons.total()} answers has a score, most often: {why} "
        f"(the answers are kept in {kept}; mend what failed, then resume the run)"
    )


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
