"""What a client may ask in OpenAI's words, and the refusal where it asks for something else.

A parameter that would change the answer and is not done here is refused by name, never ignored.
Nothing is rendered and no model is run here.
"""

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.data.jsonl import load_json
from assay.errors import RunFailure

MOST_CHOICES = 64
"""Completions of one request, prompts times `n`."""
MOST_STOPS = 16

Count = Annotated[int, Field(ge=1)]
Stop = Annotated[str, Field(min_length=1, max_length=1000)]
Off = Annotated[float, Field(ge=0, le=0)] | None
"""A penalty that is off."""


class Refusal(RunFailure):
    """A request that is answered with an error in OpenAI's shape."""

    def __init__(self, status: int, problem: str, *, code: str, parameter: str | None = None):
        """`status` is HTTP's; `code` one of OpenAI's words for what is wrong."""
        super().__init__(problem)
        self.status, self.code, self.parameter = status, code, parameter


class StreamOptions(BaseModel):
    """What a stream carries besides the answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    include_usage: bool = False


class Asking(BaseModel):
    """What both endpoints understand."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

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
    presence_penalty: Off = None
    frequency_penalty: Off = None
    logit_bias: Annotated[dict[str, Any], Field(max_length=0)] | None = None
    user: str | None = None
    """Who asks: changes nothing."""

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
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: Literal[True] | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    response_format: dict[Literal["type"], Literal["text"]] | None = None


class CompletionRequest(Asking):
    """The body of `POST /v1/completions`."""

    prompt: str | list[str] | list[int] | list[list[int]]
    echo: Literal[False] | None = None
    suffix: None = None
    best_of: Literal[1] | None = None
    logprobs: Literal[0] | None = None
    """0 gives the log-probabilities of the tokens themselves; no others are kept."""


Body = TypeVar("Body", bound=Asking)


def read_request(kind: type[Body], body: bytes) -> Body:
    """The request in a body. Raises Refusal (400) that names the parameter."""
    try:
        value = load_json(body.decode("utf-8"))
        # A lone surrogate passes the JSON parser and breaks the tokenizer later.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise Refusal(400, "the body is no JSON object", code="invalid_json")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise _refused(error) from error


def _refused(error: ValidationError) -> Refusal:
    """The first thing that is wrong."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = [str(part) for part in first["loc"]]
    name = path[0] if path else None
    if first["type"] == "extra_forbidden":
        problem = f"unknown parameter {'.'.join(path)!r}"
        return Refusal(400, problem, code="unknown_parameter", parameter=name)
    if first["type"] == "missing":
        problem = f"missing parameter {'.'.join(path)!r}"
        return Refusal(400, problem, code="missing_required_parameter", parameter=name)
    problem = f"{name}: {first['msg']}"
    return Refusal(400, problem, code="invalid_value", parameter=name)
