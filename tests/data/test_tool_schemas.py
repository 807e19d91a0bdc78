"""Tools that are no schema are refused with the place; the spellings in use are accepted."""

import json
from typing import Any

import pytest

from assay.data.loaded import DataError, Record
from assay.data.tools import (
    NULL_KEYWORDS,
    REQUIRED,
    function_names,
    openai_tool,
    parse_tools,
)

RECORD = Record("a.jsonl", 3, {})
CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}


def tool(**fields: Any) -> dict[str, Any]:
    return {"name": "f", "description": "d", "parameters": CITY} | fields


@pytest.mark.parametrize(
    "value",
    [
        [tool()],
        [openai_tool(tool())],
        [tool(parameters={"type": "dict", "properties": {"n": {"type": "float"}}, "required": []})],
        [tool(parameters={"city": {"type": "str, optional", "default": ""}})],
        [tool(parameters={})],
        [{"name": "f"}],
        [tool(parameters={"type": "object"})],
        [tool(parameters={"type": "object", "properties": {"type": {"description": "d"}}})],
        [tool(parameters={"type": "object", "properties": {"a": {"type": ["string", "null"]}}})],
        [tool(parameters={"type": "object", "properties": {"a": True, "b": {"items": False}}})],
        [tool(parameters={"type": "object", "properties": {"a": {"items": [{"type": "string"}]}}})],
        [tool(parameters={"type": "object", "properties": {"a": {"default": None}}})],
        [tool(parameters={"type": {"type": "str"}, "required": {"type": "bool"}})],
        [
            tool(
                parameters={"properties": {"type": "str", "description": "d"}, "n": {"type": "int"}}
            )
        ],
        [tool(parameters={"anyOf": [{"type": "object"}]})],
    ],
)
def test_the_spellings_in_use_are_accepted_as_list_and_as_text(value: list[dict]) -> None:
    assert parse_tools(RECORD, value) == tuple(value)
    assert parse_tools(RECORD, json.dumps(value)) == tuple(value)
    assert function_names(value) == ("f",)


def an_object(*required: str, **properties: Any) -> dict[str, Any]:
    made = {"type": "object", "properties": properties}
    return made | ({"required": [*required]} if required else {})


TEXT = {"type": "string"}
MUST, MAY = TEXT | {"required": True}, TEXT | {"required": False}


@pytest.mark.parametrize(
    ("given", "wanted", "remark"),
    [
        (an_object(a=MUST, b=MAY, c=TEXT), an_object("a", a=TEXT, b=TEXT, c=TEXT), REQUIRED),
        (an_object("c", a=MUST, c=MUST), an_object("c", "a", a=TEXT, c=TEXT), REQUIRED),
        ({"a": MUST, "b": MAY}, an_object("a", a=TEXT, b=TEXT), REQUIRED),
        (
            an_object(o=an_object(a=MUST) | {"required": True}),
            an_object("o", o=an_object("a", a=TEXT)),
            REQUIRED,
        ),
        (an_object(a=TEXT | {"enum": None}, b=None), an_object(a=TEXT), NULL_KEYWORDS),
        (CITY | {"required": None}, CITY, NULL_KEYWORDS),
        (an_object(a={"items": {"enum": None}}), an_object(a={"items": {}}), NULL_KEYWORDS),
        ({"a": TEXT, "type": None}, {"a": TEXT}, NULL_KEYWORDS),
    ],
)
def test_what_has_one_meaning_is_mended_and_said(given: dict, wanted: dict, remark: str) -> None:
    record = Record("a.jsonl", 3, {})
    assert parse_tools(record, [tool(parameters=given)]) == (tool(parameters=wanted),)
    assert record.told == {remark}
    assert parse_tools(RECORD, [openai_tool(tool(parameters=json.dumps(given)))]) == (
        openai_tool(tool(parameters=wanted)),
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[{", "tools: is not JSON"),
        ({"name": "f"}, "tools: is an object, not an array"),
        ([1], r"tools\[0\]: is an integer, not an object"),
        ([tool(), tool(name=3)], r"tools\[1\].name: is an integer, not a string"),
        ([tool(name="")], r"tools\[0\].name: is empty"),
        ([tool(), tool()], r"tools\[1\].name: 'f' is also the name of tools\[0\]"),
        ([tool(description=1)], r"tools\[0\].description: is an integer"),
        ([{"function": "f"}], r"tools\[0\].function: is a string, not an object"),
        ([tool(parameters=[])], r"tools\[0\].parameters: is an array, not an object"),
        ([tool(parameters={"type": "array"})], r"parameters.type: is 'array' \(the parameters"),
        ([tool(parameters=CITY | {"properties": []})], r"parameters.properties: is an array"),
        ([tool(parameters={"city": "string"})], r"parameters.city: is a string, not an object"),
        ([tool(parameters=CITY | {"required": "city"})], r"required: is a string, not an array"),
        ([tool(parameters=CITY | {"required": [1]})], r"required: is an integer, not a string"),
        (
            [tool(parameters={"type": "object", "properties": {"a": {"type": 1}}})],
            r"properties.a.type: is an integer, not a string or an array",
        ),
        (
            [tool(parameters={"type": "object", "properties": {"a": {"enum": "x"}}})],
            r"properties.a.enum: is a string",
        ),
        (
            [tool(parameters={"type": "object", "properties": {"a": {"items": {"items": 1}}}})],
            r"properties.a.items.items: is an integer, not an object",
        ),
    ],
)
def test_what_is_no_schema_is_named(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"^a.jsonl:3: .*{message}"):
        parse_tools(RECORD, value)
