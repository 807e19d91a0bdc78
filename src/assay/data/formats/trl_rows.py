"""TRL's columns: `prompt` and, for SFT, `completion`; text or lists of messages.

Text becomes a user message and an assistant message, so it is rendered as a chat, where TRL would
train on the bare text. As in TRL, nothing of a prompt is trained on. SFT reads prompt, completion
and `tools`; GRPO reads the prompt, gives the chat template no tools of a row, and hands every other
column, `gold` and `id` among them, to its reward functions. As the text of a rendering
(`plain_text`) one file serves both trainers. `datasets` gives a column one type, so tools, gold and
nested fields are text there, and the row itself is JSON text in `assay`, from which the reader
restores it whole (TRL 1.16).
"""

from typing import Any

from assay.data.conversation import check_order, parse_message, stored_messages, untrained
from assay.data.formats.kept import (
    KEPT,
    Written,
    build_row,
    gold_text,
    kept_row,
    kept_text,
    shared_columns,
)
from assay.data.formats.plain_text import BEYOND, PlainText, plain_messages
from assay.data.hashing import canonical_json
from assay.data.loaded import Record
from assay.data.row import Message, Row
from assay.data.tools import dump_tools, openai_tool, parse_tools

COLUMNS = ("prompt", "completion", "tools", KEPT)
TEXT = ("prompt", "completion", "tools")
"""The columns that the text of a rendering fills."""
UNLIKE = "answers to which the model's template adds what the rendering does not, in SFTTrainer"
EARLIER = "earlier answers, which SFTTrainer does not train (--expand each_turn makes rows of them)"
NO_TOOLS = (
    "tools in the prompts of GRPOTrainer, which takes none of a row (--for writes them as text)"
)
MISREAD = ("messages", "label", "labels", "chosen", "rejected")
"""Columns by which TRL, or our own reader, would take the row for another kind."""


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    if record.value.get(KEPT) is not None:
        return _restored(record)

    def side(field: str, value: Any, role: Any) -> tuple[Message, ...]:
        if isinstance(value, str):
            return (Message(role, value),)
        return tuple(parse_message(record, m, f"{field}[{i}]") for i, m in enumerate(value))

    messages = side("prompt", record.need("prompt", str, list), "user")
    completion = record.maybe("completion", str, list)
    if completion is not None:
        messages = untrained(messages) + side("completion", completion, "assistant")
    ordered = check_order(record, messages, "prompt + completion")
    return build_row(record, ordered, parse_tools(record, record.value.get("tools")), *COLUMNS)


def _restored(record: Record) -> Row:
    """The row that a column keeps. Raises DataError if the others say something else by now."""
    written = {name: record.value.get(name) for name in TEXT}
    row, as_text = kept_row(record, KEPT, record.value[KEPT], written)
    for field, value in dump(row).value.items():
        known = field == KEPT or (as_text and field in TEXT)
        if not known and record.value.get(field) != value:
            raise record.error(field, f"differs from what {KEPT} keeps", f"remove {KEPT}")
    return row


def dump(row: Row, text: PlainText | None = None) -> Written:
    """The conversational record of a row: its last assistant message is the completion.

    Columns that TRL looks up by name are there in every row, null where there is nothing to say.
    Raises DataError where a field has the name of such a column, and RenderingError.
    """
    value = shared_columns(row, *COLUMNS, *MISREAD)
    # A column has one type in every row: lists and tables are JSON text.
    value = {n: canonical_json(f) if isinstance(f, dict | list) else f for n, f in value.items()}
    target = row.messages[len(row.prompt) :]
    value["gold"] = gold_text(row) if target or row.gold is not None else None
    earlier = sum(m.role == "assistant" and m.loss for m in row.prompt)
    losses = [EARLIER] * earlier if target else []
    if text is not None:
        value["tools"], value["prompt"] = None, plain_messages(text.prompt(row))
        if target:
            answer, equal = text.completion(row)
            value["completion"] = plain_messages((answer,))
            losses += ([BEYOND] if text.tail else []) + ([] if equal else [UNLIKE])
        shown = {name: value.get(name) for name in TEXT}
        return Written({**value, KEPT: kept_text(row, shown)}, tuple(losses))
    value["tools"] = dump_tools(map(openai_tool, row.tools)) if row.tools else None
    value["prompt"] = stored_messages(row.prompt)
    if target:
        value["completion"] = stored_messages(target)
    losses += [NO_TOOLS] if row.tools else []
    return Written({**value, KEPT: kept_text(row)}, tuple(losses))
