"""OpenAI's chat and completion requests read, and their answers written.

An unsupported parameter that would change the answer is refused by name; an unknown one is ignored.
The chunks of a stream add up to the complete answer. Knows no model and no HTTP server.
"""

import copy
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError
from starlette.exceptions import HTTPException

from assay.data.conversation import parse_messages
from assay.data.json_files import load_json
from assay.data.loaded import DataError, Record
from assay.data.row import Message, ToolCall
from assay.data.tools import parse_tools
from assay.tasks.task import CallSyntax

THOUGHT = "</think>"
Json = dict[str, Any]


def content_and_calls(text: str, syntax: CallSyntax) -> tuple[str, tuple[ToolCall, ...]]:
    """The content and the calls of an answer.

    If the parser fails there are no calls and the text stays complete, so that the client sees what
    the model wrote.
    """
    calls = syntax.parse(text)
    if not calls or not all(sendable(call.name) for call in calls):
        return text, ()
    outside, position = [], 0
    thought = text.rfind(THOUGHT)  # in which nothing is called
    while (start := text.find(syntax.opening, max(position, thought))) >= 0:
        outside.append(text[position:start])
        position = text.index(syntax.closing, start) + len(syntax.closing)
    outside.append(text[position:])
    return outside[0].rstrip() + "".join(outside[1:]).rstrip(), calls


