"""The words of the task around a question and its answer: system text and Hermes calls.

Tools are not written here: they stay in `row.tools`, and the rendering writes them. On a model
whose template knows no tools, the Hermes rendering puts them below this system text.
"""

from collections.abc import Iterable

from assay.data.renderings import hermes
from assay.data.row import Message, Row, ToolCall


def prompt(row: Row) -> tuple[Message, ...]:
    """The row's messages before its target, under one system message.

    It is Hermes' instruction and, after an empty line, what system text the row has of its own.
    """
    own = [message.content for message in row.prompt if message.role == "system"]
    rest = [message for message in row.prompt if message.role != "system"]
    return Message("system", "\n\n".join([hermes.INSTRUCTION, *own])), *rest


def call_text(calls: Iterable[ToolCall]) -> str:
    """The calls as Hermes blocks, one below the other: what the strict parser reads back."""
    return "\n".join(map(hermes.call_text, calls))
