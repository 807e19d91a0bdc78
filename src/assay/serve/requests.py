"""Parses requests in OpenAI's format, and refuses what this server does not do.

An unsupported parameter that would change the answer is refused by name; an unknown one is ignored
and listed. Renders nothing and runs no model.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.data.json_files import load_json
from assay.data.row import ToolCall
from assay.data.tools import function_names, function_of
from assay.errors import RunFailure

MOST_CHOICES = 64
"""Completions of one request, prompts times `n`."""
MOST_STOPS = 16
THOUGHT = "</think>"

Count = Annotated[int, Field(ge=1)]
Stop = Annotated[str, Field(min_length=1, max_length=1000)]

REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "audio": ((), "answers are text"),
    "modalities": ((["text"],), "answers are text"),
    "functions": (([],), "give them as 'tools'"),
    "function_call": (("auto",), "say it with 'tool_choice'"),
    "web_search_options": ((), "nothing is searched"),
    "moderation": ((), "nothing is moderated"),
    "logit_bias": (({},), "scores are not changed"),
    "presence_penalty": ((0,), "scores are not changed"),
    "frequency_penalty": ((0,), "scores are not changed"),
    "repetition_penalty": ((1,), "scores are not changed"),
    "length_penalty": ((1,), "scores are not changed"),
    "min_p": ((0,), "cut the distribution with 'top_p' or 'top_k'"),
    "min_tokens": ((0,), "an answer ends where the model ends it"),
    "ignore_eos": ((False,), "an answer ends where the model ends it"),
    "bad_words": (([],), "no token is forbidden"),
    "allowed_token_ids": (([],), "no token is forbidden"),
    "top_logprobs": ((0,), "only the drawn token's own log-probability is kept"),
    "prompt_logprobs": ((), "prompts are not scored"),
    "echo": ((False,), "the prompt is not repeated"),
    "suffix": (("",), "nothing is filled in"),
    "best_of": ((1,), "use 'n' and choose"),
    "use_beam_search": ((False,), "answers are sampled"),
    "guided_json": ((), "use 'response_format'"),
    "guided_regex": ((), "use 'response_format' with a schema"),
    "guided_choice": ((), "use 'response_format' with a schema"),
    "guided_grammar": ((), "use 'response_format' with a schema"),
    "structured_outputs": ((), "use 'response_format'"),
    "grammar": (("",), "use 'response_format' with a schema"),
    "chat_template": ((), "the server's '--rendering' says how chats become text"),
    "chat_template_kwargs": (({},), "the server's '--rendering' says how chats become text"),
    "enable_thinking": ((), "the server's '--rendering' says how chats become text"),
    "add_generation_prompt": ((True,), "an answer is always a new message"),
    "continue_final_message": ((False,), "an answer is always a new message"),
    "truncate_prompt_tokens": ((), "prompts are not cut"),
    "include_stop_str_in_output": ((False,), "stop texts are no part of an answer"),
}
"""Parameters of OpenAI, vLLM and llama.cpp that would change the answer and are not done here, with
the values that change nothing, besides null, and what to do instead."""


class Refusal(RunFailure):
    """A request that is answered with an error in OpenAI's shape."""

    def __init__(self, status: int, problem: str, *, code: str, parameter: str | None = None):
        """`status` is HTTP's; `code` one of OpenAI's words for what is wrong."""
        super().__init__(problem)
        self.status, self.code, self.parameter = status, code, parameter


KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
"""OpenAI's kinds of errors by HTTP status; others are errors of the request, or the server's."""


def error_body(refusal: Refusal) -> dict[str, Any]:
    """An error as OpenAI writes it."""
    server = "server_error" if refusal.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": str(refusal),
            "type": KINDS.get(refusal.status, server),
            "param": refusal.parameter,
            "code": refusal.code,
        }
    }


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    include_usage: bool = False


class Asking(BaseModel):
    """Parameters of both endpoints."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    model: str
    max_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    """Not OpenAI's, but vLLM's: -1 and 0 keep every token."""
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    seed: int | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=MOST_STOPS)] | None = None
    """Not OpenAI's, but vLLM's, and sent by BFCL."""
    skip_special_tokens: bool = False
    """Not OpenAI's, but vLLM's: whether control tokens are left out of an answer's text."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def with_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(Asking):
    """The body of `POST /v1/chat/completions`; messages and tools are read by the data floor."""

    messages: list[Any]
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: Any = None
    """These three say what the answer may be."""
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None


class CompletionRequest(Asking):
    """The body of `POST /v1/completions`."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: Literal[0] | None = None
    """0 gives the log-probabilities of the tokens themselves; no others are kept."""


Body = TypeVar("Body", bound=Asking)


def read_request(kind: type[Body], body: bytes) -> tuple[Body, tuple[str, ...]]:
    """The request in a body, and the names of what in it is not known and has no effect.

    Raises Refusal (400) that names the parameter.
    """
    try:
        value = load_json(body.decode("utf-8"))
        # A lone surrogate passes the JSON parser and breaks the tokenizer later.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise Refusal(400, "the body is no JSON object", code="invalid_json")
    for name, given in value.items():
        neutral, instead = REFUSED.get(name, ((given,), ""))
        if given is not None and given not in neutral:
            problem = f"{name}: not done here ({instead})"
            raise Refusal(400, problem, code="unsupported_parameter", parameter=name)
    try:
        return kind.model_validate(value), unknown(kind, value)
    except ValidationError as error:
        raise _refused(error) from error


def unknown(kind: type[Asking], value: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of parameters that have no effect, those of `stream_options` too."""
    own = {*kind.model_fields, *REFUSED}
    options = value.get("stream_options")
    inner = [] if not isinstance(options, dict) else [*options]
    return (
        *(name for name in value if name not in own),
        *(f"stream_options.{name}" for name in inner if name not in StreamOptions.model_fields),
    )


def _refused(error: ValidationError) -> Refusal:
    """The first thing that is wrong."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = [str(part) for part in first["loc"]]
    name = path[0] if path else None
    if first["type"] == "missing":
        problem = f"missing parameter {'.'.join(path)!r}"
        return Refusal(400, problem, code="missing_required_parameter", parameter=name)
    problem = f"{name}: {first['msg']}"
    return Refusal(400, problem, code="invalid_value", parameter=name)


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
