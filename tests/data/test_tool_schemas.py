"""Tools that are no schema are refused with the place; the spellings in use are accepted."""

import json
from typing import Any

import pytest

from assay.data.loaded import DataError, Record
from assay.data.toml_text import LARGEST, load_toml, unusable_values
from assay.data.tools import NULL_KEYWORDS, REQUIRED, function_names, openai_tool, parse_tools
from assay.errors import InputError

RECORD = Record("a.jsonl", 3, {})
CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}


def tool(**fields: Any) -> dict[str, Any]:
    return {"name": "f", "description": "d", "parameters": CITY} | fields


@pytest.mark.parametrize(
    "value",
    [
        [tool()],
        [openai_tool(tool())],
        [tool(parameters={"city": {"type": "str, optional", "default": ""}})],
        [{"name": "f"}],
        [tool(parameters={"type": "object", "properties": {"type": {"description": "d"}}})],
        [tool(parameters={"type": "object", "properties": {"a": True, "b": {"items": False}}})],
        [tool(parameters={"type": "object", "properties": {"a": {"items": [{"type": "string"}]}}})],
        [tool(parameters={"type": {"type": "str"}, "required": {"type": "bool"}})],
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
        (an_object(a=TEXT | {"enum": None}, b=None), an_object(a=TEXT), NULL_KEYWORDS),
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
        ([1], r"tools\[0\]: is an integer, not an object"),
        ([tool(), tool(name=3)], r"tools\[1\].name: is an integer, not a string"),
        ([tool(name="")], r"tools\[0\].name: is empty"),
        ([tool(), tool()], r"tools\[1\].name: 'f' is also the name of tools\[0\]"),
        ([tool(parameters={"type": "array"})], r"parameters.type: is 'array' \(the parameters"),
        ([tool(parameters=CITY | {"properties": []})], r"parameters.properties: is an array"),
        (
            [tool(parameters={"type": "object", "properties": {"a": {"items": {"items": 1}}}})],
            r"properties.a.items.items: is an integer, not an object",
        ),
    ],
)
def test_what_is_no_schema_is_named(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"^a.jsonl:3: .*{message}"):
        parse_tools(RECORD, value)


@pytest.mark.parametrize(
    "text", ["a = ", f"a = {'9' * 5000}", "a = 1\n[", "[" * 100_000, "a = " + "[" * 100_000]
)
def test_what_is_no_toml_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        load_toml(text)


@pytest.mark.parametrize(
    "value", [LARGEST + 1, -LARGEST - 2, 10**4000, "\x1b[31m", "\x07", "\x9b", "\x7f", "\udc80"]
)
def test_values_beyond_64_bits_and_control_characters_are_found_where_they_are(
    value: object,
) -> None:
    ((path, problem, _),) = unusable_values({"a": {"b": [1, value]}})
    assert path == ("a", "b", 1)
    assert problem.isprintable()
    assert len(problem) < 60


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("b = 1\n" + ".".join(["a"] * 3000) + " = 1", 2),
        ("# don't\n" + ".".join(["'a.b'"] * 200_000) + " = 1", 2),
        ("[" + ".".join(["a"] * 40) + "]\n" + ".".join(["b"] * 40) + " = 1", 2),
        ('b = """\n[\n"""\na = ' + "{a = " * 200 + "1" + "}" * 200, 4),
        ("a = [\n" + "[\n" * 99_999, 65),
    ],
)
def test_keys_and_brackets_too_deep_in_one_another_are_refused_at_once_with_their_line(
    text: str, line: int
) -> None:
    with pytest.raises(InputError, match="nested too deeply") as caught:
        load_toml(text)
    assert caught.value.line == line


def test_what_only_looks_deep_is_read() -> None:
    many = ", ".join(["{a.b = 1.5}"] * 100)
    text = f"a = [{many}]  # {'[.' * 99}\nb = '{'a.' * 99}{'[' * 99}'\n" + "[c]\n" * 1
    values = load_toml(text + "".join(f"[x{n}.y]\n" for n in range(99)))
    assert len(values["a"]) == 100 and values["b"].count("[") == 99
    assert load_toml(".".join(["a"] * 64) + " = 1")
