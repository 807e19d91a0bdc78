"""Rows of preference pairs, TRL's `{prompt, chosen, rejected}`: groups of two stored candidates.

The prompt is text or messages, under `prompt` or `messages`; or it is what `chosen` and `rejected`,
whole conversations, begin with alike (TRL f2cd5771, `docs/source/dataset_formats.md`). The two
answers carry the rewards 1 and 0, or `chosen_score` and `rejected_score`, as ScoreFlow's pairs do.
Every other column is kept. An answer is one message of text.
"""

from dataclasses import replace
from typing import Any

from assay.data.conversation import check_order, parse_message
from assay.data.formats.kept import chat_row
from assay.data.loaded import Record
from assay.data.row import Message, Row

CANDIDATES = "candidates"
SIDES = {"chosen": 1.0, "rejected": 0.0}
"""The columns of the answers, and their rewards where no score is given."""
SCORES = {side: f"{side}_score" for side in SIDES}
COLUMNS = ("prompt", "messages", "tools", *SIDES, *SCORES.values())


def parse(record: Record) -> Row:
    """A row without an answer of its own whose `extra.candidates` are the two. Raises DataError."""
    sides = {side: _said(record, side, "assistant") for side in SIDES}
    asked = _asked(record, sides)
    candidates = []
    for side, said in sides.items():
        if said[:-1] not in ((), asked):
            fix = "write one answer to the prompt, as text or one message of the assistant"
            raise record.error(side, "does not begin with the prompt", fix)
        answer, score = said[-1], record.maybe(SCORES[side], int, float)
        if answer.role != "assistant" or answer.tool_calls or answer.reasoning:
            fix = "a candidate is one text of the assistant"
            raise record.error(side, "does not end with a plain answer", fix)
        reward = SIDES[side] if score is None else float(score)
        candidates.append({"text": answer.content, "reward": reward})
    ordered = check_order(record, asked, "prompt")
    if ordered[-1].role == "assistant":
        raise record.error("prompt", "ends with the assistant", "end it with a user message")
    row = chat_row(record, ordered, *COLUMNS)
    return replace(row, extra={**row.extra, CANDIDATES: candidates})


def _said(record: Record, field: str, role: Any) -> tuple[Message, ...]:
    """The messages of a column; text is one of `role`."""
    value = record.need(field, str, list)
    if isinstance(value, str):
        return (Message(role, value),)
    if not value:
        raise record.error(field, "holds no messages")
    return tuple(parse_message(record, said, f"{field}[{i}]") for i, said in enumerate(value))


def _asked(record: Record, sides: dict[str, tuple[Message, ...]]) -> tuple[Message, ...]:
    """The prompt as it is written, else what both conversations begin with."""
    for field in ("prompt", "messages"):
        if record.value.get(field) is not None:
            return _said(record, field, "user")
    chosen, rejected = (said[:-1] for said in sides.values())
    if not chosen or chosen != rejected:
        problem = "missing, and chosen and rejected begin with no conversation that both have"
        raise record.error("prompt", problem, "add a column prompt")
    return chosen
