"""Asks the frozen model what it answers after a selection, and how likely the right answers are.

The prompts of a batch are asked together, so that what they begin with is computed once. What was
asked before is remembered for all processes (`once`). Rewards are made of outcomes elsewhere.
"""

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.data.files import cache_root
from assay.data.hashing import canonical_json, sha256_text
from assay.data.row import Message, Row, TextPart
from assay.errors import RunFailure
from assay.labs.demos.demonstrations import ANSWERS, conversation, set_of
from assay.labs.demos.demonstrations import FROZEN as FROZEN
from assay.labs.demos.outcomes import METRICS, SelectionOutcome, normalised, outcome_of
from assay.rl.policy import SampleKey, Sampling, Stop
from assay.tasks.helper_model import HelperFailed, HelperModel
from assay.tasks.task import lookup

WAIT_SECONDS = 60.0
"""For another process that is writing."""
TABLE = "CREATE TABLE IF NOT EXISTS outcomes (request TEXT PRIMARY KEY, outcome TEXT NOT NULL)"

Compute = Callable[[Sequence[int]], Sequence[Any]]
"""What the model says to the requests at these places, as JSON values; None is not remembered."""


def once(frozen: HelperModel, requests: Sequence[Any], compute: Compute) -> list[Any]:
    """The outcome of each request, a JSON value: remembered, or computed and then remembered.

    One SQLite file below the cache for each model, whose name says all that its answers depend on.
    Only models that say so are remembered (`identity`): an endpoint may stand for other weights
    tomorrow. Equal requests are computed once; `frozen.usage` counts those that were not computed.
    Raises RunFailure, and what `compute` raises.
    """
    keys = [sha256_text(canonical_json(request)) for request in requests]
    file = outcome_file(frozen) if frozen.identity else None
    known = remembered(file, keys) if file is not None else {}
    first: dict[str, int] = {}
    for place, key in enumerate(keys):
        if key not in known:
            first.setdefault(key, place)
    frozen.usage.remember(len(keys) - len(first))
    found = dict(zip(first, compute([*first.values()]) if first else [], strict=True))
    if file is not None:
        remember(file, {key: value for key, value in found.items() if value is not None})
    every = {**known, **found}
    return [every[key] for key in keys]


def outcome_file(frozen: HelperModel) -> Path:
    """Where the outcomes of a model lie."""
    return cache_root() / "outcomes" / f"{sha256_text(frozen.identity)[:24]}.sqlite"


def remembered(file: Path, keys: Sequence[str]) -> dict[str, Any]:
    """The outcomes that a file has, by their request's key. Raises RunFailure."""
    if not file.exists():
        return {}
    found: dict[str, Any] = {}
    with _opened(file) as store:
        for key in keys:
            row = store.execute("SELECT outcome FROM outcomes WHERE request = ?", (key,)).fetchone()
            if row is not None:
                found[key] = json.loads(row[0])
    return found


def remember(file: Path, outcomes: Mapping[str, Any]) -> None:
    """Add outcomes; of two processes that found the same, the first one's stays. Raises
    RunFailure."""
    if not outcomes:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with _opened(file) as store, store:
        rows = [(key, json.dumps(value)) for key, value in outcomes.items()]
        store.executemany("INSERT OR IGNORE INTO outcomes VALUES (?, ?)", rows)


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(file, timeout=WAIT_SECONDS)) as store:
            store.execute(TABLE)
            yield store
    except sqlite3.Error as error:
        problem = f"{file}: remembered outcomes cannot be used: {error} (delete the file)"
        raise RunFailure(problem) from error


def shown(messages: Sequence[Message]) -> list[Any]:
    """A conversation as a JSON value; an image is its sha256."""
    return [
        [
            message.role,
            message.content
            if not message.parts
            else [
                part.text if isinstance(part, TextPart) else {"image": part.sha256}
                for part in message.parts
            ],
        ]
        for message in messages
    ]


GREEDY = Sampling(0.0, max_tokens=8, stop=Stop(("\n",)))
"""How the frozen model answers; the first line is the answer."""

Selection = tuple[Row, tuple[int, ...]]
"""A query and its picks."""


