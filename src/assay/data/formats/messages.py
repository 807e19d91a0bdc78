"""OpenAI messages: `{"messages": [...], "tools": [...]}`, a JSON object a line or a parquet row.

Optional: `id`, `conversation`, `gold`; every other column is kept in `extra`. Arguments and tools
may be objects or JSON text; `loss: false` on an assistant message keeps it from being trained on;
user messages may hold images (`data.message_parts`). tau-bench's trajectories, whose messages are
called `traj`, are read as well: the trials of one task are one conversation, so that a split keeps
them together. Writing keeps a row whole.
"""

from dataclasses import replace

from assay.data.conversation import parse_messages, stored_messages
from assay.data.formats.kept import Written, build_row, shared_columns
from assay.data.raw_record import Record
from assay.data.row import Row
from assay.data.tools import parse_tools

COLUMNS = ("messages", "tools")
TRAJECTORY = "traj"


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    column = TRAJECTORY if {*record.value} & {*COLUMNS, TRAJECTORY} == {TRAJECTORY} else COLUMNS[0]
    messages = parse_messages(record, record.need(column, list), column, images=True)
    tools = parse_tools(record, record.value.get("tools"))
    row = build_row(record, messages, tools, *COLUMNS, TRAJECTORY)
    task = record.value.get("task_id")
    if column == TRAJECTORY and task is not None and not row.conversation:
        return replace(row, conversation=f"task {task}")
    return row


def dump(row: Row) -> Written:
    """The record of a row; nothing is lost."""
    value = shared_columns(row, *COLUMNS) | {"messages": stored_messages(row.messages)}
    return Written(value | {"tools": list(row.tools)} if row.tools else value)
