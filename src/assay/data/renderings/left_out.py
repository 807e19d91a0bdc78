"""Finds what a rendered text leaves out of its conversation.

Every text, call and tool has to be in it, messages in their order: words that stand in a text by
accident stand elsewhere. Compared are words, not spellings: white space around a text, escapes of
JSON, Python and XML, and the form of arguments (JSON, Python, XML; their order within a call) are
the template's own affair, and a value of None may be left out.
"""

import html
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.data.row import Message
from assay.data.tools import function_of

TAGS = re.compile(r"</?think>")
HEX = "[0-9a-fA-F]"
ESCAPE = re.compile(rf"\\+(?:u({HEX}{{4}})|U({HEX}{{8}})|x({HEX}{{2}})|([nrtbf]))?")
CONTROL = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

Words = tuple[str, ...]
"""One text in its spellings, of which any will do."""


@dataclass(frozen=True, slots=True)
class ConversationText:
    """Something that a conversation says."""

    what: str
    words: tuple[Words, ...]
    """In any order."""

    @property
    def size(self) -> int:
        """Characters."""
        return sum(len(spellings[0]) for spellings in self.words)

    @property
    def reversed(self) -> "ConversationText":
        """The same, read backwards."""
        words = tuple(tuple(word[::-1] for word in spellings) for spellings in self.words)
        return ConversationText(self.what, words)


def left_out(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    text: str,
    forgotten: Collection[int] = (),
) -> str | None:
    """What `text` lacks, in words; None where everything is there.

    Reasoning is not looked for, because many templates forget that of earlier messages; neither are
    the texts of the messages in `forgotten`.
    """
    plain = folded(text)
    tries = ((texts, *found_in_order(plain, texts)) for texts in orders(messages, forgotten))
    first = texts, spans, missing = next(tries)
    if missing is not None:
        texts, spans, missing = next((one for one in tries if one[2] is None), first)
    if missing is not None:
        return missing.what
    wanted = [said_of_tool(tool, index) for index, tool in enumerate(tools)]
    _, lacking = found_in_order(without(plain, spans), wanted)
    if lacking is not None and texts:
        # A short text may have been found inside a tool: look for it from the end.
        back, _ = found_in_order(plain[::-1], [each.reversed for each in reversed(texts)])
        spans = [(len(plain) - end, len(plain) - start) for start, end in reversed(back)]
        _, lacking = found_in_order(without(plain, spans), wanted)
    return lacking and lacking.what


def orders(
    messages: Sequence[Message], forgotten: Collection[int]
) -> Iterator[list[ConversationText]]:
    """What the messages say, in the orders of templates: where an answer calls, its text stands
    before the calls, behind them, or behind their results."""
    places = ("before", "behind", "results") if any(m.tool_calls for m in messages) else ("before",)
    for place in places:
        ordered: list[ConversationText] = []
        late: list[ConversationText] = []
        for index, message in enumerate(messages):
            if message.role != "tool":
                ordered, late = ordered + late, []
            texts, calls = _said(message, index, index in forgotten)
            if place == "results" and calls:
                ordered, late = ordered + calls, texts
            else:
                ordered += [*calls, *texts] if place == "behind" else [*texts, *calls]
        yield ordered + late


def _said(
    message: Message, index: int, forgotten: bool
) -> tuple[list[ConversationText], list[ConversationText]]:
    """The text of a message, without its reasoning, unless it is forgotten; and its calls."""
    place = f"message {index + 1} ({message.role})"
    content = "" if forgotten else folded(split_reasoning(message)[1].strip())
    texts = [ConversationText(f"the text of {place}", ((content,),))] if content else []
    calls = []
    for number, call in enumerate(message.tool_calls, 1):
        several = len(message.tool_calls) > 1
        what = f"call {number} of {place}, {call.name!r}"
        what = what if several else f"the call {call.name!r} of {place}"
        calls.append(ConversationText(what, ((folded(call.name),), *leaves(dict(call.arguments)))))
    return texts, calls


