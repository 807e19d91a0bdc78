"""Parses requests in OpenAI's format, refuses what this server does not do, and makes jobs of them.

An unsupported parameter that would change the answer is refused by name; an unknown one is ignored.
Runs no model.
"""

import copy
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeGuard, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.data.conversation import parse_messages
from assay.data.json_files import load_json
from assay.data.loaded import DataError, Record
from assay.data.renderings.template import RenderingError
from assay.data.row import Message
from assay.data.tools import parse_tools
from assay.errors import RunFailure
from assay.lab.evaluate.opened_model import Served
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.batcher import Job
from assay.serve.replies import Choice, Growing, Speech, hears
from assay.tasks.task import CallSyntax

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
