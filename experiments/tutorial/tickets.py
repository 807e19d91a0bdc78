"""The skill of sorting support tickets."""

import json
from typing import Any, ClassVar

from assay.data.episode import Completion, Reward
from assay.data.formats.formats import read_rows
from assay.data.row import Message, Row
from assay.tasks.task import BaseTask, Benchmark, BenchmarkOptions

INSTRUCTION = 'Sort the ticket. Answer with JSON only: {"team": "...", "urgent": true or false}'


def parsed(text: str) -> dict[str, Any]:
    """The JSON object of a text, else an empty one."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def sorting(row: Row, completion: Completion) -> Reward:
    """Half for the team, half for the urgency. Parts: `json`, `team`, `urgent`, each 0 or 1."""
    gold, answer = parsed(row.messages[-1].content), parsed(completion.text)
    if not gold:
        return Reward(None, why="the row's own answer is not JSON")
    parts = {key: float(answer.get(key) == gold[key]) for key in ("team", "urgent")}
    return Reward(sum(parts.values()) / 2, {"json": float(bool(answer)), **parts})


def exact(row: Row, completion: Completion) -> Reward:
    """1 where team and urgency are right, else 0."""
    found = sorting(row, completion)
    right = None if found.value is None else float(found.value == 1.0)
    return Reward(right, found.parts, found.why)


def wrong_because(row: Row, completion: Completion) -> str:
    """No JSON, or the wrong keys; "" for a right answer."""
    parts = sorting(row, completion).parts
    if not parts["json"]:
        return "not_json"
    return "_and_".join(key for key in ("team", "urgent") if not parts[key])


def tickets_file(options: BenchmarkOptions) -> Benchmark:
    """The rows of the file of the option `path`."""
    chosen = options.over({"path": "data/test.jsonl"})
    return Benchmark(
        name="tickets/file",
        items=tuple(read_rows(options.root / chosen["path"], "messages")),
        score=exact,
        checker="tickets 1",
        classify=wrong_because,
        options=chosen,
    )


class TicketsTask(BaseTask):
    """The rows' own answers, under one instruction."""

    name = "tickets"
    rewards: ClassVar = {"sorting": sorting, "exact": exact}
    benchmarks: ClassVar = {"tickets/file": tickets_file}

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The instruction, then the ticket."""
        return (Message("system", INSTRUCTION), *row.prompt)
