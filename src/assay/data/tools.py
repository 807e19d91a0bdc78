"""Function descriptions: their two spellings, their names, and the check that they are a schema.

A description is plain (`{"name", "description", "parameters"}`) or wrapped as OpenAI does
(`{"type": "function", "function": {...}}`). Types may be spelled as BFCL does ("dict", "float"),
and `parameters` may be the properties themselves without `type`, as ToolBench and xLAM write them.
What is no schema but has one meaning is mended with a remark: nulls in the place of absent
keywords, `required: true` inside a property, and MCP's name of `parameters`.
Values are not checked against schemas here.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from assay.data.conversation import loaded_value
from assay.data.loaded import Record

OBJECT_TYPES = ("object", "dict")
NULL_KEYWORDS = "nulls in schemas of tools, as Arrow fills absent keys, were left out"
REQUIRED = "properties of tools with a required of their own are in the list of their object now"
INPUT_SCHEMA = "the input_schema of tools, in MCP's words, is their parameters"
VALUES = ("default", "const", "example")
"""Keywords whose value may be null."""
COMPOSED = {"$ref", "anyOf", "oneOf", "allOf"}
"""Keywords of a schema without a type."""
OF_SCHEMAS = ("properties", "$defs", "definitions")
"""Keywords that hold schemas by name."""


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

    None and the empty string mean that there are no tools; a tool may be JSON text itself.
    """
    if value is None or value == "":
        return ()
    tools: list[dict[str, Any]] = []
    places: dict[str, str] = {}
    for index, each in enumerate(record.typed(path, loaded_value(record, value, path), list)):
        place = where = f"{path}[{index}]"
        tools.append(_mended_tool(record, where, loaded_value(record, each, where)))
        where += ".function" if "function" in tools[-1] else ""
        function = function_of(tools[-1])
        name = record.typed(f"{where}.name", function.get("name"), str)
        if not name:
            raise record.error(f"{where}.name", "is empty")
        record.typed(f"{where}.description", function.get("description", ""), str)
        if (parameters := function.get("parameters")) is not None:
            where += ".parameters"
            kind = record.typed(where, parameters, dict).get("type")
            if _are_properties(parameters):
                for key, schema in parameters.items():
                    _check_schema(record, f"{where}.{key}", schema)
            elif kind is not None and kind not in OBJECT_TYPES:
                fix = "the parameters are of type 'object'"
                raise record.error(f"{where}.type", f"is {kind!r}", fix)
            else:
                _check_schema(record, where, parameters)
        if (first := places.setdefault(name, place)) != place:
            raise record.error(f"{place}.name", f"{name!r} is also the name of {first}")
    return tuple(tools)


def dump_tools(tools: Iterable[Mapping[str, Any]]) -> str:
    """The JSON text of a list of tools."""
    return json.dumps(list(tools), ensure_ascii=False, allow_nan=False)


def _mended_tool(record: Record, path: str, tool: Any) -> dict[str, Any]:
    if "function" in record.typed(path, tool, dict):
        function = record.typed(f"{path}.function", tool["function"], dict)
        return {**tool, "function": _mended_tool(record, path, function)}
    tool = _without_nulls(record, tool)
    if "parameters" not in tool and (schema_keys := {*tool} & {"input_schema", "inputSchema"}):
        record.remark(INPUT_SCHEMA)
        tool = {"parameters" if key in schema_keys else key: value for key, value in tool.items()}
    where = f"{path}.parameters"
    parameters = loaded_value(record, tool.get("parameters"), where)
    if parameters is None:
        return tool
    record.typed(where, parameters, dict)
    properties = {"type": "object", "properties": parameters}
    if not _are_properties(parameters):
        return {**tool, "parameters": _mended(record, parameters)}
    mended = _mended(record, properties)
    # Properties alone have no list of those that are required.
    return {**tool, "parameters": mended if "required" in mended else mended["properties"]}


def _mended(record: Record, schema: Any) -> Any:
    """A schema without nulls in the place of absent keywords, and with the names of its required
    properties in a list.
    """
    if isinstance(schema, list):
        return [_mended(record, each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = _without_nulls(record, schema)
    if isinstance(made.get("properties"), dict):
        made |= _with_required(record, made)
    for key, value in made.items():
        if key in OF_SCHEMAS and isinstance(value, dict):
            named = _without_nulls(record, value)
            made[key] = {name: _mended(record, each) for name, each in named.items()}
        elif key in ("items", "additionalProperties", "anyOf", "oneOf", "allOf"):
            made[key] = _mended(record, value)
    return made


def _with_required(record: Record, schema: dict[str, Any]) -> dict[str, Any]:
    """`properties` and `required` of an object some of whose properties say it themselves."""
    properties = schema["properties"]
    marks = {
        name: each["required"]
        for name, each in properties.items()
        if isinstance(each, dict) and type(each.get("required")) is bool
    }
    if not marks:
        return {}
    record.remark(REQUIRED)
    listed = schema["required"] if isinstance(schema.get("required"), list) else []
    plain = {
        name: {k: v for k, v in each.items() if k != "required"} if name in marks else each
        for name, each in properties.items()
    }
    more = [name for name, needed in marks.items() if needed and name not in listed]
    return {"properties": plain, "required": [*listed, *more]}


def _without_nulls(record: Record, value: dict[str, Any]) -> dict[str, Any]:
    kept = {key: each for key, each in value.items() if each is not None or key in VALUES}
    if len(kept) < len(value):
        record.remark(NULL_KEYWORDS)
    return kept


def _are_properties(parameters: dict[str, Any]) -> bool:
    """Whether they are the properties themselves; one may be called `type` or `properties`."""
    if not parameters or isinstance(parameters.get("type"), str | list) or {*parameters} & COMPOSED:
        return False
    inner = parameters.get("properties", {"": ""})
    return isinstance(inner, dict) and not all(
        type(each) in (dict, bool) for each in inner.values()
    )


def _check_schema(record: Record, path: str, schema: Any) -> None:
    """The keywords that a tool's schema is made of have the types JSON Schema gives them; true and
    false are schemas, and `items` may be a list of one for each place, as in its older drafts.
    """
    if record.typed(path, schema, dict, bool) in (True, False):
        return
    if "type" in schema:
        kinds = record.typed(f"{path}.type", schema["type"], str, list)
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            record.typed(f"{path}.type", kind, str)
    properties = schema.get("properties", {})
    for name, each in record.typed(f"{path}.properties", properties, dict).items():
        _check_schema(record, f"{path}.properties.{name}", each)
    if schema.get("required") is not None:
        for name in record.typed(f"{path}.required", schema["required"], list):
            record.typed(f"{path}.required", name, str)
    if "enum" in schema:
        record.typed(f"{path}.enum", schema["enum"], list)
    items = schema.get("items", True)
    for each in items if isinstance(items, list) else [items]:
        _check_schema(record, f"{path}.items", each)
