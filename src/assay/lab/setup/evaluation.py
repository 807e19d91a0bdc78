"""An evaluation made ready: its items, what each asks first, how answers are scored.

Two evaluations with other items, sampling or checkers have different records. Asking a model and
recording is `lab.evaluate.run_evaluation`'s part.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from assay.data.episode import Completion
from assay.data.hashing import hash_contents
from assay.data.renderings.rendering import Renderer
from assay.data.row import Row
from assay.data.splits import SplitError, conversation_of, take
from assay.experiment.tables import EvaluateSpec
from assay.lab.setup.prepare import DataSet, find_part, make_renderer
from assay.lab.setup.stage_methods import reward_of
from assay.lab.setup.trained_items import Trained, bare_items, shared_questions
from assay.rl.policy import Sampling
from assay.runs.records import EvaluationRecord
from assay.tasks.rendered_dialogue import dialogue_of
from assay.tasks.running import WeightedReward
from assay.tasks.task import (
    BenchmarkOptions,
    Dialogue,
    RewardFunction,
    Task,
    benchmark,
    no_error,
)


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
