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
from functools import partial
from typing import Annotated, Any, TypeGuard, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.data.conversation import parse_messages
from assay.data.episode import Turn
from assay.data.json_files import load_json
from assay.data.loaded import DataError, Record
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, ToolCall
from assay.data.tools import parse_tools
from assay.errors import RunFailure
from assay.lab.evaluate.opened_model import Served
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.batcher import Job
from assay.tasks.task import CallSyntax

THOUGHT = "</think>"
UNFINISHED = "\ufffd"
"""The decoded form of a character with missing bytes."""


@dataclass(frozen=True)
class Speech:
    """Decodes the tokens of one request."""

    tokenizer: Any
    end_tokens: frozenset[int]
    stops: tuple[str, ...] = ()
    skip_special: bool = False

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that end an answer."""
        kept = [token for token in tokens if token not in self.end_tokens]
        return self.tokenizer.decode(kept, skip_special_tokens=self.skip_special)

    def text(self, tokens: Sequence[int]) -> tuple[str, bool]:
        """The text of a finished answer, and whether a stop text ended it."""
        whole = self.decode(tokens)
        found = self.stop_in(whole, 0)
        return (whole, False) if found is None else (whole[:found], True)

    def stop_in(self, text: str, start: int) -> int | None:
        """The start of the first stop text that ends behind `start`."""
        longest = max(map(len, self.stops), default=0)
        found = [text.find(stop, max(0, start - longest + 1)) for stop in self.stops]
        return min((place for place in found if place >= 0), default=None)


class Growing:
    """The text of one answer while its tokens come."""

    def __init__(self, speech: Speech):
        self.speech = speech
        self.text = ""
        """Everything that is certain, up to a stop text."""
        self.stopped = False
        self._tokens: list[int] = []
        self._before = 0
        self._read = 0

    def add(self, token: int) -> None:
        """Take the next token."""
        self._tokens.append(token)
        # A window is decoded, not the token alone: some tokenizers write a word's space by what
        # comes before it.
        old = self.speech.decode(self._tokens[self._before : self._read])
        new = self.speech.decode(self._tokens[self._before :])
        if len(new) <= len(old) or new.endswith(UNFINISHED):
            return
        self._before, self._read = self._read, len(self._tokens)
        # Assigned once, because another thread reads it.
        text = self.text + new[len(old) :]
        stop = self.speech.stop_in(text, len(self.text))
        self.text = text[:stop]
        self.stopped = stop is not None

    def certain(self) -> str:
        """The text without an end that a stop text may begin with."""
        if self.stopped:
            return self.text
        held = max((overlap(self.text, stop) for stop in self.speech.stops), default=0)
        return self.text[: len(self.text) - held]


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


def before_calls(text: str, syntax: CallSyntax) -> str:
    """The beginning of a growing text that no call and no space before one can take back."""
    start = text.find(syntax.opening)
    kept = text[:start] if start >= 0 else text[: len(text) - overlap(text, syntax.opening)]
    return kept.rstrip()


Json = dict[str, Any]


@dataclass(eq=False)
class Choice:
    """One completion under way."""

    index: int
    job: Job
    growing: Growing
    prompt: int = 0
    """The number of the prompt in the request."""
    tell: Callable[[], None] | None = None
    """Is called by the sampling thread whenever the text may have grown."""


def hears(choice: Choice, stop_tokens: frozenset[int], token: int) -> bool:
    """Take a token of a choice as it is drawn; True where a stop text or token ends it."""
    if token in stop_tokens:
        return True
    choice.growing.add(token)
    if choice.tell is not None:
        choice.tell()
    return choice.growing.stopped


def certain(choice: Choice, calls: CallSyntax | None) -> str:
    """The part of a growing answer that can be streamed because it is final."""
    text = choice.growing.certain()
    return before_calls(text, calls) if calls else text


@dataclass(frozen=True)
class Answered:
    """One finished completion as text."""

    choice: Choice
    turn: Turn
    content: str
    calls: tuple[ToolCall, ...]
    finish: str


def answered(speech: Speech, syntax: CallSyntax | None, choice: Choice) -> Answered:
    """Read what was sampled: text up to a stop text, and calls where tools were given.

    Raises what sampling raised.
    """
    turn = choice.job.done.result()
    text, stopped = speech.text(turn.actions)
    content, calls = content_and_calls(text, syntax) if syntax else (text, ())
    ended = stopped or (turn.actions and turn.actions[-1] in speech.end_tokens)
    finish = "tool_calls" if calls else "stop" if ended else "length"
    return Answered(choice, turn, content, calls, finish)


def usage(prompt: int, turns: Sequence[Turn]) -> Json:
    """Token counts; an end token counts as a token of the completion."""
    drawn = sum(len(turn.actions) for turn in turns)
    return {"prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": prompt + drawn}


@dataclass(frozen=True)
class Envelope:
    """Writes the objects of one answer, of a chat or of a completion."""

    chat: bool
    model: str
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answers: Sequence[Answered], tokens: Json) -> Json:
        """The answer of a request that is not streamed."""
        choices = []
        for one in answers:
            body: Json = {"text": one.content}
            if self.chat:
                content = one.content or (None if one.calls else "")
                body = {"message": {"role": "assistant", "content": content}}
                if one.calls:
                    body["message"]["tool_calls"] = [_call(call) for call in one.calls]
            body |= {"index": one.choice.index, "logprobs": None, "finish_reason": one.finish}
            choices.append(body)
        return {**self._around(choices, whole=True), "usage": tokens}

    def opening(self, index: int) -> Json:
        """The first piece of a streamed chat."""
        return self._piece(index, {"delta": {"role": "assistant", "content": ""}})

    def piece(self, index: int, text: str) -> Json:
        """One piece of streamed text."""
        return self._piece(index, {"delta": {"content": text}} if self.chat else {"text": text})

    def last(self, one: Answered, sent: str) -> Json:
        """The last piece of a choice, after the text that was sent."""
        text = one.content[len(sent) :]
        delta: Json = {"content": text} if text else {}
        if one.calls:
            delta["tool_calls"] = [{"index": i, **_call(call)} for i, call in enumerate(one.calls)]
        body = {"delta": delta} if self.chat else {"text": text}
        return self._piece(one.choice.index, body, one.finish)

    def counts(self, tokens: Json) -> Json:
        """The last piece of a stream that was asked to end with its token counts."""
        return {**self._around([]), "usage": tokens}

    def _piece(self, index: int, body: Json, finish: str | None = None) -> Json:
        return self._around([{"index": index, **body, "finish_reason": finish}])

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
    made = {"name": call.name, "arguments": json_text(dict(call.arguments))}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": made}


def json_text(value: Any) -> str:
    """A value as JSON that can be sent: half a surrogate pair stays the escape that it was."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if sendable(text) else json.dumps(value, allow_nan=False)


