"""Scripted policies of the multi-turn tests, and one worker that answers many requests at once."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from assay.data.episode import Completion
from assay.data.row import Row, ToolCall
from assay.labs.tools import single_turn
from assay.labs.tools.multi_turn import functions_of, judging, truth_messages, wheel_folders
from assay.labs.tools.parsing import call_text
from assay.sandbox.limits import Limits
from assay.sandbox.pool import Worker
from assay.tasks.task import Dialogue

BATCHES = "tests.labs.tools.worker_batches"
SECONDS = 120.0


@functools.cache
def entries(category: str) -> tuple[Row, ...]:
    """A category of BFCL, read once for all tests; its rows are nobody's to change."""
    return single_turn.entries(category)


Turns = list[list[list[str]]]
"""Calls as Python by turn and step."""


def truth(row: Row) -> Turns:
    """The ground truth, one call a step."""
    return [[[call] for call in turn] for turn in row.gold]


def nothing(row: Row) -> Turns:
    """No call in any turn."""
    return [[] for _ in row.gold]


def doubled(row: Row) -> Turns:
    """Every call twice."""
    return [[[call] for call in turn for _ in range(2)] for turn in row.gold]


def without_last(row: Row) -> Turns:
    """Everything but the last call of the last turn that has any."""
    turns = truth(row)
    last = max(index for index, turn in enumerate(turns) if turn)
    return [*turns[:last], turns[last][:-1], *turns[last + 1 :]]


def in_python(row: Row) -> Iterator[str]:
    """The ground truth as a policy writes it in Python: one call a message, then a closing word."""
    for turn in row.gold:
        yield from (f"[{call}]" for call in turn)
        yield "Done."


def in_hermes(row: Row, change: Callable[[ToolCall], Sequence[ToolCall]] = lambda c: [c]) -> Any:
    """The same as Hermes blocks, each call replaced by what `change` makes of it."""
    for turn in truth_calls(row):
        yield from (call_text(calls) for call in turn if (calls := change(call)))
        yield "Done."


def play(dialogue: Dialogue, answers: Iterable[str]) -> Completion:
    """The dialogue with a policy that says `answers` one after the other, then nothing."""
    written, coming = [], iter(answers)
    while dialogue.asks() is not None:
        written.append(next(coming, ""))
        dialogue.hears(written[-1], "stop")
    return Completion("\n".join(written), messages=dialogue.messages)


def truth_calls(row: Row) -> list[tuple[ToolCall, ...]]:
    """The calls of `row.gold` by turn, all arguments by name."""
    calls = iter(m.tool_calls for m in truth_messages(row) if m.tool_calls)
    return [next(calls) if turn else () for turn in row.gold]


def judged(rows: Sequence[Row], policy: Callable[[Row], Turns]) -> list[dict[str, Any]]:
    """The worker's verdict on each row, all in one process, in the rows' order."""
    return in_batch("judge_all", requests=[judging(row, policy(row)) for row in rows])


def in_batch(function: str, **arguments: Any) -> Any:
    """One call of a function of `worker_batches`."""
    outcome = _worker(function).call(arguments, SECONDS)
    assert outcome.failure is None, outcome.why
    return outcome.value


@functools.cache
def _worker(function: str) -> Worker:
    # One start for all tests; it ends with them.
    limits = Limits(output_bytes=64 << 20, cpu_seconds=int(SECONDS))
    return Worker(f"{BATCHES}:{function}", limits, folders=wheel_folders())


def world(row: Row) -> dict[str, Any]:
    """What a request says of the row's simulators."""
    return {"entry": row.extra["entry"], "functions": list(functions_of(row))}
