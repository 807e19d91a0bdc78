"""Arguments of calls written in Java and JavaScript, whose values are text in that language.

Upstream's checker converts the text back; which answers are right it decides alone.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from assay.data.row import Message, Row, ToolCall
from assay.tasks.tools.checker import LANGUAGES

Doc = Mapping[str, Any]
"""A parameter as BFCL's function doc describes it, in the words of the language."""


def in_language(row: Row, call: ToolCall) -> ToolCall:
    """A call of a row of LANGUAGES whose arguments are values, with arguments that are text."""
    (doc,) = row.extra["functions"]
    write, known = WRITERS[LANGUAGES[row.extra["category"]]], doc["parameters"]["properties"]
    texts = {
        name: value if isinstance(value, str) else write(value, known[name])
        for name, value in call.arguments.items()
    }
    return replace(call, arguments=texts)


def as_source(row: Row) -> Row:
    """The row with its target as source text, where it has one that upstream's parser reads: it
    drops the body of a HashMap."""
    if not row.messages[-1].tool_calls:
        return row
    (call,) = row.messages[-1].tool_calls
    if any("{{" in text for text in call.arguments.values()):
        return replace(row, messages=row.prompt, extra={**row.extra, "no_target": "a HashMap"})
    arguments = ", ".join(f"{name}={_quoted(text)}" for name, text in call.arguments.items())
    target = Message("assistant", f"[{call.name}({arguments})]")
    return replace(row, messages=(*row.messages[:-1], target))


def _quoted(text: str) -> str:
    """As upstream's decoders read it back: they take the quotes off."""
    return text if '"' in text or text[:1] in ("[", "{") else f'"{text}"'


def java(value: Any, doc: Doc) -> str:
    """A value in Java."""
    inner = doc.get("items", {}).get("type", "Object")
    match value:
        case list() if doc["type"] == "ArrayList":
            return f"new ArrayList<{inner}>(Arrays.asList({_listed(value, inner)}))"
        case list():
            return f"new {inner}[]{{{_listed(value, inner)}}}"
        case dict():
            puts = [f"put({json.dumps(key)}, {json.dumps(item)});" for key, item in value.items()]
            return f"new HashMap<String, Object>() {{{{ {' '.join(puts)} }}}}"
        case int() if doc["type"] == "long":
            return f"{value}L"
    return json.dumps(value)


def _listed(values: list[Any], type_: str) -> str:
    return ", ".join(java(value, {"type": type_}) for value in values)


def javascript(value: Any, doc: Doc) -> str:
    """A value in JavaScript, of which JSON is a part."""
    return json.dumps(value)


WRITERS: Mapping[str, Callable[[Any, Doc], str]] = {"java": java, "javascript": javascript}
