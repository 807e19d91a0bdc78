"""Runs an evaluation with any answerer: samples, judges and records answers in chunks.

A complete record is not made again; an interrupted one continues after its last chunk. Returns
counts of outcomes; statistics are in `judge`.

Before a run begins, the judge of a rubric grades answers that people labelled. Labels are JSON
lines, `{"item": ID, "answer": TEXT, "label": 4}`; of several criteria `label` is an object, of
pairs "answer", "reference" or "tie", beside a `reference`. The `question` may stand there; else the
item is one of the run's. What the judge was asked is journalled, so that nothing is asked twice.
The agreement is made of what is stored in `compare.judge_trust`.
"""

import json
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from assay.data.episode import Completion, Reward
from assay.data.files import canonical_json, lock, prompt_sha256, sha256_text
from assay.data.json_files import read_jsonl
from assay.data.loaded import Record
from assay.data.row import Message, Row
from assay.data.splits import conversation_of
from assay.errors import InputError, look_up
from assay.experiment.checkpoint_reference import BASE, CheckpointReference
from assay.experiment.reward_tables import Reward as RewardSpec
from assay.experiment.reward_tables import RewardPart, RewardSettings, parts_of
from assay.experiment.stage_tables import SftStage
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import Answerer, Chunks, ItemAnswer
from assay.lab.evaluate.endpoint_answerer import EndpointAnswerer
from assay.lab.evaluate.local_answerer import FIELD, OWN, LocalAnswerer, SpreadLocalAnswerer
from assay.lab.models.learner import arm_of
from assay.lab.monitor.observer import Observer
from assay.lab.session.evaluation import Evaluation, make_evaluation
from assay.lab.session.manifest import about_run, evaluation_table
from assay.lab.session.reward_parts import OpenedRubric, asked_helpers, judge_journal, open_rubric
from assay.lab.session.session import Session
from assay.rollout.episodes import telling
from assay.runs.judgement_journal import (
    FOLDER,
    JudgedLabels,
    JudgementJournal,
    LabelledJudgement,
    write_judged,
)
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
from assay.tasks.helper_model import DECLARE
from assay.tasks.rubric import PREFERENCE, RUBRIC, TIE, Rubric
from assay.tasks.running import RewardRunner
from assay.tasks.task import FixedArm, answer_text

OPTION = "rubric"
"""The option of a benchmark that names the file of a rubric."""
LABELS = "labels"
"""What the judge is asked for, in the ledger of costs."""
PREFERRED = {"answer": 1.0, "reference": 0.0, TIE: 0.5}


@dataclass(frozen=True)
class Use:
    """A rubric as a stage or an evaluation uses it."""

    kind: str
    opened: OpenedRubric
    settings: RewardSettings


class Verdicts(JudgementJournal):
    """A journal whose abstentions are asked again: a label is worth more than a call."""

    def known(self, part: str, row: Row, completion: Completion) -> Reward | None:
        """See `JudgementJournal`."""
        verdict = super().known(part, row, completion)
        return None if verdict is None or verdict.value is None else verdict


def rubrics_in(session: Session) -> list[Use]:
    """The rubrics of an experiment, each once. Raises what opening them raises."""
    experiment = session.experiment
    specs: list[tuple[RewardSpec | None, RewardSettings]] = [
        (stage.reward, stage)
        for stage in experiment.stage.values()
        if not isinstance(stage, SftStage)
    ]
    specs += [(each.reward, each) for each in experiment.evaluate.values()]
    parts = [(part, how) for spec, how in specs for part in parts_of(spec or {}).values()]
    parts += [
        (RewardPart(kind=RUBRIC + each.options[OPTION]), each)
        for each in experiment.evaluate.values()
        if isinstance(each.options.get(OPTION), str)
    ]
    uses: dict[str, Use] = {}
    for part, settings in parts:
        if part.kind.startswith(RUBRIC):
            opened = open_rubric(part.kind, session.run.root)
            use = Use(part.kind, opened, settings)
            uses.setdefault(canonical_json(opened.reward.settings), use)
    return list(uses.values())


def measure_judges(answerer: Answerer) -> None:
    """Have the judge of every rubric that names labels grade their answers, and store what it says.
    Raises InputError for labels that cannot be used."""
    for use in rubrics_in(answerer.session):
        if use.opened.labels is not None:
            judge_labelled(answerer, use, use.opened.labels)