def lacks_reasoning(message: Message, text: str) -> bool:
    """Whether the text of one assistant message lacks a part of its reasoning."""
    thought, _ = split_reasoning(message)
    words = tuple((folded(piece),) for piece in map(str.strip, TAGS.split(thought)) if piece)
    return (
        found_in_order(folded(text), [ConversationText("", (each,)) for each in words])[1]
        is not None
    )


def split_reasoning(message: Message) -> tuple[str, str]:
    """Reasoning, tags included where it stands in the content, and the text behind it."""
    thought, end, answer = message.content.partition("</think>")
    if message.role != "assistant" or message.reasoning or not end:
        return message.reasoning, message.content
    return thought, answer


def said_of_tool(tool: Mapping[str, Any], index: int) -> ConversationText:
    """The name and description of a tool, and the names of its arguments."""
    function = function_of(tool)
    words = [str(function.get("name") or ""), str(function.get("description") or "").strip()]
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    words += [str(name) for name in properties] if isinstance(properties, Mapping) else []
    known = tuple((folded(word),) for word in words if word)
    return ConversationText(f"tool {index + 1} ({function.get('name')})", known)


def leaves(value: Any) -> Iterator[Words]:
    """Every name and value of a JSON value in its spellings; nothing for None."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if item is not None:
                yield from leaves(str(key))
                yield from leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, str):
        if value.strip():
            yield (folded(value.strip()),)
    elif isinstance(value, bool):
        yield (str(value).lower(), str(value))
    elif value is not None:
        yield (json.dumps(value), str(value))


def folded(text: str) -> str:
    """The text without escapes: two spellings of one text fold to the same."""
    if "&" in text:
        text = html.unescape(html.unescape(text))
    if "\\" not in text:
        return text
    plain = ESCAPE.sub(_meant, text)
    # JSON escapes what is beyond 16 bits as two halves.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _meant(escape: re.Match[str]) -> str:
    four, eight, two, letter = escape.groups()
    if letter:
        return CONTROL[letter]
    code = four or eight or two
    return chr(int(code, 16)) if code and int(code, 16) < 0x110000 else ""


def found_in_order(
    text: str, texts: Sequence[ConversationText]
) -> tuple[list[tuple[int, int]], ConversationText | None]:
    """Where each stands in a text, one behind the other, and what is missing."""
    spans: list[tuple[int, int]] = []
    for index, each in enumerate(texts):
        there = place_of(text, each, spans[-1][1] if spans else 0)
        if there is None:
            return spans, culprit(text, texts, index)
        spans.append(there)
    return spans, None


def place_of(text: str, piece: ConversationText, start: int) -> tuple[int, int] | None:
    """The first place at or behind `start` that holds all the words, each as often as it is
    said."""
    ends: dict[Words, int] = {}
    first, last = len(text), start
    for spellings in piece.words:
        begin = ends.get(spellings, start)
        places = [(text.find(word, begin), len(word)) for word in spellings]
        places = [(place + size, place) for place, size in places if place >= 0]
        if not places:
            return None
        end, place = min(places)
        ends[spellings] = end
        first, last = min(first, place), max(last, end)
    return min(first, last), last


def culprit(text: str, texts: Sequence[ConversationText], stuck: int) -> ConversationText:
    """What is missing where not everything is found: `texts[stuck]`, unless something smaller that
    came before it was found in its stead."""
    for each in sorted(texts[:stuck], key=lambda one: one.size):
        if each.size > texts[stuck].size:
            break
        rest = [one for one in texts[: stuck + 1] if one is not each]
        end = 0
        for one in rest:
            there = place_of(text, one, end)
            if there is None:
                break
            end = there[1]
        else:
            return each
    return texts[stuck]


def without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text between the spans."""
    ends = [0, *(end for _, end in spans)]
    starts = [*(start for start, _ in spans), len(text)]
    return "\0".join(text[end:start] for end, start in zip(ends, starts, strict=True))
