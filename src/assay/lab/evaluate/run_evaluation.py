"""Evaluations: a policy answers fixed items, every answer is recorded, chunk by chunk.

A record that exists is not made again. What the scores mean is for `judge` to say.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from assay.data.episode import Reward
from assay.data.splits import conversation_of
from assay.lab.evaluate.answering import Answered, Answers, episodes, single_answers
from assay.lab.monitor.observer import Observer
from assay.lab.setup.evaluation import Evaluation
from assay.rl.policy import SampleKey
from assay.runs.records import CLUSTER, RecordWriter, conversation_columns
from assay.tasks.rendered_dialogue import RenderedDialogue
from assay.tasks.running import RewardRunner
from assay.tasks.task import (
    error_type,
)
from assay.train.sampled_groups import FAILED

CHUNK = 256
"""Answers recorded together: what an interrupted evaluation loses at most."""


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