def ask(frozen: HelperModel, selections: Sequence[Selection]) -> list[SelectionOutcome]:
    """What the frozen model answers, greedily or, where its table has `beams`, as that says, in
    order. Raises HelperFailed."""
    how = frozen.sampling if frozen.sampling.beams > 1 else GREEDY
    asked = [conversation(row, picks) for row, picks in selections]
    keys = [SampleKey(0, row.id, 0) for row, _ in selections]

    def answered(places: Sequence[int]) -> list[str]:
        said = frozen.answer([asked[n] for n in places], how, [keys[n] for n in places])
        if failures := [answer.failure for answer in said if answer.failure]:
            raise HelperFailed(f"{frozen.name} gave no answer: {failures[0]}")
        return [answer.text for answer in said]

    settings = ["answer", how.max_tokens, *(how.stop.strings if how.stop else ())]
    settings += ["beams", how.beams] if how.beams > 1 else []
    texts = once(frozen, [[*settings, shown(messages)] for messages in asked], answered)
    return [
        outcome_of(text, row.extra[ANSWERS], lookup(METRICS, set_of(row).metric, "metric"))
        for (row, _), text in zip(selections, texts, strict=True)
    ]


def probabilities(
    frozen: HelperModel, selections: Sequence[Selection], answers: Sequence[str]
) -> list[float]:
    """P of each answer after its selection: exp of the mean log-probability of its tokens, the end
    of the turn included (Lever-LM); 0 to 1. Raises InputError and HelperFailed as scoring does."""
    asked = [conversation(row, picks) for row, picks in selections]

    def scored(places: Sequence[int]) -> list[float]:
        given = [asked[n] for n in places], [answers[n] for n in places]
        return [sum(logps) / len(logps) for logps in frozen.score(*given, ended=True)]

    pairs = zip(asked, answers, strict=True)
    requests = [["mean logp, ended", shown(messages), answer] for messages, answer in pairs]
    return [math.exp(mean) for mean in once(frozen, requests, scored)]


def target_probabilities(
    frozen: HelperModel, row: Row, states: Sequence[tuple[int, ...]]
) -> list[float]:
    """P of the row's target after each of several selections: the difference of two of them, with
    and without a demonstration, is its InfoScore."""
    selections = [(row, picks) for picks in states]
    return probabilities(frozen, selections, [target_of(row)] * len(states))


def target_of(row: Row) -> str:
    """The answer that most annotators gave, the first of equally frequent ones."""
    return Counter(row.extra[ANSWERS]).most_common(1)[0][0]


def gold_probabilities(frozen: HelperModel, selections: Sequence[Selection]) -> list[float]:
    """The probability of the right answers after each selection: the sum over distinct answers of
    P(answer) times its weight, at most 1. Raises as `probabilities` does."""
    weights = [answer_weights(row) for row, _ in selections]
    asked = [(n, answer) for n, each in enumerate(weights) for answer in each]
    found = probabilities(frozen, [selections[n] for n, _ in asked], [a for _, a in asked])
    sums = [0.0] * len(selections)
    for (n, answer), value in zip(asked, found, strict=True):
        sums[n] += weights[n][answer] * value
    return [min(each, 1.0) for each in sums]


def answer_weights(row: Row) -> dict[str, float]:
    """The distinct right answers with what each counts: min(annotators / 3, 1) where annotators
    answered (Lever-Plus), 1 where answers are simply right."""
    if set_of(row).metric == "exact":
        return dict.fromkeys(row.extra[ANSWERS], 1.0)
    counts = Counter(map(normalised, row.extra[ANSWERS]))
    return {answer: min(count / 3, 1.0) for answer, count in counts.items() if answer}


def judge(frozen: HelperModel, selections: Sequence[Selection]) -> list[SelectionOutcome]:
    """What the frozen model answers, with the probability of the right answers.

    Raises HelperFailed, and InputError for a model that gives no log-probabilities.
    """
    outcomes = ask(frozen, selections)
    likely = gold_probabilities(frozen, selections)
    pairs = zip(outcomes, likely, strict=True)
    return [replace(outcome, gold_probability=value) for outcome, value in pairs]
