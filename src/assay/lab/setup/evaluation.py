"""Evaluations: a policy answers fixed items, every answer is recorded, chunk by chunk.

A record that exists is not made again; other items, sampling or checkers make another record.
What the scores mean is for `judge` to say.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from assay.data.episode import Completion, Reward
from assay.data.hashing import hash_contents
from assay.data.renderings.rendering import Renderer
from assay.data.row import Row
from assay.data.splits import SplitError, conversation_of, take
from assay.experiment.evaluate_table import EvaluateSpec
from assay.lab.evaluate.answering import Answered, Answers, episodes, single_answers
from assay.lab.monitor.observer import Observer
from assay.lab.setup.prepare import DataSet, find_part, make_renderer
from assay.lab.setup.stage_methods import reward_of
from assay.lab.setup.trained_items import Trained, bare_items, shared_questions
from assay.rl.policy import SampleKey
from assay.rollout.sampling import Sampling
from assay.runs.conversation_records import conversation_columns
from assay.runs.records import CLUSTER, EvaluationRecord, RecordWriter
from assay.tasks.dialogue import Dialogue
from assay.tasks.rendered_dialogue import RenderedDialogue, dialogue_of
from assay.tasks.running import RewardRunner, WeightedReward
from assay.tasks.task import (
    BenchmarkOptions,
    RewardFunction,
    Task,
    benchmark,
    error_type,
    no_error,
)
from assay.train.sampled_groups import FAILED

CHUNK = 256
"""Answers recorded together: what an interrupted evaluation loses at most."""


@dataclass(frozen=True)
class Evaluation:
    """One `[evaluate.NAME]` table made ready: items, prompts, scoring."""

    name: str
    spec: EvaluateSpec
    items: tuple[Row, ...]
    contexts: tuple[tuple[int, ...], ...]
    """What each item asks first."""
    score: RewardFunction | WeightedReward
    classify: Callable[[Row, Completion], str]
    record: EvaluationRecord
    seed: int
    renderer: Renderer
    dialogue: Callable[[Row], Dialogue] | None = None
    """The worlds of items that take several turns; None where one answer is all."""

    @property
    def sampling(self) -> Sampling:
        """The sampling settings of the table."""
        table = self.spec.sampling
        return Sampling(table.temperature, table.max_tokens, table.top_p, table.top_k)

    @cached_property
    def clustered(self) -> bool:
        """Whether items name a source that they, or those of another evaluation, may share."""
        return any(conversation_of(item) != item.id for item in self.items)


def make_evaluation(
    name: str,
    spec: EvaluateSpec,
    task: Task,
    sets: Mapping[str, DataSet],
    tokenizer: object,
    seed: int,
    trained: Trained | None = None,
    root: Path = Path(),
) -> Evaluation:
    """Items of a benchmark or a data set, rendered and fingerprinted.

    Files that options name lie in `root`. With the rows that were `trained` on, the record says how
    many of them ask what an item asks.
    Raises UnknownNameError for names, SplitError where fewer items exist than are taken.
    """
    renderer = make_renderer(tokenizer, spec.rendering)
    classify, checker, options = no_error, "", {}
    score: RewardFunction | WeightedReward
    dialogue: Callable[[Row], Dialogue] | None = None
    if spec.benchmark is not None:
        made = benchmark(task, spec.benchmark, BenchmarkOptions(spec.options, root))
        items, score, classify = made.items, made.score, made.classify
        dialogue = made.dialogue
        checker, options = made.checker, dict(made.options)
    else:
        items = find_part(sets, spec.data or "")
        score = reward_of(task, spec.reward or {})
        checker = f"reward {json.dumps(spec.reward)}"
        if any(task.dialogue(item) is not None for item in items):
            dialogue = partial(dialogue_of, task)
    if spec.take is not None:
        items = take(items, spec.take.rows, spec.take.how).rows
    record = EvaluationRecord(
        name=name,
        benchmark=spec.benchmark or spec.data or "",
        role=spec.role,
        items=tuple(item.id for item in items),
        items_hash=hash_contents(items),
        repeats=spec.repeats,
        fewer=fewer_of(spec, len(items)),
        sampling=spec.sampling.model_dump(),
        rendering=renderer.fingerprint,
        checker=checker,
        options=options,
        seed=seed,
        shared=None
        if trained is None
        else shared_questions(trained, bare_items(spec, items, task, root)),
    )
    contexts = tuple(first_prompt(renderer, task, item, dialogue) for item in items)
    return Evaluation(
        name, spec, tuple(items), contexts, score, classify, record, seed, renderer, dialogue
    )


def fewer_of(spec: EvaluateSpec, items: int) -> dict[str, int]:
    """How many of the items some checkpoints are asked. Raises SplitError for more than all."""
    for name, count in spec.fewer.items():
        if count > items:
            problem = f"asks for {count} of {items} items"
            raise SplitError(problem, field=f"fewer.{name}", fix=f"at most {items}")
    return dict(spec.fewer)


def first_prompt(
    renderer: Renderer, task: Task, item: Row, dialogue: Callable[[Row], Dialogue] | None
) -> tuple[int, ...]:
    """What an item asks, or asks first."""
    asked = dialogue(item).asks() if dialogue else None
    if asked is not None:
        return renderer.prompt(asked.messages, asked.tools)
    return renderer.prompt(task.prompt(item), item.tools)


def decode_with(renderer: Renderer, end_tokens: frozenset[int]) -> Callable[[Sequence[int]], str]:
    """Actions to text without end tokens."""
    return lambda tokens: renderer.tokenizer.decode(
        [t for t in tokens if t not in end_tokens], skip_special_tokens=False
    )


def run_evaluation(
    evaluation: Evaluation,
    answers: Answers,
    checkpoint: str,
    folder: Path,
    decode: Callable[[Sequence[int]], str],
    observer: Observer,
    runner: RewardRunner,
    positions: int | None = None,
) -> Path:
    """Answer and score what the record lacks; returns the record's file.

    Sample i of repeat r of an item is the same function of seed, item and r for every checkpoint.
    `positions` is how many tokens the model can read at once: no dialogue goes beyond.
    """
    jobs = evaluation.record.jobs(checkpoint)
    with RecordWriter(folder, evaluation.record, checkpoint) as writer:
        for start in range(0, len(jobs), CHUNK):
            if writer.has_chunk(start // CHUNK):
                continue
            observer.evaluation(evaluation.name, checkpoint, start, len(jobs))
            chunk = jobs[start : start + CHUNK]
            started = time.perf_counter()
            answered = answer(evaluation, answers, chunk, decode, positions)
            lines = judged_lines(evaluation, checkpoint, answered, runner, started)
            writer.write_chunk(start // CHUNK, lines)
        file = writer.finish()
    observer.evaluation(evaluation.name, checkpoint, len(jobs), len(jobs))
    return file


def answer(
    evaluation: Evaluation,
    answers: Answers,
    jobs: Sequence[tuple[int, int]],
    decode: Callable[[Sequence[int]], str],
    positions: int | None,
) -> list[Answered]:
    """The answer, or the episode, of each (item, repeat)."""
    asked = [(evaluation.items[index], repeat) for index, repeat in jobs]
    keys = [SampleKey(evaluation.seed, item.id, repeat) for item, repeat in asked]
    if evaluation.dialogue is None:
        contexts = [evaluation.contexts[index] for index, _ in jobs]
        return single_answers(answers, asked, contexts, keys, evaluation.sampling, decode)
    worlds = [
        RenderedDialogue(evaluation.dialogue(item), evaluation.renderer, decode)
        for item, _ in asked
    ]
    return episodes(answers, asked, worlds, keys, evaluation.sampling, positions)


def judged_lines(
    evaluation: Evaluation,
    checkpoint: str,
    answered: Sequence[Answered],
    runner: RewardRunner,
    started: float,
) -> list[dict[str, object]]:
    """The record's lines of a chunk; what a world failed in is an abstention, not an answer."""
    fresh = [n for n, each in enumerate(answered) if not each.failure]
    rewards = [Reward(None, why=FAILED + each.failure) for each in answered]
    scored = runner.score([(answered[n].item, answered[n].completion) for n in fresh])
    for n, reward in zip(fresh, scored, strict=True):
        rewards[n] = reward
    seconds = (time.perf_counter() - started) / len(answered)
    return [
        record_line(evaluation, checkpoint, each, reward, seconds)
        for each, reward in zip(answered, rewards, strict=True)
    ]


def record_line(
    evaluation: Evaluation, checkpoint: str, each: Answered, reward: Reward, seconds: float
) -> dict[str, object]:
    """One line of an evaluation record."""
    item, completion = each.item, each.completion
    line = {
        "sample_id": f"{evaluation.name}/{checkpoint}/{item.id}#{each.repeat}",
        "item_id": item.id,
        "repeat": each.repeat,
        "output": completion.text,
        "tokens": list(completion.tokens),
        "completion_tokens": len(completion.tokens),
        "prompt_tokens": len(each.turns[-1].context) if each.turns else 0,
        "score": reward.value,
        "parts": json.dumps(dict(reward.parts), sort_keys=True),
        "error": error_type(evaluation.classify, item, completion, reward),
        "why": reward.why,
        "ended": completion.ended,
        "seconds": seconds,
    }
    if evaluation.clustered:
        line[CLUSTER] = conversation_of(item)
    if each.several:
        line |= conversation_columns(completion.messages, each.turns)
    return line
