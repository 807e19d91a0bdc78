"""The text of a tool task's prompts and answers: messages as they are, calls as Hermes blocks.

Tools stay in `row.tools`; the rendering writes them, and how to call them. Text added here would
make training prompts differ from those of a benchmark.
"""

from collections.abc import Iterable

from assay.data.renderings import hermes
from assay.data.row import Message, Row, ToolCall


def prompt(row: Row) -> tuple[Message, ...]:
    """The row's messages before its target, as they are."""
    return row.prompt


def call_text(calls: Iterable[ToolCall]) -> str:
    """The calls as Hermes blocks, one below the other: what the strict parser reads back."""
    return "\n".join(map(hermes.call_text, calls))
