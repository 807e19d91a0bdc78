"""The constraints of a request on its answer (calls, functions, JSON, a schema), and their checks.

Decoding is not constrained: complete answers are checked. Fitting a schema is checked in a worker
process (`schemas`), because it may never end.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.data.json_files import load_json
from assay.data.row import ToolCall
from assay.data.tools import function_names, function_of
from assay.serve.requests import Refusal
from assay.serve.texts import THOUGHT

CHOICES = (
    "tool_choice: 'auto', 'none', 'required', "
    "{'type': 'function', 'function': {'name': NAME}} or an 'allowed_tools' object of functions"
)
FORMATS = "response_format: an object of type 'text', 'json_object' or 'json_schema'"


@dataclass(frozen=True)
class Constraint:
    """The constraint on an answer."""

    must_call: bool = False
    allowed: frozenset[str] | None = None
    """The functions that may be called; None for whatever the model calls."""
    one_call: bool = False
    must_be_json: bool = False
    """The content is a JSON object, or fits `schema`, unless there are calls."""
    schema: Mapping[str, Any] | None = None
    strict: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Functions whose arguments must fit their parameters."""

    @property
    def binds(self) -> bool:
        """Whether there is anything to check."""
        return self != Constraint()

    @property
    def parameter(self) -> str:
        """The parameter that the constraint comes from, for errors."""
        return "response_format" if self.must_be_json and not self.must_call else "tool_choice"

    @property
    def schemas(self) -> list[Mapping[str, Any]]:
        """All schemas."""
        return [*([] if self.schema is None else [self.schema]), *self.strict.values()]


def constraint_of(
    tools: Sequence[Mapping[str, Any]], choice: Any, parallel: bool | None, wanted: Any
) -> Constraint:
    """The constraint from `tool_choice`, `parallel_tool_calls`, strict functions and
    `response_format`.

    Raises Refusal for a constraint that is invalid or impossible.
    """
    schema, must_be_json = format_of(wanted)
    must_call, allowed = choice_of(choice, function_names(tools))
    if choice == "none" or not tools:
        return Constraint(must_be_json=must_be_json, schema=schema)
    functions = [function_of(tool) for tool in tools]
    strict = {one["name"]: one.get("parameters") or {} for one in functions if one.get("strict")}
    return Constraint(must_call, allowed, parallel is False, must_be_json, schema, strict)


def choice_of(choice: Any, names: Sequence[str]) -> tuple[bool, frozenset[str] | None]:
    """Whether there must be a call, and of which functions. Raises Refusal."""
    if choice in (None, "auto", "none"):
        return False, None
    if choice == "required":
        must_call, allowed = True, list(names)
    elif isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        some = part(choice, "allowed_tools")
        must_call = some.get("mode") == "required"
        allowed = [name_in(tool) for tool in listed(some.get("tools"))]
    elif isinstance(choice, dict) and choice.get("type") == "function":
        must_call, allowed = True, [name_in(choice)]
    else:
        raise refused("tool_choice", f"is not understood ({CHOICES})")
    if not names:
        raise refused("tool_choice", "a call is demanded, but there are no tools")
    for name in allowed:
        if name not in names:
            raise refused("tool_choice", f"{name!r} is none of the tools")
    return must_call, frozenset(allowed)


def part(value: Any, key: str) -> Mapping[str, Any]:
    """An object within an object. Raises Refusal."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise refused("tool_choice", f"has no object {key!r} ({CHOICES})")
    return found


def listed(value: Any) -> list[Any]:
    """A list. Raises Refusal."""
    if not isinstance(value, list) or not value:
        raise refused("tool_choice", f"names no tools ({CHOICES})")
    return value


def name_in(value: Any) -> str:
    """The function that an object names. Raises Refusal."""
    name = part(value, "function").get("name")
    if not isinstance(name, str):
        raise refused("tool_choice", f"names no function ({CHOICES})")
    return name


def format_of(wanted: Any) -> tuple[Mapping[str, Any] | None, bool]:
    """The schema of `response_format`, and whether it demands JSON. Raises Refusal."""
    kind = None if wanted is None else wanted.get("type") if isinstance(wanted, dict) else wanted
    if kind in (None, "text") and (wanted is None or kind == "text"):
        return None, False
    if kind == "json_object":
        return None, True
    held = wanted.get("json_schema") if isinstance(wanted, dict) else None
    if kind != "json_schema" or not isinstance(held, dict):
        raise refused("response_format", f"is not understood ({FORMATS})")
    schema = held.get("schema", {})
    if not isinstance(schema, dict):
        raise refused("response_format", "json_schema.schema is no object")
    return schema, True


def refused(parameter: str, problem: str) -> Refusal:
    """The refusal of an invalid constraint."""
    return Refusal(400, f"{parameter}: {problem}", code="invalid_value", parameter=parameter)


def problem_of(constraint: Constraint, content: str, calls: Sequence[ToolCall]) -> str | None:
    """The violation of a constraint by an answer, schemas apart; None for none."""
    names = [call.name for call in calls]
    if constraint.must_call and not names:
        return "calls no function"
    if constraint.one_call and len(names) > 1:
        return f"makes {len(names)} calls, not one"
    if constraint.allowed is not None:
        others = [name for name in names if name not in constraint.allowed]
        if others:
            return f"calls {others[0]!r}"
    if constraint.must_be_json and not names and constraint.schema is None:
        return json_object_problem(content)
    return None


def json_object_problem(text: str) -> str | None:
    """Why a text is no JSON object."""
    try:
        value = load_json(text)
    except ValueError as error:
        return f"is not JSON: {error}"
    return None if isinstance(value, dict) else "is JSON, but no object"


def texts_by_schema(
    constraint: Constraint, content: str, calls: Sequence[ToolCall]
) -> list[tuple[Mapping[str, Any], str]]:
    """The texts of an answer with the schemas that they must fit."""
    if not calls:
        return [] if constraint.schema is None else [(constraint.schema, content)]
    return [
        (constraint.strict[call.name], json.dumps(dict(call.arguments)))
        for call in calls
        if call.name in constraint.strict
    ]


def bare_json(text: str) -> str:
    """A text without reasoning before it and one fence around it."""
    text = text.rpartition(THOUGHT)[2].strip()
    if text.startswith("```") and text.endswith("```") and text.count("```") == 2:
        text = text[3:-3].removeprefix("json").strip()
    return text
