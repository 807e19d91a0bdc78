"""Reads the categories of BFCL v4 that ask one question from the bfcl-eval wheel as rows.

The target of a row is the first possible answer of each argument; it counts only if BFCL's own
checker accepts it, so every row that has a target is proven answerable. The relevance categories
have no possible answers.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from assay.data.row import Message, Row, ToolCall
from assay.data.wheels import wheel_directory
from assay.errors import look_up
from assay.labs.tools.multi_turn import MULTI_TURN, hinted, messages_of, multi_turn_entries
from assay.labs.tools.rewards import RELEVANCE, WHEEL, ast_check
from assay.tasks.task import Loaded

CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
"""The categories whose calls are compared with possible answers."""


def entries(category: str) -> tuple[Row, ...]:
    """All entries of `category` in the source's order.

    Raises InputError for a category that is not in ENTRIES.
    """
    return look_up(ENTRIES, category, "BFCL category")(category)


def ast_entries(category: str) -> tuple[Row, ...]:
    """The entries of a category of CATEGORIES; `gold` is the list of possible answers.

    `tools` are the function docs as BFCL's loader shows them, with a hint at the language.
    `messages` end with the target assistant message where the checker accepts one, else
    `extra["no_target"]` holds its error type.
    Live entries that share a function doc share a `conversation`.
    """
    data = wheel_directory(WHEEL) / "bfcl_eval" / "data" / "possible_answer"
    answers = (data / f"BFCL_v4_{category}.json").read_text(encoding="utf-8").splitlines()
    rows = relevance_entries(category)
    return tuple(
        _with_target(row, json.loads(answer)["ground_truth"])
        for row, answer in zip(rows, answers, strict=True)
    )


def relevance_entries(category: str) -> tuple[Row, ...]:
    """The entries of a category of RELEVANCE: questions and functions, nothing to compare with."""
    file = wheel_directory(WHEEL) / "bfcl_eval" / "data" / f"BFCL_v4_{category}.json"
    questions = file.read_text(encoding="utf-8").splitlines()
    return tuple(
        _row(category, json.loads(question), f"{file.name}:{line}")
        for line, question in enumerate(questions, start=1)
    )


ENTRIES: Mapping[str, Callable[[str], tuple[Row, ...]]] = {
    **dict.fromkeys(CATEGORIES, ast_entries),
    **dict.fromkeys(RELEVANCE, relevance_entries),
    **dict.fromkeys(MULTI_TURN, multi_turn_entries),
}
"""Every category that can be read, and its reader."""


def read_bfcl(category: str) -> Loaded:
    """The entries that have a target, for training; the others are dropped by reason.

    Entries that never have one, of several turns or of a relevance category, are all kept: rewards
    can judge what a model does with them.
    """
    rows = entries(category)
    dropped = defaultdict(list)
    for row in rows:
        if "no_target" in row.extra:
            dropped[f"no possible answer passes the checker: {row.extra['no_target']}"] += [row.id]
    kept = tuple(row for row in rows if "no_target" not in row.extra)
    return Loaded(kept, {reason: tuple(ids) for reason, ids in dropped.items()})


def _row(category: str, entry: Any, origin: str) -> Row:
    return Row(
        id=entry["id"],
        messages=messages_of(entry["question"][0]),
        tools=hinted(entry["function"]),
        # The first two numbers of a live id are the entry and its function doc.
        conversation=category + "-" + entry["id"].split("-")[1] if "live" in category else "",
        origin=origin,
        extra={"category": category},
    )


def _with_target(row: Row, answer: Any) -> Row:
    """The row with its possible answers, and with its target if the checker accepts it."""
    row = replace(row, gold=answer)
    calls = target_calls(row)
    result = ast_check(row, calls)
    if result.valid:
        return replace(row, messages=(*row.messages, Message("assistant", "", tool_calls=calls)))
    return replace(row, extra={**row.extra, "no_target": result.error_type})


def target_calls(row: Row) -> tuple[ToolCall, ...]:
    """The first possible answer of each argument of each call in `row.gold`.

    An argument is left out where its first answer is "" (BFCL's mark of an optional one) and the
    function does not require it, where it has no possible answer at all, and where the function
    does not declare it and may go without.
    """
    docs = {doc["name"]: doc["parameters"] for doc in row.tools}
    return tuple(
        ToolCall(name, _arguments(docs[name], answers))
        for call in row.gold
        for name, answers in call.items()
    )


def _arguments(parameters: Mapping[str, Any], answers: Mapping[str, list[Any]]) -> dict[str, Any]:
    chosen = {}
    for name, options in answers.items():
        if name not in parameters["properties"] and "" in options:
            continue
        if name in parameters["required"]:
            # A required argument has to be given, with the first answer that is not "".
            options = sorted(options, key=lambda option: option == "")
        elif options[:1] == [""]:
            continue
        if options:
            chosen[name] = _value(options[0])
    return chosen


def _value(answer: Any) -> Any:
    """A possible answer as a value: a dict, alone or in a list, has options for each key again."""
    if isinstance(answer, dict):
        return {key: options[0] for key, options in answer.items() if options[0] != ""}
    return [_value(item) for item in answer] if isinstance(answer, list) else answer
