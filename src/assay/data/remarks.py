"""What is worth knowing about a row that is kept: counted, said once, and no error."""

from collections.abc import Iterator

from assay.data.row import Row
from assay.data.tools import function_names

TEXT_AND_CALLS = "assistant messages have both text and calls, and some renderings lose the text"
UNDECLARED = "calls of a function that is not among the tools"
NO_TOOLS = "calls where no tools are described"


def remarks(row: Row) -> Iterator[str]:
    """What there is to say about a row, each thing once."""
    if any(message.content and message.tool_calls for message in row.messages):
        yield TEXT_AND_CALLS
    undeclared = undeclared_calls(row)
    if undeclared:
        yield undeclared


def undeclared_calls(row: Row) -> str:
    """What is wrong with the calls of a row that its tools do not describe; "" where nothing is."""
    called = {call.name for message in row.messages for call in message.tool_calls}
    if not called or called <= set(function_names(row.tools)):
        return ""
    return UNDECLARED if row.tools else NO_TOOLS
