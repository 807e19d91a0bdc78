"""Reads the multi-turn categories of BFCL v4 from the bfcl-eval wheel as rows.

As upstream's loader (`bfcl_eval.utils.load_dataset_entry`, with the language hint that it adds by
default): functions are the docs of the involved classes in their order; those that a turn of
`missed_function` adds are withheld until then. Playing an entry is `bfcl_dialogue`'s business.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.data.row import Message, Row, ToolCall
from assay.models.wheels import wheel_directory
from assay.tasks.task import lookup
from assay.tasks.tools.call_text import PythonCall, read_call
from assay.tasks.tools.checker import WHEEL

MULTI_TURN = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
HINT = " Note that the provided function is in Python 3 syntax."
DOCS = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "MathAPI": "math_api.json",
    "MessageAPI": "message_api.json",
    "TwitterAPI": "posting_api.json",
    "TicketAPI": "ticket_api.json",
    "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json",
    "VehicleControlAPI": "vehicle_control.json",
}
"""Simulator -> the file of its function docs (upstream: MULTI_TURN_FUNC_DOC_FILE_MAPPING)."""


def multi_turn_entries(category: str) -> tuple[Row, ...]:
    """All entries of `category` in the source's order.

    `messages` and `tools` are those of the first turn, `gold` the calls of each turn as Python
    text, `extra` the "category" and the "entry": upstream's, its `missed_function` as docs, without
    the docs that are in `tools`. The categories write the same 200 scenes, so entries of one number
    share a `conversation`. Raises UnknownNameError for a category that is not in MULTI_TURN.
    """
    lookup(dict.fromkeys(MULTI_TURN), category, "multi-turn category of BFCL")
    data = wheel_directory(WHEEL) / "bfcl_eval" / "data"
    name = f"BFCL_v4_{category}.json"
    questions, answers = _lines(data / name), _lines(data / "possible_answer" / name)
    return tuple(
        _row(category, json.loads(question), json.loads(answer)["ground_truth"], f"{name}:{line}")
        for line, (question, answer) in enumerate(zip(questions, answers, strict=True), start=1)
    )


def is_multi_turn(row: Row) -> bool:
    """Whether the row is an entry to be played with the simulators."""
    return "entry" in row.extra


def first_turn(row: Row) -> Row:
    """The row with its first turn's messages alone, where it holds a whole conversation."""
    return replace(row, messages=messages_of(row.extra["entry"]["question"][0]))


def messages_of(turn: Sequence[Mapping[str, str]]) -> tuple[Message, ...]:
    """The messages of one turn of an entry's `question`."""
    return tuple(Message(said["role"], said["content"]) for said in turn)  # pyright: ignore[reportArgumentType]


def truth_calls(row: Row) -> tuple[tuple[ToolCall, ...], ...]:
    """The calls of `row.gold` by turn; a positional argument has its name from the docs' order.

    Raises RefusedCallError for a call that is no literal call.
    """
    added = row.extra["entry"].get("missed_function", {}).values()
    docs = [*row.tools, *(doc for docs in added for doc in docs)]
    order = {doc["name"]: tuple(doc["parameters"]["properties"]) for doc in docs}
    return tuple(tuple(_named(read_call(call), order) for call in turn) for turn in row.gold)


def _named(call: PythonCall, order: Mapping[str, tuple[str, ...]]) -> ToolCall:
    positional = dict(zip(order[call.name], call.positional, strict=False))
    return ToolCall(call.name, {**positional, **call.named})


def function_docs(class_name: str) -> list[dict[str, Any]]:
    """The docs of a simulator's functions as the wheel has them; the caller's to change."""
    folder = wheel_directory(WHEEL) / "bfcl_eval" / "data" / "multi_turn_func_doc"
    return [json.loads(line) for line in _lines(folder / DOCS[class_name])]


def hinted(docs: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The docs as a prompt shows them."""
    return tuple({**doc, "description": doc["description"] + HINT} for doc in docs)


@functools.cache
def _lines(file: Path) -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8").splitlines())


def _row(category: str, entry: dict[str, Any], truth: Any, origin: str) -> Row:
    docs = {doc["name"]: doc for name in entry["involved_classes"] for doc in function_docs(name)}
    if "missed_function" in entry:
        # Upstream withholds before it hints, so that these docs never get the hint.
        entry["missed_function"] = {
            turn: [docs.pop(name) for name in names]
            for turn, names in entry["missed_function"].items()
        }
    return Row(
        id=entry["id"],
        messages=messages_of(entry["question"][0]),
        tools=hinted(list(docs.values())),
        gold=truth,
        conversation=f"multi_turn_{entry['id'].rpartition('_')[2]}",
        origin=origin,
        extra={"category": category, "entry": entry},
    )
