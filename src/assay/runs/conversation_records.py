"""Conversations in records: what was said, and the turns in which it was sampled, token by token.

A turn's context is kept as what it adds: most begin with the context before and its actions.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from assay.data.conversation import dump_messages, parse_message
from assay.data.episode import Turn, common
from assay.data.raw_record import Record
from assay.data.row import Message

COLUMNS = [
    pa.field("messages", pa.string()),
    pa.field(
        "turns",
        pa.list_(
            pa.struct(
                [
                    ("reused", pa.int32()),
                    ("context", pa.list_(pa.int32())),
                    ("actions", pa.int32()),
                    ("ended", pa.string()),
                ]
            )
        ),
    ),
]
"""`messages`: JSON in OpenAI's format, all that followed the prompt. `turns`: for each turn, how
many tokens of the turn before (context and actions) its context begins with, the rest of its
context, and how many of the line's tokens are its own."""
NAMES = tuple(field.name for field in COLUMNS)


def conversation_columns(messages: Sequence[Message], turns: Sequence[Turn]) -> dict[str, Any]:
    """The two columns of one episode."""
    before: tuple[int, ...] = ()
    lines = []
    for turn in turns:
        reused = common(before, turn.context)
        lines.append(
            {
                "reused": reused,
                "context": list(turn.context[reused:]),
                "actions": len(turn.actions),
                "ended": turn.ended,
            }
        )
        before = turn.context + turn.actions
    values = dump_messages(tuple(messages))
    return {"messages": json.dumps(values, ensure_ascii=False), "turns": lines}


def stored_turns(line: Mapping[str, Any]) -> tuple[Turn, ...]:
    """The turns of a line that has the two columns, with log-probs where it has those."""
    tokens, logps = tuple(line["tokens"]), tuple(line.get("behaviour_logps") or ())
    before: tuple[int, ...] = ()
    turns, done = [], 0
    for kept in line["turns"]:
        context = before[: kept["reused"]] + tuple(kept["context"])
        end = done + kept["actions"]
        actions = tuple(tokens[done:end])
        trained = (True,) * len(actions)
        turns.append(Turn(context, actions, trained, logps[done:end] or None, kept["ended"]))
        before, done = context + actions, end
    return tuple(turns)


def stored_messages(line: Mapping[str, Any], origin: str = "") -> tuple[Message, ...]:
    """What was said, of a line that may have the two columns; nothing of one that has not."""
    if not line.get("messages"):
        return ()
    # A conversation as it was had may break rules that rows keep, so messages are read one by one.
    values, record = json.loads(line["messages"]), Record(origin, 1, {})
    return tuple(parse_message(record, value, f"messages[{i}]") for i, value in enumerate(values))


def transcript(messages: str) -> str:
    """A conversation as a record has it, for people: the role, then what was said, indented.

    The indent keeps text that looks like a role from passing for one. Calls are JSON.
    """
    said = []
    for message in json.loads(messages):
        calls = [json.dumps(call, ensure_ascii=False) for call in message.get("tool_calls", ())]
        lines = "\n".join([message["content"], *calls]).split("\n")
        said.append("\n".join([f"{message['role']}:", *(f"  {line}" for line in lines)]))
    return "\n".join(said)
