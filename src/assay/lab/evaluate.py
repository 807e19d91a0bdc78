"""Evaluations: a policy answers fixed items, every answer is recorded, chunk by chunk.

A record that exists is not made again; other items, sampling or checkers make another record.
What the scores mean is for `judge` to say.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from assay.data.episode import Completion, Context, Reward, Turn
from assay.data.hashing import hash_contents
from assay.data.rendering import Renderer
from assay.data.row import Row
from assay.data.splits import take
from assay.lab.observer import Observer
from assay.lab.prepare import DataSet, find_part, make_renderer
from assay.lab.records import EvaluationRecord, RecordWriter
from assay.lab.spec.evaluate import EvaluateSpec
from assay.lab.stage_methods import reward_of
from assay.lab.trained_items import Trained, bare_items, shared_questions
from assay.rl.policy import SampleKey
from assay.rollout.sampling import Sampling
from assay.tasks.running import RewardRunner, WeightedReward
from assay.tasks.task import BenchmarkOptions, RewardFunction, Task, benchmark, no_error

CHUNK = 256
"""Answers recorded together: what an interrupted evaluation loses at most."""


class Answers(Protocol):
    """What can answer prompts: a policy, or a sampler that is never trained."""

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """One turn per context."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """One `[evaluate.NAME]` table made ready: items, prompts, scoring."""

    name: str
    spec: EvaluateSpec
    items: tuple[Row, ...]
    contexts: tuple[tuple[int, ...], ...]
    score: RewardFunction | WeightedReward
    classify: Callable[[Row, Completion], str]
    record: EvaluationRecord
    seed: int

    @property
    def sampling(self) -> Sampling:
        """The sampling settings of the table."""
        table = self.spec.sampling
        return Sampling(table.temperature, table.max_tokens, table.top_p, table.top_k)


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
    if spec.benchmark is not None:
        made = benchmark(task, spec.benchmark, BenchmarkOptions(spec.options, root))
        items, score, classify = made.items, made.score, made.classify
        checker, options = made.checker, dict(made.options)
    else:
        items = find_part(sets, spec.data or "")
        score = reward_of(task, spec.reward or {})
        checker = f"reward {json.dumps(spec.reward)}"
    if spec.take is not None:
        items = take(items, spec.take.rows, spec.take.how).rows
    record = EvaluationRecord(
        name=name,
        benchmark=spec.benchmark or spec.data or "",
        role=spec.role,
        items=tuple(item.id for item in items),
        items_hash=hash_contents(items),
        repeats=spec.repeats,
        sampling=spec.sampling.model_dump(),
        rendering=renderer.fingerprint,
        checker=checker,
        options=options,
        seed=seed,
        shared=None
        if trained is None
        else shared_questions(trained, bare_items(spec, items, task, root)),
    )
    contexts = tuple(renderer.prompt(task.prompt(item), item.tools) for item in items)
    return Evaluation(name, spec, tuple(items), contexts, score, classify, record, seed)


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
) -> Path:
    """Answer and score what the record lacks; returns the record's file.

    Sample i of repeat r of an item is the same function of seed, item and r for every checkpoint.
    """
    jobs = [
        (index, repeat)
        for index in range(len(evaluation.items))
        for repeat in range(evaluation.spec.repeats)
    ]
    with RecordWriter(folder, evaluation.record, checkpoint) as writer:
        for start in range(0, len(jobs), CHUNK):
            if writer.has_chunk(start // CHUNK):
                continue
            observer.evaluation(evaluation.name, checkpoint, start, len(jobs))
            lines = answer_chunk(
                evaluation, answers, checkpoint, jobs[start : start + CHUNK], decode, runner
            )
            writer.write_chunk(start // CHUNK, lines)
        file = writer.finish()
    observer.evaluation(evaluation.name, checkpoint, len(jobs), len(jobs))
    return file


def answer_chunk(
    evaluation: Evaluation,
    answers: Answers,
    checkpoint: str,
    jobs: Sequence[tuple[int, int]],
    decode: Callable[[Sequence[int]], str],
    runner: RewardRunner,
) -> list[dict[str, object]]:
    """The record's lines for some (item, repeat) pairs."""
    started = time.perf_counter()
    turns = answers.sample(
        [evaluation.contexts[index] for index, _ in jobs],
        [SampleKey(evaluation.seed, evaluation.items[index].id, repeat) for index, repeat in jobs],
        evaluation.sampling,
    )
    pairs = [
        (evaluation.items[index], Completion(decode(turn.actions), turn.actions, turn.ended))
        for (index, _), turn in zip(jobs, turns, strict=True)
    ]
    rewards = runner.score(pairs)
    seconds = (time.perf_counter() - started) / len(jobs)
    return [
        record_line(evaluation, checkpoint, repeat, turn, pair, reward, seconds)
        for (_, repeat), turn, pair, reward in zip(jobs, turns, pairs, rewards, strict=True)
    ]


def record_line(
    evaluation: Evaluation,
    checkpoint: str,
    repeat: int,
    turn: Turn,
    pair: tuple[Row, Completion],
    reward: Reward,
    seconds: float,
) -> dict[str, object]:
    """One line of an evaluation record."""
    item, completion = pair
    return {
        "sample_id": f"{evaluation.name}/{checkpoint}/{item.id}#{repeat}",
        "item_id": item.id,
        "repeat": repeat,
        "output": completion.text,
        "tokens": list(turn.actions),
        "completion_tokens": len(turn.actions),
        "prompt_tokens": len(turn.context),
        "score": reward.value,
        "parts": json.dumps(dict(reward.parts), sort_keys=True),
        "error": evaluation.classify(item, completion) if reward.value is not None else "",
        "why": reward.why,
        "ended": turn.ended,
        "seconds": seconds,
    }
