"""One conversation as several rows, one for each assistant turn, or cut after its last call.

The rows of a conversation name it, so that a split keeps them together. Of a row that is one turn
the last message alone is trained on: the earlier ones are context there and targets of rows of
their own, so that every message is trained on once. Nothing is rendered here.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from assay.data.loaded import LeftOut
from assay.data.row import Message, Row
from assay.data.splits import conversation_of

Expand = Literal["each_turn", "last_call"]

NO_TURN = "a conversation in which the assistant says nothing"
NO_CALL = "a conversation in which nothing is called"


def expanded(row: Row, how: Expand | None) -> Iterator[Row | LeftOut]:
    """The rows that a conversation becomes; the row itself where `how` is None.

    `each_turn`: the rows are named `ID:1`, `ID:2` and so on, by the number of the assistant message
    that is the target; messages with `loss` false are no targets. The gold answer, which judges the
    whole conversation, stays with the row that holds all of it. `last_call`: the conversation up to
    the last assistant message that calls, as the published converter of the format cuts it.
    """
    if how is None:
        yield row
    elif how == "last_call":
        yield last_call(row)
    else:
        found = False
        for turn in _each_turn(row):
            found = True
            yield turn
        if not found:
            yield LeftOut(row.id, NO_TURN, row.origin)


def last_call(row: Row) -> Row | LeftOut:
    """The conversation up to the last assistant message with a call."""
    calling = [index for index, message in enumerate(row.messages) if message.tool_calls]
    if not calling:
        return LeftOut(row.id, NO_CALL, row.origin)
    if calling[-1] == len(row.messages) - 1:
        return row
    return replace(row, messages=row.messages[: calling[-1] + 1], gold=None)


def _each_turn(row: Row) -> Iterator[Row]:
    context: list[Message] = []
    number = 0
    for message in row.messages:
        if message.role == "assistant":
            number += 1
            if message.loss:
                yield _turn(row, (*context, message), number)
            message = replace(message, loss=False)
        context.append(message)
    if row.gold is not None and row.messages[-1].role != "assistant":
        # A prompt with a gold answer and no message for it is a turn too.
        yield _turn(row, tuple(context), number + 1)


def _turn(row: Row, messages: tuple[Message, ...], number: int) -> Row:
    return replace(
        row,
        id=f"{row.id}:{number}",
        messages=messages,
        gold=row.gold if len(messages) == len(row.messages) else None,
        conversation=conversation_of(row),
    )
