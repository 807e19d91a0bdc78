"""Parses requests in OpenAI's format, refuses what this server does not do, makes jobs of them, and
builds answers of what was sampled.

An unsupported parameter that would change the answer is refused by name; an unknown one is ignored.
The chunks of a stream add up to the complete answer. Runs no model and knows no HTTP.
"""

import copy
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from assay.data.conversation import parse_messages
from assay.data.episode import Turn
from assay.data.json_files import load_json
from assay.data.loaded import DataError, Record
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, ToolCall
from assay.data.tools import parse_tools
from assay.lab.evaluate.opened_model import Served
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.batcher import SamplingJob
from assay.tasks.task import CallSyntax

THOUGHT = "</think>"
UNFINISHED = "\ufffd"
"""The decoded form of a character with missing bytes."""
Json = dict[str, Any]


def overlap(text: str, word: str) -> int:
    """The number of characters at the end of `text` that begin `word`, at most all but one."""
    most = min(len(text), len(word) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(word[:n])), 0)


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

    turn: Turn
    content: str
    calls: tuple[ToolCall, ...]
    finish: str


@dataclass(eq=False)
class ReadyRequest:
    """A request made ready, and the text of its answer while its tokens come."""

    request: "RequestParameters"
    job: SamplingJob
    tokenizer: Any
    end_tokens: frozenset[int]
    calls: CallSyntax | None = None
    """Parser of calls in the answer; None if calls are left as text."""
    tell: Callable[[], None] | None = None
    """Is called by the sampling thread whenever the text may have grown."""
    text: str = ""
    """Everything that is certain, up to a stop text."""
    _tokens: list[int] = field(default_factory=list)
    _before: int = 0
    _read: int = 0

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that end an answer."""
        kept = [token for token in tokens if token not in self.end_tokens]
        skip = self.request.skip_special_tokens
        return self.tokenizer.decode(kept, skip_special_tokens=skip)

    def stop_in(self, text: str, start: int) -> int | None:
        """The start of the first stop text that ends behind `start`."""
        stops = self.request.stops
        longest = max(map(len, stops), default=0)
        places = [text.find(stop, max(0, start - longest + 1)) for stop in stops]
        return min((place for place in places if place >= 0), default=None)

    def hears(self, token: int) -> bool:
        """Take a token as it is drawn; True where a stop text or token ends the answer."""
        if token in (self.request.stop_token_ids or ()):
            return True
        self._tokens.append(token)
        # A window is decoded, not the token alone: some tokenizers write a word's space by what
        # comes before it.
        old = self.decode(self._tokens[self._before : self._read])
        new = self.decode(self._tokens[self._before :])
        if len(new) <= len(old) or new.endswith(UNFINISHED):
            return False
        self._before, self._read = self._read, len(self._tokens)
        # Assigned once, because another thread reads it.
        text = self.text + new[len(old) :]
        stop = self.stop_in(text, len(self.text))
        self.text = text[:stop]
        if self.tell is not None:
            self.tell()
        return stop is not None

    def certain(self) -> str:
        """The beginning of the growing text that no stop text, no call and no space before one can
        take back."""
        text = self.text
        held = max((overlap(text, stop) for stop in self.request.stops), default=0)
        text = text[: len(text) - held]
        if self.calls is None:
            return text
        opening = self.calls.opening
        start = text.find(opening)
        return text[: start if start >= 0 else len(text) - overlap(text, opening)].rstrip()

    def finished(self) -> FinishedCompletion:
        """Read what was sampled: text up to a stop text, and calls where tools were given.

        Raises what sampling raised.
        """
        turn = self.job.done.result()
        whole = self.decode(turn.actions)
        stop = self.stop_in(whole, 0)
        text = whole[:stop]
        content, calls = content_and_calls(text, self.calls) if self.calls else (text, ())
        ended = stop is not None or (turn.actions and turn.actions[-1] in self.end_tokens)
        finish = "tool_calls" if calls else "stop" if ended else "length"
        return FinishedCompletion(turn, content, calls, finish)

    def usage(self) -> Json:
        """Token counts of a finished answer; an end token counts as a token of the completion."""
        prompt, drawn = len(self.job.context), len(self.job.done.result().actions)
        total = prompt + drawn
        return {"prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": total}


@dataclass(frozen=True)
class Envelope:
    """Writes the objects of one answer, of a chat or of a completion."""

    chat: bool
    model: str
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, one: FinishedCompletion, tokens: Json) -> Json:
        """The answer of a request that is not streamed."""
        body: Json = {"text": one.content}
        if self.chat:
            content = one.content or (None if one.calls else "")
            body = {"message": {"role": "assistant", "content": content}}
            if one.calls:
                body["message"]["tool_calls"] = [_call(call) for call in one.calls]
        body |= {"index": 0, "logprobs": None, "finish_reason": one.finish}
        return {**self._around([body], whole=True), "usage": tokens}

    def opening(self) -> Json:
        """The first piece of a streamed chat."""
        return self._piece({"delta": {"role": "assistant", "content": ""}})

    def piece(self, text: str) -> Json:
        """One piece of streamed text."""
        return self._piece({"delta": {"content": text}} if self.chat else {"text": text})

    def last(self, one: FinishedCompletion, sent: str) -> Json:
        """The last piece, after the text that was sent."""
        text = one.content[len(sent) :]
        delta: Json = {"content": text} if text else {}
        if one.calls:
            delta["tool_calls"] = [{"index": i, **_call(call)} for i, call in enumerate(one.calls)]
        return self._piece({"delta": delta} if self.chat else {"text": text}, one.finish)

    def counts(self, tokens: Json) -> Json:
        """The last piece of a stream that was asked to end with its token counts."""
        return {**self._around([]), "usage": tokens}

    def _piece(self, body: Json, finish: str | None = None) -> Json:
        return self._around([{"index": 0, **body, "finish_reason": finish}])

    def _around(self, choices: list[Json], whole: bool = False) -> Json:
        chat = "chat.completion" if whole else "chat.completion.chunk"
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.id}",
            "object": chat if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def _call(call: ToolCall) -> Json:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False, allow_nan=False)
    if not sendable(arguments):  # half a surrogate pair stays the escape that it was
        arguments = json.dumps(dict(call.arguments), allow_nan=False)
    made = {"name": call.name, "arguments": arguments}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": made}


MOST_STOPS = 16
TEMPERATURE = 1.0
"""OpenAI's, where a request names none."""
COMPLETION_TOKENS = 16
"""OpenAI's limit of a completion request that names none; chat may fill the context."""

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


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    include_usage: bool = False


