"""Prepares an evaluation: its items, prompts, scoring, and the key of its record.

Evaluations with other items, sampling or checkers have different records. Training rows that ask
the same as an item are counted here; `lab.check.rows` and `compare.fairness` decide what
follows. `lab.evaluate.run_evaluation` samples and writes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from assay.data.episode import Completion, Context
from assay.data.files import canonical_json, hash_contents, sha256_text
from assay.data.leakage import Overlap, Played, overlap
from assay.data.row import Row
from assay.data.splits import conversation_of, take
from assay.errors import InputError, within
from assay.experiment.stage_tables import StageSpec, plain
from assay.experiment.tables import EvaluateSpec
from assay.lab.data.prepare import EXAMPLES, DataSet, find_part
from assay.lab.models.learner import Learner, drawn_by, first_context
from assay.lab.session.reward_parts import reward_of, rewards_in, rubric_of
from assay.rl.policy import Sampling
from assay.runs.records import EvaluationRecord
from assay.runs.run_directory import Manifest
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.rendered_dialogue import dialogue_of
from assay.tasks.reward_table import RewardTable
from assay.tasks.task import (
    BenchmarkOptions,
    Dialogue,
    RewardFunction,
    Task,
    benchmark,
    no_error,
)
from assay.tasks.user_code import file_note

BASE = "base"


Trained = Mapping[str, tuple[Row, ...]]
"""The rows that stages train on, by `NAME` or `NAME.dev`."""


def trained_rows(
    stages: Mapping[str, StageSpec], sets: Mapping[str, DataSet]
) -> dict[str, tuple[Row, ...]]:
    """The rows that stages train on."""
    names = dict.fromkeys(stage.data for stage in stages.values())
    return {name: find_part(sets, name) for name in names}


def bare_items(spec: EvaluateSpec, items: Sequence[Row], task: Task, root: Path) -> tuple[Row, ...]:
    """The items of an evaluation without worked examples."""
    if EXAMPLES not in spec.options or spec.benchmark is None:
        return tuple(items)
    options = {k: v for k, v in spec.options.items() if k != EXAMPLES}
    ids = {item.id for item in items}
    made = benchmark(task, spec.benchmark, BenchmarkOptions(options, root))
    return tuple(item for item in made.items if item.id in ids)


def shared_texts(shared: Overlap) -> tuple[str, ...]:
    """The training rows whose question is an item's, word for word or in normal form."""
    return tuple(dict.fromkeys(train for train, _ in shared.exact + shared.normalised))


def plays(task: Task, dialogue: Callable[[Row], Dialogue] | None = None) -> Played:
    """Which rows begin a dialogue: those of the task, and all of a benchmark that has dialogues."""
    return lambda row: dialogue is not None or task.dialogue(row) is not None


def trained_on(checkpoint: str, shared: Mapping[str, int] | None, manifest: Manifest) -> list[str]:
    """Warnings on a checkpoint's score: training rows with its items' questions, or that this is
    unknown. `shared` is from the record of the evaluation."""
    if checkpoint == BASE or not manifest.get("stages"):
        return []
    if shared is None:
        return ["whether its items were trained on is not known: the training rows are gone"]
    return [
        f"trained on test items: {rows} of {manifest['data'][name][side or 'train']['rows']} rows "
        f"of data.{data} ask what its items ask (no comparison takes this score)"
        for data, rows in shared.items()
        if rows
        for name, _, side in [data.partition(".")]
    ]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One `[evaluate.NAME]` table made ready: items, scoring and the record's description."""

    spec: EvaluateSpec
    task: Task
    items: tuple[Row, ...]
    score: RewardFunction | RewardTable
    classify: Callable[[Row, Completion], str]
    record: EvaluationRecord
    seed: int
    dialogue: Callable[[Row], Dialogue] | None = None
    """The environments of items that take several turns; None where one answer is all."""
    contexts: tuple[Context, ...] = ()
    """What the learner reads first of each item; empty where an endpoint gets messages."""
    clustered: bool = False
    """Whether the record names the source of each item, which several may share."""

    @property
    def name(self) -> str:
        """The table's name, or the one that the record is known by."""
        return self.record.name

    @property
    def sampling(self) -> Sampling:
        """The sampling settings of the table."""
        return drawn_by(self.spec.sampling, self.spec.sampling.temperature)


