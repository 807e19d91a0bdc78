"""Rows of preference data, which no stage trains: recognised by their columns and refused by name.

Read as conversations they would teach the rejected answer as well as the chosen one. Nothing is
converted here.
"""

from collections.abc import Callable, Mapping
from typing import Any

from assay.data.raw_record import Record

DPO = "pairs of a chosen and a rejected answer, for DPO, which no stage trains"
KTO = "answers labelled good or bad, for KTO, which no stage trains"
STEPS = "steps of answers with a label each, for a process reward model, which no stage trains"

KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], bool]]] = {
    DPO: (("chosen", "rejected"), lambda value: True),
    KTO: (("completion", "label"), lambda value: type(value["label"]) is bool),
    STEPS: (("completions", "labels"), lambda value: isinstance(value["labels"], list)),
}
"""What rows are -> the columns that show it, and what else has to hold."""
REJECTED = ("rejected_response", "rejected_messages")
"""The columns that ms-swift puts beside a conversation whose answer is the chosen one."""

FIX = (
    "for sft give the good answer alone, as the last assistant message; for rce give all answers "
    'to a prompt as candidates = [{"text": ..., "reward": ...}]'
)


def refuse_preferences(record: Record) -> Record:
    """The record itself. Raises DataError for one that holds preferences."""
    there = {name for name, value in record.value.items() if value is not None}
    for what, (columns, holds) in KINDS.items():
        if there.issuperset(columns) and holds(record.value):
            raise record.error(", ".join(columns), what, FIX)
    for column in REJECTED:
        if column in there:
            raise record.error(column, DPO, FIX)
    return record
