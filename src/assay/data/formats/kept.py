"""A row kept whole as JSON text, beside columns of other programs that cannot say all of it.

The columns are what those programs read; Assay reads the text, as long as the columns still say the
same.
"""

import json
from typing import Any

from assay.data.conversation import parse_messages, stored_messages
from assay.data.hashing import canonical_json
from assay.data.jsonl import load_json
from assay.data.raw_record import Record
from assay.data.renderings.hermes import assistant_text
from assay.data.row import Row
from assay.data.tools import parse_tools


def kept_text(row: Row) -> str:
    """Everything of a row, as JSON text."""
    kept = {
        "id": row.id,
        "messages": stored_messages(row.messages),
        "tools": list(row.tools),
        "gold": row.gold,
        "conversation": row.conversation,
        "extra": dict(row.extra),
    }
    return json.dumps(kept, ensure_ascii=False, allow_nan=False)


def kept_row(record: Record, field: str, text: Any) -> Row:
    """The row that `kept_text` wrote into the column `field`. Raises DataError."""
    try:
        value = record.typed(field, load_json(record.typed(field, text, str)), dict)
    except ValueError as error:
        raise record.error(field, f"is not JSON: {error}", "remove it") from error
    kept = Record(record.file, record.line, value)
    return Row(
        id=kept.need("id", str),
        messages=parse_messages(kept, kept.need("messages", list), f"{field}.messages"),
        tools=parse_tools(kept, kept.need("tools", list), f"{field}.tools"),
        gold=value.get("gold"),
        conversation=kept.need("conversation", str),
        origin=record.origin,
        extra=kept.need("extra", dict),
    )


def gold_text(row: Row) -> str:
    """The gold as text; where there is none, the text of the last assistant message."""
    if row.gold is None:
        return "".join(assistant_text(message) for message in row.messages[len(row.prompt) :])
    return row.gold if isinstance(row.gold, str) else canonical_json(row.gold)
