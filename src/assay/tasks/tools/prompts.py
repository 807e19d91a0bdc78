"""The words of the task around a question and its answer: there are none but Hermes calls.

Tools stay in `row.tools`, and the rendering writes them together with how to call them: words of
the task's own would make its prompts other ones than a benchmark's.
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
