"""Reads and writes OpenAI messages, `{"messages": [...], "tools": [...]}`.

Optional: `id`, `conversation`, `gold`; every other column is kept in `extra`. Arguments and tools
may be objects or JSON text; `loss: false` on an assistant message keeps it from being trained on;
user messages may hold images (`data.message_parts`). In tau-bench's trajectories the messages are
called `traj`, and the trials of one task are one conversation, so that a split keeps them together.
Preference data is refused by its columns, because read as conversations it would teach the rejected
answers too.
"""

from dataclasses import replace

from assay.data.conversation import parse_messages, stored_messages
from assay.data.formats.kept import BESIDE, Written, chat_row, shared_columns
from assay.data.loaded import Record
from assay.data.row import Row

COLUMNS = ("messages", "tools")
TRAJECTORY = "traj"


def parse(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    column = TRAJECTORY if {*record.value} & {*COLUMNS, TRAJECTORY} == {TRAJECTORY} else COLUMNS[0]
    messages = parse_messages(record, record.need(column, list), column, images=True)
    row = chat_row(record, messages, *COLUMNS, TRAJECTORY)
    task = record.value.get("task_id")
    if column == TRAJECTORY and task is not None and not row.conversation:
        return replace(row, conversation=f"task {task}")
    return row


def dump(row: Row) -> Written:
    """The record of a row; nothing is lost."""
    value = shared_columns(row, *COLUMNS, *BESIDE) | {"messages": stored_messages(row.messages)}
    return Written(value | {"tools": list(row.tools)} if row.tools else value)


DPO = "pairs of a chosen and a rejected answer, for DPO"
KTO = "answers labelled good or bad, for KTO, which no stage trains"
STEPS = "steps of answers with a label each, for a process reward model, which no stage trains"

KINDS: tuple[tuple[str, tuple[str, ...], type], ...] = (
    (DPO, ("chosen", "rejected"), object),
    (DPO, ("preferred_output", "non_preferred_output"), object),
    (KTO, ("completion", "label"), bool),
    (KTO, ("messages", "label"), bool),
    (KTO, ("conversations", "label"), bool),
    (KTO, ("output", "kto_tag"), bool),
    (STEPS, ("completions", "labels"), list),
)
"""What rows are, the columns that show it (TRL's, ms-swift's, LLaMA-Factory's, OpenAI's), and the
type of the last one."""
REJECTED = ("rejected_response", "rejected_messages")
"""The columns that ms-swift puts beside a conversation whose answer is the chosen one."""

PREFERENCE = "preference"
"""The format that reads pairs of a chosen and a rejected answer."""
FIX = (
    "for sft give the good answer alone, as the last assistant message; for rce give all answers "
    'to a prompt as candidates = [{"text": ..., "reward": ...}]'
)


FIXES = {DPO: f'write format = "{PREFERENCE}" for a dpo stage; {FIX}'}


def refuse_preferences(record: Record) -> Record:
    """The record itself. Raises DataError for one that holds preferences."""
    there = {name for name, value in record.value.items() if value is not None}
    for what, columns, kind in KINDS:
        if there.issuperset(columns) and isinstance(record.value[columns[-1]], kind):
            raise record.error(", ".join(columns), what, FIXES.get(what, FIX))
    for column in REJECTED:
        if column in there:
            raise record.error(column, DPO, FIXES[DPO])
    return record
