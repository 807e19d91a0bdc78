"""OpenAI messages: `{"messages": [...], "tools": [...]}`, a JSON object a line or a parquet row.

Optional: `id`, `conversation`, `gold`; every other column is kept in `extra`. Arguments and tools
may be objects or JSON text. Writing keeps a row whole.
"""

from assay.data.conversation import dump_messages, parse_messages
from assay.data.record import Record
from assay.data.row import Row
from assay.data.tools import parse_tools
from assay.data.written import Written, build_row, shared_columns

COLUMNS = ("messages", "tools")


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    messages = parse_messages(record, record.need("messages", list), "messages")
    return build_row(record, messages, parse_tools(record, record.value.get("tools")), *COLUMNS)


def dump(row: Row) -> Written:
    """The record of a row; nothing is lost."""
    value = shared_columns(row, *COLUMNS) | {"messages": dump_messages(row.messages)}
    return Written(value | {"tools": list(row.tools)} if row.tools else value)