class RequestParameters(BaseModel):
    """Parameters of both endpoints."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    model: str
    max_tokens: Count | None = None
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
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class ChatRequest(RequestParameters):
    """The body of `POST /v1/chat/completions`; messages and tools are read by the data floor."""

    messages: list[Any]
    tools: list[Any] | None = None
    tool_choice: str | None = None
    max_completion_tokens: Count | None = None


class CompletionRequest(RequestParameters):
    """The body of `POST /v1/completions`."""

    prompt: str | list[int]


Body = TypeVar("Body", bound=RequestParameters)


def read_request(kind: type[Body], body: bytes) -> Body:
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
    for name in filter(REFUSED.__contains__, value):
        # For Python 0 is False; of log-probabilities 0 asks for those of the drawn tokens.
        wanted, typed = value[name], isinstance(value[name], bool)
        alike = (w == wanted and isinstance(w, bool) is typed for w in REFUSED[name])
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


def ask_chat(served: Served, request: ChatRequest) -> ReadyRequest:
    """A chat made ready. Raises a refusal (400)."""
    record = Record("request", 1, {})
    try:
        tools = parse_tools(record, request.tools, "tools")
        messages = parse_messages(record, with_arguments(request.messages), "messages")
        shown = () if request.tool_choice == "none" else tools
        refuse_endless(served, [message.content for message in messages], "messages")
        refuse_endless(served, [json.dumps(tool) for tool in shown], "tools")
        context = served.renderer.prompt(messages, shown)
    except DataError as error:
        name = (error.field or "messages").partition("[")[0]
        problem = f"{error.field}: {error.problem}" + (f" ({error.fix})" if error.fix else "")
        raise refusal(problem, name) from error
    except RenderingError as error:
        raise refusal(str(error), "messages") from error
    limit = request.max_completion_tokens or request.max_tokens
    return ready(served, request, context, limit, None, served.calls if shown else None)


def with_arguments(messages: list[Any]) -> list[Any]:
    """The messages with the calls that clients send without arguments, absent or null, given none:
    a data set that lacks them is refused, a client is not."""
    filled = copy.deepcopy(messages)
    for message in filled:
        for call in (message.get("tool_calls") or ()) if isinstance(message, dict) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and function.get("arguments") is None:
                function["arguments"] = {}
    return filled


def ask_completion(served: Served, request: CompletionRequest) -> ReadyRequest:
    """A completion made ready. Raises a refusal (400)."""
    context = prompt_tokens(served, request.prompt)
    return ready(served, request, context, request.max_tokens, COMPLETION_TOKENS, None)


def prompt_tokens(served: Served, prompt: str | Sequence[int]) -> tuple[int, ...]:
    """The tokens of a prompt. Raises a refusal for an id that the model does not have.

    The text of a chat has a chat's tokens: no token is put around it, but BOS before a text without
    it, where the tokenizer does so and chats begin with it too.
    """
    if isinstance(prompt, str):
        refuse_endless(served, [prompt], "prompt")
        bare = tuple(served.tokenizer.encode(prompt, add_special_tokens=False))
        bos = served.tokenizer.bos_token_id
        added = served.tokenizer.encode(prompt)[:1] == [bos] != list(bare[:1])
        chat = served.renderer.prompt((Message("user", "a"),))
        return (bos, *bare) if added and chat[0] == bos else bare
    size = len(served.tokenizer)
    if not all(0 <= token < size for token in prompt):
        raise refusal(f"prompt: token ids are 0 to {size - 1}", "prompt")
    return tuple(prompt)


def refuse_endless(served: Served, texts: Sequence[str], parameter: str) -> None:
    """Raise a refusal for texts that have too many tokens even if each is the longest there is.

    Time and memory do not grow with what was sent.
    """
    if sum(map(len, texts)) > served.longest_token * served.context_tokens:
        problem = f"the model's context holds {served.context_tokens} tokens, and there are more"
        raise refusal(problem, parameter, code="context_length_exceeded")


def ready(
    served: Served,
    request: RequestParameters,
    context: tuple[int, ...],
    limit: int | None,
    default: int | None,
    calls: CallSyntax | None,
) -> ReadyRequest:
    """The job of a prompt. Raises a refusal where the context is too small."""
    seed = secrets.randbits(32) if request.seed is None else request.seed
    sampling = Sampling(
        TEMPERATURE if request.temperature is None else request.temperature,
        room(served, context, limit, default),
        request.top_p or 1.0,
        max(request.top_k or 0, 0),
    )
    job = SamplingJob(context, SampleKey(seed, "prompt 0", 0), sampling)
    ends = served.end_tokens | frozenset(request.stop_token_ids or ())
    made = ReadyRequest(request, job, served.tokenizer, ends, calls)
    if request.stream or request.stops or request.stop_token_ids:
        job.hears = made.hears
    return made


def room(served: Served, context: Sequence[int], limit: int | None, default: int | None) -> int:
    """The most tokens of the answer. Raises a refusal where prompt and answer do not fit."""
    left = served.context_tokens - len(context)
    wanted = limit or (left if default is None else min(default, left))
    if not context:
        raise refusal("the prompt is empty", "prompt")
    if left < 1 or wanted > left:
        problem = (
            f"the prompt has {len(context)} tokens and {max(wanted, 1)} are asked for, but the "
            f"model's context holds {served.context_tokens}"
        )
        raise refusal(problem, "messages", code="context_length_exceeded")
    return wanted
