r"""Rows of preference pairs: a prompt and its two answers, as a group of two stored candidates.

Read are, told apart by their columns:

  TRL            `prompt` or `messages`, `chosen`, `rejected`; without a prompt it is what the two,
                 conversations or texts, begin with alike (TRL 1.16, `extract_prompt`)
  LLaMA-Factory  `instruction`, `input`, `history` with two texts; `conversations` with two messages
                 (hiyouga/LLaMA-Factory ff6d4d12, `data/converter.py`)
  OpenAI         `input` with messages and tools, `preferred_output`, `non_preferred_output`
  ms-swift       `messages` that end with the chosen answer, `rejected_response` or, whole,
                 `rejected_messages`

A text is one message, as it stands: a dialogue of "Human:" and "Assistant:" is not split. The two
answers carry the rewards 1 and 0, or `chosen_score` and `rejected_score`, as ScoreFlow's pairs do.
Every other column is kept. An answer is one message; one that calls or reasons is kept as such
beside its text.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay.data.conversation import (
    check_order,
    dump_message,
    message_role,
    parse_message,
)
from assay.data.formats.hermes_rows import CALLS, ROLES, called, hermes_row
from assay.data.formats.kept import chat_row
from assay.data.formats.messages import REJECTED
from assay.data.formats.plain_rows import alpaca_prompt
from assay.data.loaded import Record
from assay.data.renderings.hermes import assistant_text
from assay.data.row import Message, Row

CANDIDATES = "candidates"
MESSAGE = "message"
"""The key under which a candidate that is more than text holds its message."""
SIDES = {"chosen": 1.0, "rejected": 0.0}
"""The columns of the answers, and their rewards where no score is given."""
SCORES = {side: f"{side}_score" for side in SIDES}
OPENAI = {"chosen": "preferred_output", "rejected": "non_preferred_output"}
ALPACA = ("history", "instruction", "input")
REVERSED = "chosen_score is not above rejected_score; pairs follow the scores"
NO_PROMPT = "missing, and chosen and rejected begin with no conversation that both have"

Said = tuple[Message, ...]


def parse(record: Record) -> Row:
    """A row without an answer of its own whose `extra.candidates` are the two. Raises DataError."""
    openai = record.value.get(OPENAI["chosen"]) is not None
    columns = OPENAI if openai else {side: side for side in SIDES}
    record = _openai(record) if openai else _swift(record)
    sides = {side: _said(record, column, "assistant") for side, column in columns.items()}
    row = _asked(record, sides)
    candidates = []
    for side, said in sides.items():
        without_system = row.messages[1:] if row.messages[0].role == "system" else row.messages
        if said[:-1] not in ((), row.messages, without_system):
            fix = "write one answer to the prompt, as text or one message of the assistant"
            raise record.error(columns[side], "does not begin with the prompt", fix)
        if said[-1].role != "assistant":
            raise record.error(columns[side], "does not end with an answer of the assistant")
        score = record.maybe(SCORES[side], int, float)
        reward = SIDES[side] if score is None else float(score)
        candidates.append(_candidate(said[-1], reward))
    if row.messages[-1].role == "assistant":
        raise record.error("prompt", "ends with the assistant", "end it with a user message")
    if candidates[0]["reward"] <= candidates[1]["reward"]:
        record.remark(REVERSED)
    own = {*columns.values(), *SCORES.values()}
    extra = {key: value for key, value in row.extra.items() if key not in own}
    return replace(row, extra={**extra, CANDIDATES: candidates})


def _candidate(answer: Message, reward: float) -> dict[str, Any]:
    found: dict[str, Any] = {"text": assistant_text(answer), "reward": reward}
    more = answer.tool_calls or answer.reasoning
    return {**found, MESSAGE: dump_message(answer)} if more else found


def candidate_message(candidate: Mapping[str, Any]) -> Message:
    """The answer of the assistant that a stored candidate is. Raises DataError."""
    if MESSAGE not in candidate:
        return Message("assistant", candidate["text"])
    return parse_message(Record(CANDIDATES, 0, {}), candidate[MESSAGE], MESSAGE)


def _openai(record: Record) -> Record:
    """The record with the messages and tools of OpenAI's `input` as columns."""
    given = dict(record.need("input", dict))
    value = {**record.value, **{k: given.pop(k, None) for k in ("messages", "tools")}}
    value.pop("input")
    return record.changed({**value, "input": given} if given else value)


def _swift(record: Record) -> Record:
    """The record with TRL's columns in the place of ms-swift's."""
    whole, text = record.maybe("rejected_messages", list), record.maybe("rejected_response", str)
    if whole is None and text is None:
        return record
    messages = record.need("messages", list)
    other = {k: v for k, v in record.value.items() if k not in ("messages", *REJECTED)}
    if whole is not None:
        return record.changed({**other, "chosen": messages, "rejected": whole})
    pair = {"messages": messages[:-1], "chosen": messages[-1:], "rejected": text}
    return record.changed({**other, **pair})


def _said(record: Record, field: str, role: Any) -> Said:
    """The messages of a column; text is one of `role`."""
    value = record.need(field, str, list, dict)
    if isinstance(value, str):
        return (Message(role, value),)
    if not value:
        raise record.error(field, "holds no messages")
    listed = value if isinstance(value, list) else [value]
    return tuple(_message(record, said, f"{field}[{i}]") for i, said in enumerate(listed))


def _message(record: Record, value: Any, path: str) -> Message:
    """A message in OpenAI's keys or ShareGPT's."""
    if not isinstance(value, dict) or "from" not in value:
        return parse_message(record, value, path)
    role: Any = ROLES[message_role(record, value, path, tuple(ROLES), "from")]
    text = record.typed(f"{path}.value", value.get("value"), str)
    if role != CALLS:
        return Message(role, text)
    thought, calls = called(record, text, path)
    return Message("assistant", thought, calls)


def _asked(record: Record, sides: dict[str, Said]) -> Row:
    """The row of the prompt as it is written, else of what both answers begin with."""
    own = ("prompt", "messages", "tools", *SIDES, *SCORES.values())
    for field in ("prompt", "messages"):
        if record.value.get(field) is not None:
            asked = _said(record, field, "user")
            return chat_row(record, check_order(record, asked, field), *own)
    if record.value.get("conversations") is not None:
        return hermes_row(record)
    if record.value.get("instruction") is not None:
        asked = tuple(alpaca_prompt(record))
        return chat_row(record, check_order(record, asked, "history"), *ALPACA, *own)
    chosen, rejected = sides.values()
    asked = chosen[:-1]
    if not asked and all(isinstance(record.value[side], str) for side in sides):
        start = _start(chosen[0].content, rejected[0].content)
        asked = (Message("user", chosen[0].content[:start]),) if start > 0 else ()
        for side, (said,) in sides.items():
            sides[side] = (Message("assistant", said.content[start:]),)
    elif chosen[:-1] != rejected[:-1]:
        asked = ()
    if not asked:
        raise record.error("prompt", NO_PROMPT, "add a column prompt")
    return chat_row(record, check_order(record, asked, "prompt"), *own)


def _start(chosen: str, rejected: str) -> int:
    """Where the answers begin in two texts with one prompt, as TRL's `extract_prompt` says: a space
    before them is theirs, and the last character of a text that the other begins with."""
    pairs = enumerate(zip(chosen, rejected, strict=False))
    start = next((at for at, (one, other) in pairs if one != other), None)
    if start is None:
        return min(len(chosen), len(rejected)) - 1
    return start - 1 if chosen[:start].endswith(" ") else start