MOST_CHOICES = 64
"""Completions of one request, prompts times `n`."""
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
    **dict.fromkeys(("repetition_penalty", "length_penalty", "best_of"), (1,)),
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


class Refusal(RunFailure):
    """A request that is answered with an error in OpenAI's shape."""

    def __init__(
        self,
        problem: str,
        parameter: str | None = None,
        *,
        code: str = "invalid_value",
        status: int = 400,
    ):
        """`code` is one of OpenAI's words for what is wrong; `status` is HTTP's."""
        super().__init__(problem)
        self.status, self.code, self.parameter = status, code, parameter

    def body(self) -> dict[str, Any]:
        """The error as OpenAI writes it."""
        server = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = KINDS.get(self.status, server)
        known = {"message": str(self), "type": kind, "param": self.parameter, "code": self.code}
        return {"error": known}


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
    tool_choice: str | None = None
    max_completion_tokens: Count | None = None


class CompletionRequest(Asking):
    """The body of `POST /v1/completions`."""

    prompt: str | list[str] | list[int] | list[list[int]]


Body = TypeVar("Body", bound=Asking)


def read_request(kind: type[Body], body: bytes) -> Body:
    """The request in a body; what is not known in it has no effect. Raises Refusal (400) that names
    the parameter."""
    try:
        value = load_json(body.decode("utf-8"))
        # A lone surrogate passes the JSON parser and breaks the tokenizer later.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise Refusal(f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise Refusal("the body is no JSON object", code="invalid_json")
    for name in filter(REFUSED.__contains__, value):
        # For Python 0 is False; of log-probabilities 0 asks for those of the drawn tokens.
        wanted, typed = value[name], isinstance(value[name], bool)
        alike = (w == wanted and isinstance(w, bool) is typed for w in REFUSED[name])
        if wanted is not None and not any(alike):
            problem = f"{name}: not done here; servers of an exported checkpoint do it"
            raise Refusal(problem, name, code="unsupported_parameter")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
        name = path.partition(".")[0] or None
        raise Refusal(f"{path}: {first['msg']}", name, code=code) from error