def make_evaluation(
    name: str,
    spec: EvaluateSpec,
    task: Task,
    sets: Mapping[str, DataSet],
    rendering: str,
    seed: int,
    trained: Trained | None = None,
    root: Path = Path(),
) -> Evaluation:
    """Items of a benchmark or a data set, fingerprinted; `rendering` says how they are written.

    Files that options name lie in `root`. With the rows that were `trained` on, the record says how
    many of them ask what an item asks.
    Raises InputError for names, and where fewer items exist than are taken.
    """
    score: RewardFunction | RewardTable
    if spec.benchmark is not None:
        with within(f"evaluate.{name}"):
            made = benchmark(task, spec.benchmark, BenchmarkOptions(spec.options, root))
        items, score, classify, dialogue = made.items, made.score, made.classify, made.dialogue
        checker, options = made.checker, dict(made.options)
    else:
        items, classify = find_part(sets, spec.data or ""), no_error
        score = reward_of(task, spec.reward or {}, root)
        checker, options = f"reward {json.dumps(plain(spec.reward or {}))}", {}
        several = any(task.dialogue(item) is not None for item in items)
        dialogue = partial(dialogue_of, task) if several else None
    if spec.take is not None:
        items = take(items, spec.take.rows, spec.take.how)
    for kind, count in spec.fewer.items():
        if count > len(items):
            problem, fix = f"asks for {count} of {len(items)} items", f"at most {len(items)}"
            raise InputError(problem, field=f"fewer.{kind}", fix=fix)
    judges = rewards_in(score).values()
    rubrics = [each.settings for each in judges if isinstance(each, JudgeReward) and each.settings]
    notes = sorted({file_note(judge) for judge in judges} - {""})
    notes += [f"rubric {sha256_text(canonical_json(each))[:12]}" for each in rubrics]
    if (alone := rubric_of(score)) is not None:
        options["rubric"] = alone.settings
    checker += f" ({', '.join(notes)})" if notes else ""
    shared = None
    if trained is not None:
        bare, played = bare_items(spec, items, task, root), plays(task, dialogue)
        every = {
            n: overlap(rows, bare, played, bool(spec.same_prompt)) for n, rows in trained.items()
        }
        shared = {n: len(shared_texts(pairs)) for n, pairs in every.items()}
    record = EvaluationRecord(
        name=name,
        benchmark=spec.benchmark or spec.data or "",
        role=spec.role,
        items=tuple(item.id for item in items),
        items_hash=hash_contents(items),
        repeats=spec.repeats,
        fewer=dict(spec.fewer),
        # What is left out leaves no trace, so that older records keep their name.
        sampling=spec.sampling.model_dump(mode="json", exclude_none=True),
        rendering=rendering,
        checker=checker,
        options=options,
        seed=seed,
        shared=shared,
    )
    return Evaluation(
        spec=spec,
        task=task,
        items=tuple(items),
        score=score,
        classify=classify,
        record=record,
        seed=seed,
        dialogue=dialogue,
    )


def encoded_evaluation(
    name: str,
    spec: EvaluateSpec,
    task: Task,
    sets: Mapping[str, DataSet],
    learner: Learner,
    seed: int,
    trained: Trained | None = None,
    root: Path = Path(),
) -> Evaluation:
    """See `make_evaluation`; for a learner in this process, as the table's rendering writes."""
    encoder = learner.encoder(spec)
    made = make_evaluation(name, spec, task, sets, encoder.fingerprint, seed, trained, root)
    return replace(
        made,
        contexts=tuple(first_context(encoder, task, item, made.dialogue) for item in made.items),
        clustered=any(conversation_of(item) != item.id for item in made.items),
    )
