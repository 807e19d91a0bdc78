"""Function descriptions: their two spellings, their names, and the check that they are a schema.

A description is plain (`{"name", "description", "parameters"}`) or wrapped as OpenAI does
(`{"type": "function", "function": {...}}`). Types may be spelled as BFCL does ("dict", "float"),
and `parameters` may be the properties themselves without `type`, as ToolBench writes them.
Values are not checked against schemas here.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from assay.data.json_files import load_json
from assay.data.loaded import Record

OBJECT_TYPES = ("object", "dict")


def function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The description itself, without OpenAI's wrapping."""
    return tool.get("function", tool)


def openai_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The description in OpenAI's wrapping, which chat templates expect."""
    return {"type": "function", "function": dict(function_of(tool))}


def function_names(tools: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of the functions in their order."""
    return tuple(function_of(tool)["name"] for tool in tools)


def parse_tools(record: Record, value: Any, path: str = "tools") -> tuple[dict[str, Any], ...]:
    """Tools from a list or the JSON text of one. Raises DataError for anything that is no schema.

    None and the empty string mean that there are no tools.
    """
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        try:
            value = load_json(value)
        except ValueError as error:
            fix = "a list of functions, or the JSON text of one"
            raise record.error(path, f"is not JSON: {error}", fix) from error
    record.typed(path, value, list)
    for index, tool in enumerate(value):
        _check_tool(record, f"{path}[{index}]", tool)
    _check_names_differ(record, path, value)
    return tuple(value)


def dump_tools(tools: Iterable[Mapping[str, Any]]) -> str:
    """The JSON text of a list of tools."""
    return json.dumps(list(tools), ensure_ascii=False, allow_nan=False)


def _check_tool(record: Record, path: str, tool: Any) -> None:
    record.typed(path, tool, dict)
    if "function" in tool:
        path += ".function"
        tool = record.typed(path, tool["function"], dict)
    name = record.typed(f"{path}.name", tool.get("name"), str)
    if not name:
        raise record.error(f"{path}.name", "is empty")
    record.typed(f"{path}.description", tool.get("description", ""), str)
    parameters = tool.get("parameters")
    if parameters is not None:
        path += ".parameters"
        _check_parameters(record, path, record.typed(path, parameters, dict))


def _check_names_differ(record: Record, path: str, tools: list[Any]) -> None:
    names = function_names(tools)
    for index, name in enumerate(names):
        if name in names[:index]:
            first = names.index(name)
            raise record.error(
                f"{path}[{index}].name", f"{name!r} is also the name of {path}[{first}]"
            )


def _check_parameters(record: Record, path: str, parameters: dict[str, Any]) -> None:
    kind = parameters.get("type")
    if parameters and kind is None and "properties" not in parameters:
        _check_properties(record, path, parameters)
    elif kind is not None and kind not in OBJECT_TYPES:
        raise record.error(f"{path}.type", f"is {kind!r}", "the parameters are of type 'object'")
    else:
        _check_schema(record, path, parameters)


def _check_properties(record: Record, path: str, properties: Any) -> None:
    for name, schema in record.typed(path, properties, dict).items():
        _check_schema(record, f"{path}.{name}", record.typed(f"{path}.{name}", schema, dict))


def _check_schema(record: Record, path: str, schema: dict[str, Any]) -> None:
    """The keywords that a tool's schema is made of have the types JSON Schema gives them."""
    if "type" in schema:
        kinds = record.typed(f"{path}.type", schema["type"], str, list)
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            record.typed(f"{path}.type", kind, str)
    if "properties" in schema:
        _check_properties(record, f"{path}.properties", schema["properties"])
    if schema.get("required") is not None:
        for name in record.typed(f"{path}.required", schema["required"], list):
            record.typed(f"{path}.required", name, str)
    if "enum" in schema:
        record.typed(f"{path}.enum", schema["enum"], list)
    if "items" in schema:
        _check_schema(record, f"{path}.items", record.typed(f"{path}.items", schema["items"], dict))