def is_dict(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


@dataclass(frozen=True)
class Asked:
    """A request made ready."""

    request: Asking
    choices: tuple[Choice, ...]
    speech: Speech
    calls: CallSyntax | None = None
    """Parser of calls in the answer; None if calls are left as text."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each once."""
        return sum({choice.prompt: len(choice.job.context) for choice in self.choices}.values())


def ask_chat(served: Served, request: ChatRequest) -> Asked:
    """A chat made ready. Raises Refusal (400)."""
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
        raise Refusal(problem, name) from error
    except RenderingError as error:
        raise Refusal(str(error), "messages") from error
    limit = request.max_completion_tokens or request.max_tokens
    return ready(served, request, [context], limit, None, served.calls if shown else None)


def with_arguments(messages: list[Any]) -> list[Any]:
    """The messages with the calls that clients send without arguments, absent or null, given none:
    a data set that lacks them is refused, a client is not."""
    filled = copy.deepcopy(messages)
    for message in filled:
        for call in (message.get("tool_calls") or ()) if is_dict(message) else ():
            function = call.get("function") if is_dict(call) else None
            if is_dict(function) and function.get("arguments") is None:
                function["arguments"] = {}
    return filled


def ask_completion(served: Served, request: CompletionRequest) -> Asked:
    """A completion made ready. Raises Refusal (400)."""
    prompts: Any = request.prompt
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        prompts = [prompts]
    contexts = [prompt_tokens(served, prompt) for prompt in prompts]
    return ready(served, request, contexts, request.max_tokens, COMPLETION_TOKENS, None)


def prompt_tokens(served: Served, prompt: str | Sequence[int]) -> tuple[int, ...]:
    """The tokens of one prompt. Raises Refusal for an id that the model does not have.

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
        raise Refusal(f"prompt: token ids are 0 to {size - 1}", "prompt")
    return tuple(prompt)


def refuse_endless(served: Served, texts: Sequence[str], parameter: str) -> None:
    """Raise Refusal for texts that have too many tokens even if each is the longest there is.

    Time and memory do not grow with what was sent.
    """
    if sum(map(len, texts)) > served.longest_token * served.context_tokens:
        problem = f"the model's context holds {served.context_tokens} tokens, and there are more"
        raise Refusal(problem, parameter, code="context_length_exceeded")


def ready(
    served: Served,
    request: Asking,
    contexts: Sequence[tuple[int, ...]],
    limit: int | None,
    default: int | None,
    calls: CallSyntax | None,
) -> Asked:
    """Jobs for every prompt and choice. Raises Refusal where the context is too small."""
    count = request.n or 1
    if not contexts or len(contexts) * count > MOST_CHOICES:
        raise Refusal(f"prompt: 1 to {MOST_CHOICES} completions in one request", "prompt")
    stop_tokens = frozenset(request.stop_token_ids or ())
    ends = served.end_tokens | stop_tokens
    speech = Speech(served.tokenizer, ends, request.stops, request.skip_special_tokens)
    seed = secrets.randbits(32) if request.seed is None else request.seed
    choices = []
    for prompt, context in enumerate(contexts):
        sampling = Sampling(
            TEMPERATURE if request.temperature is None else request.temperature,
            room(served, context, limit, default),
            request.top_p or 1.0,
            max(request.top_k or 0, 0),
        )
        for sample in range(count):
            job = Job(context, SampleKey(seed, f"prompt {prompt}", sample), sampling)
            choice = Choice(len(choices), job, Growing(speech), prompt)
            if request.stream or request.stops or stop_tokens:
                job.hears = partial(hears, choice, stop_tokens)
            choices.append(choice)
    return Asked(request, tuple(choices), speech, calls)


def room(served: Served, context: Sequence[int], limit: int | None, default: int | None) -> int:
    """The most tokens of the answer. Raises Refusal where prompt and answer do not fit."""
    left = served.context_tokens - len(context)
    wanted = limit or (left if default is None else min(default, left))
    if not context:
        raise Refusal("the prompt is empty", "prompt")
    if left < 1 or wanted > left:
        problem = (
            f"the prompt has {len(context)} tokens and {max(wanted, 1)} are asked for, but the "
            f"model's context holds {served.context_tokens}"
        )
        raise Refusal(problem, "messages", code="context_length_exceeded")
    return wanted