def judge_labelled(answerer: Answerer, use: Use, file: Path) -> JudgedLabels:
    """Judge the labelled answers and store what was said. Raises InputError for a label whose
    question or other answer nobody knows."""
    session, rubric, reward = answerer.session, use.opened.rubric, use.opened.reward
    labels = read_labels(file, rubric)
    rows = _rows(answerer, use, [record for record, _ in labels])
    fingerprint = sha256_text(
        canonical_json([reward.settings, asked_helpers(session.helpers, [reward])])
    )
    name, folder = f"{use.opened.file.stem}-{fingerprint[:8]}", session.run.path / FOLDER
    folder.mkdir(exist_ok=True)
    journal = Verdicts(folder / f"{name}.jsonl", fingerprint)
    runners = session.reward_runner(reward, use.settings, journal)
    answers = [
        Completion(r.value["answer"], id=f"{LABELS}/{row.id}#{sha256_text(r.value['answer'])[:12]}")
        for (r, _), row in zip(labels, rows, strict=True)
    ]
    with session.helpers.evaluation(LABELS, use.opened.file.stem), runners as runner:
        verdicts = runner.score(list(zip(rows, answers, strict=True)))
    judged = [
        LabelledJudgement(
            row.id,
            conversation_of(row),
            grades,
            {}
            if verdict.value is None
            else {part.rpartition("/")[2]: value for part, value in verdict.parts.items()},
        )
        for row, (_, grades), verdict in zip(rows, labels, verdicts, strict=True)
    ]
    summary = JudgedLabels(
        kind=use.kind,
        settings=use.opened.reward.settings,
        levels=rubric.levels,
        model=f"{rubric.model} ({session.experiment.helpers[rubric.model].source})",
        least_kappa=use.opened.spec.least_kappa,
        labels=file.name,
        judged=judged,
    )
    write_judged(session.run, name, summary)
    return summary


def _rows(answerer: Answerer, use: Use, records: Sequence[Record]) -> list[Row]:
    """The question of each label: that of the run's item, else its own; with the answer that it is
    compared with, or that one who grades sees, as `gold`. Raises InputError."""
    sets = answerer.session.sets.values() if answerer.in_process else ()
    known = {row.id: row for each in sets for row in each.rows}
    known |= {row.id: row for each in answerer.evaluations().values() for row in each.items}
    rows, rubric = [], use.opened.rubric
    for record in records:
        item, question = record.value["item"], record.maybe("question", str)
        if item not in known and question is None:
            fix = "write the question, or the id of a row of the run's data or evaluations"
            raise record.error("item", f"nobody knows the item {item!r}", fix)
        row = known.get(item) or Row(item, (Message("user", question or ""),))
        other = record.maybe("reference", str)
        other = answer_text(row) if other is None else other
        if other is None and (rubric.pairs or rubric.reference):
            fix = "write the answer that it is compared with"
            raise record.error("reference", "missing, and the item has no answer", fix)
        rows.append(replace(row, gold=other))
    return rows


def read_labels(file: Path, rubric: Rubric) -> list[tuple[Record, Mapping[str, float]]]:
    """The lines of a file with their grades; one whose label is null waits to be filled in. Raises
    DataError."""
    labels: dict[tuple[str, str], tuple[Record, Mapping[str, float]]] = {}
    for record in read_jsonl(file):
        place = record.need("item", str), record.need("answer", str)
        if record.value.get("label") is None:
            continue
        if place in labels:
            problem = f"the answer was labelled in line {labels[place][0].line} already"
            raise record.error("answer", problem, "keep one line for each answer")
        labels[place] = record, dict(_grades(record, rubric))
    return list(labels.values())


def _grades(record: Record, rubric: Rubric) -> Iterator[tuple[str, float]]:
    """The label by criterion. Raises DataError for one that is off its scale."""
    label = record.value["label"]
    if rubric.pairs:
        if not isinstance(label, str) or label not in PREFERRED:
            words = ", ".join(f'"{name}"' for name in PREFERRED)
            raise record.error("label", f"{label!r} is no preference", f"write {words}")
        yield PREFERENCE, PREFERRED[label]
        return
    if not isinstance(label, Mapping) and len(rubric.criteria) == 1:
        label = dict.fromkeys(rubric.criteria, label)
    if not isinstance(label, Mapping) or label.keys() != rubric.criteria.keys():
        names = ", ".join(f'"{name}": ...' for name in rubric.criteria)
        raise record.error("label", "does not grade the rubric's criteria", f"write {{{names}}}")
    for name, each in rubric.criteria.items():
        value = label[name]
        if type(value) not in (int, float) or value not in each.levels:
            field = "label" if len(rubric.criteria) == 1 else f"label.{name}"
            problem = f"{value!r} is no whole number from {each.low} to {each.high}"
            raise record.error(field, problem, "use the scale of the rubric")
        yield name, float(value)


@dataclass
class FunctionAnswerer(Answerer):
    """An arm of a task: a function from items to answers, such as the best choice by search or one
    program for every problem. Nothing is opened; there is one checkpoint, "base"."""

    arm: FixedArm

    def check(self) -> None:
        """Raise InputError without the arm's helper model, which is not opened."""
        if self.arm.helper and self.arm.helper not in self.session.experiment.helpers:
            look_up({}, self.arm.helper, "helper model", DECLARE)

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
