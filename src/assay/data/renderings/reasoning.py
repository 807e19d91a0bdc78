"""Conversations without the reasoning of their assistant messages, counted as a remark.

A thinking model that is trained on them is taught to answer at once; what else a row holds stays.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from assay.data.loaded import Item, Remark
from assay.data.renderings.hermes_text import split_thinking
from assay.data.row import Message, Row

LEFT_OUT = "the reasoning of its messages was left out"


def without_reasoning(items: Iterable[Item]) -> Iterator[Item]:
    """The items with rows whose assistant messages begin with what they say or call."""
    for item in items:
        if not isinstance(item, Row):
            yield item
            continue
        messages = tuple(map(_plain, item.messages))
        yield replace(item, messages=messages)
        if messages != item.messages:
            yield Remark(item.id, LEFT_OUT)


def _plain(message: Message) -> Message:
    if message.role != "assistant":
        return message
    return replace(message, reasoning="", content=split_thinking(message.content)[1])