def sendable(text: str) -> bool:
    """Whether a text can be sent: JSON that a model wrote may hold half a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class FinishedCompletion:
    """One finished completion as text."""

    content: str
    calls: tuple[ToolCall, ...]
    finish: str
    logprobs: Json | None = None
    """As OpenAI writes those of the drawn tokens; None where nobody asked."""


@dataclass(frozen=True)
class Envelope:
    """Writes the objects of one answer, of a chat or of a completion."""

    chat: bool
    model: str
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, choices: Sequence[FinishedCompletion], read: int, drawn: int) -> Json:
        """The answer of a request that is not streamed, and its numbers of tokens."""
        bodies = [self._choice(index, one) for index, one in enumerate(choices)]
        return {**self._around(bodies, whole=True), "usage": _usage(read, drawn)}

    def _choice(self, index: int, one: FinishedCompletion) -> Json:
        body: Json = {"text": one.content}
        if self.chat:
            content = one.content or (None if one.calls else "")
            body = {"message": {"role": "assistant", "content": content}}
            if one.calls:
                body["message"]["tool_calls"] = [_call(call) for call in one.calls]
        return body | {"index": index, "logprobs": one.logprobs, "finish_reason": one.finish}

    def piece(self, text: str, finish: str | None = None, **beside: Any) -> Json:
        """One piece of a stream: text, and what a chat has beside it; the last says `finish`."""
        body = {"delta": {"content": text, **beside}} if self.chat else {"text": text}
        return self._around([{"index": 0, **body, "finish_reason": finish}])

    def last(self, one: FinishedCompletion, sent: str) -> Json:
        """The last piece, after the text that was sent."""
        calls = [{"index": index, **_call(call)} for index, call in enumerate(one.calls)]
        beside = {"tool_calls": calls} if calls else {}
        return self.piece(one.content[len(sent) :], one.finish, **beside)

    def counts(self, read: int, drawn: int) -> Json:
        """The last piece of a stream that was asked to end with its numbers of tokens."""
        return {**self._around([]), "usage": _usage(read, drawn)}

    def _around(self, choices: list[Json], whole: bool = False) -> Json:
        chat = "chat.completion" if whole else "chat.completion.chunk"
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.id}",
            "object": chat if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def _usage(read: int, drawn: int) -> Json | None:
    """Numbers of tokens; an end token counts as drawn. None where they are not known."""
    known = {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn}
    return known if read + drawn else None


def _call(call: ToolCall) -> Json:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False, allow_nan=False)
    if not sendable(arguments):  # half a surrogate pair stays the escape that it was
        arguments = json.dumps(dict(call.arguments), allow_nan=False)
    made = {"name": call.name, "arguments": arguments}
    return {"id": call.id or f"call_{secrets.token_hex(12)}", "type": "function", "function": made}


MOST_STOPS = 16
MOST_CHOICES = 64
Count = Annotated[int, Field(ge=1)]
Stop = Annotated[str, Field(min_length=1, max_length=1000)]

NEVER = ("audio", "web_search_options", "moderation", "prompt_logprobs", "structured_outputs")
NEVER += ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "chat_template")
NEVER += ("enable_thinking", "truncate_prompt_tokens")
ZERO = ("presence_penalty", "frequency_penalty", "min_p", "min_tokens", "top_logprobs")
OFF = ("logprobs", "ignore_eos", "echo", "use_beam_search", "continue_final_message")
REFUSED: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(NEVER, ()),
    **dict.fromkeys(ZERO, (0,)),
    **dict.fromkeys((*OFF, "include_stop_str_in_output"), (False,)),
    **dict.fromkeys(("repetition_penalty", "length_penalty", "best_of", "n"), (1,)),
    **dict.fromkeys(("parallel_tool_calls", "add_generation_prompt"), (True,)),
    **dict.fromkeys(("functions", "bad_words", "allowed_token_ids"), ([],)),
    **dict.fromkeys(("logit_bias", "chat_template_kwargs"), ({},)),
    **dict.fromkeys(("suffix", "grammar"), ("",)),
    "modalities": (["text"],),
    "function_call": ("auto",),
    "tool_choice": ("auto", "none"),
    "response_format": ({"type": "text"},),
}
"""Parameters of OpenAI, vLLM and llama.cpp that would change the answer and are not done here, with
the values that change nothing, besides null."""
KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
"""OpenAI's kinds of errors by HTTP status; others are errors of the request, or the server's."""


def refusal(
    problem: str, parameter: str | None = None, *, code: str = "invalid_value", status: int = 400
) -> HTTPException:
    """A request that is answered with an error as OpenAI writes it; `code` is one of OpenAI's words
    for what is wrong."""
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    known = {"message": problem, "type": kind, "param": parameter, "code": code}
    return HTTPException(status, {"error": known})  # type: ignore[arg-type]


class RequestParameters(BaseModel):
    """Parameters of both endpoints; of `n`, `logprobs` and `tool_choice` all but agents are refused
    what is not in `REFUSED`."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    model: str
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    """Not OpenAI's, but vLLM's: -1 and 0 keep every token."""
    seed: int | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=MOST_STOPS)] | None = None
    """Not OpenAI's, but vLLM's, and sent by BFCL."""
    skip_special_tokens: bool = False
    """Not OpenAI's, but vLLM's: whether control tokens are left out of an answer's text."""
    stream: bool | None = None
    stream_options: dict[str, StrictBool] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    logprobs: bool | int | None = None

    @property
    def limit(self) -> int | None:
        """The most tokens of an answer."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def counted(self) -> bool:
        """Whether a stream ends with its numbers of tokens."""
        return bool((self.stream_options or {}).get("include_usage"))

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class ChatRequest(RequestParameters):
    """The body of `POST /v1/chat/completions`; messages and tools are read by the data floor."""

    messages: list[Any]
    prompt: ClassVar[None] = None
    tools: list[Any] | None = None
    tool_choice: Any = None


class CompletionRequest(RequestParameters):
    """The body of `POST /v1/completions`."""

    prompt: str | list[int]


Body = TypeVar("Body", bound=RequestParameters)


def read_request(
    kind: type[Body], body: bytes, refused: Mapping[str, tuple[Any, ...]] = REFUSED
) -> Body:
    """The request in a body; what is not known in it has no effect. Raises a refusal (400) that
    names the parameter."""
    try:
        value = load_json(body.decode("utf-8"))
        # A lone surrogate passes the JSON parser and breaks the tokenizer later.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise refusal(f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise refusal("the body is no JSON object", code="invalid_json")
    for name in filter(refused.__contains__, value):
        # For Python 0 is False; of log-probabilities 0 asks for those of the drawn tokens.
        wanted, typed = value[name], isinstance(value[name], bool)
        alike = (w == wanted and isinstance(w, bool) is typed for w in refused[name])
        if wanted is not None and not any(alike):
            problem = f"{name}: not done here; servers of an exported checkpoint do it"
            raise refusal(problem, name, code="unsupported_parameter")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
        name = path.partition(".")[0] or None
        raise refusal(f"{path}: {first['msg']}", name, code=code) from error


def read_chat(request: ChatRequest) -> tuple[tuple[Message, ...], tuple[Any, ...]]:
    """The messages of a chat, and the functions that its answer may call. Raises a refusal."""
    record = Record("request", 1, {})
    try:
        tools = parse_tools(record, request.tools, "tools")
        # A data set that lacks the arguments of a call is refused, a client is not.
        filled = copy.deepcopy(request.messages)
        for message in filled:
            for call in (message.get("tool_calls") or ()) if isinstance(message, dict) else ():
                function = call.get("function") if isinstance(call, dict) else None
                if isinstance(function, dict) and function.get("arguments") is None:
                    function["arguments"] = {}
        messages = parse_messages(record, filled, "messages")
    except DataError as error:
        name = (error.field or "messages").partition("[")[0]
        problem = f"{error.field}: {error.problem}" + (f" ({error.fix})" if error.fix else "")
        raise refusal(problem, name) from error
    return messages, () if request.tool_choice == "none" else tools


def finished_completion(
    text: str, stops: Sequence[str], ended: bool, calls: CallSyntax | None
) -> FinishedCompletion:
    """A sampled text as an answer: up to the first stop text, and calls where tools were given."""
    stop = min((at for each in stops if (at := text.find(each)) >= 0), default=None)
    text = text[:stop]
    content, called = content_and_calls(text, calls) if calls else (text, ())
    finish = "tool_calls" if called else "stop" if ended or stop is not None else "length"
    return FinishedCompletion(content, called, finish)
