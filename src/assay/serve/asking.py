"""Turns a request into sampling jobs: prompt tokens, settings, one job for each completion.

Chat is rendered as in training and evaluation; the text of a completion request is tokenized as it
is, control tokens included. A prompt that does not fit is refused. Samples nothing.
"""

import copy
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from assay.data.conversation import parse_messages
from assay.data.hashing import canonical_json
from assay.data.loaded import DataError, Record
from assay.data.renderings.template import RenderingError
from assay.data.row import Message
from assay.data.tools import parse_tools
from assay.lab.evaluate.opened_model import Served
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.batcher import Job
from assay.rollout.token_choice import LEAST_PLAIN
from assay.serve.constraints import Constraint, constraint_of
from assay.serve.requests import (
    MOST_CHOICES,
    Asking,
    ChatRequest,
    CompletionRequest,
    Refusal,
)
from assay.serve.texts import Growing, Speech
from assay.tasks.task import CallSyntax

TEMPERATURE = 1.0
"""OpenAI's, where a request names none."""
PIECE = 16 << 10
"""Characters that are tokenised at once where a prompt is counted."""
FEW_CHARACTERS = 1 << 20
"""A prompt up to here is tokenised whole, within seconds."""
COMPLETION_TOKENS = 16
"""OpenAI's limit of a completion request that names none; chat may fill the context."""


@dataclass(eq=False)
class Choice:
    """One completion under way."""

    index: int
    job: Job
    growing: Growing
    prompt: int = 0
    """The number of the prompt in the request."""
    tell: Callable[["Choice"], None] | None = None
    """Is called by the sampling thread whenever the text may have grown."""


@dataclass(frozen=True)
class Asked:
    """A request made ready."""

    request: Asking
    choices: tuple[Choice, ...]
    speech: Speech
    calls: CallSyntax | None = None
    """Parser of calls in the answer; None if calls are left as text."""
    constraint: Constraint = Constraint()
    """The constraint on the answers."""
    ignored: tuple[str, ...] = ()
    """Parameters without effect."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each once."""
        return sum({choice.prompt: len(choice.job.context) for choice in self.choices}.values())


def ask_chat(served: Served, request: ChatRequest) -> Asked:
    """A chat made ready. Raises Refusal (400)."""
    record = Record("request", 1, {})
    try:
        tools = parse_tools(record, request.tools, "tools")
        constraint = constraint_of(
            tools, request.tool_choice, request.parallel_tool_calls, request.response_format
        )
        messages = parse_messages(record, with_arguments(request.messages), "messages")
        shown = () if request.tool_choice == "none" else tools
        refuse_endless(served, [message.content for message in messages], "messages")
        refuse_endless(served, [canonical_json(tool) for tool in shown], "tools")
        context = served.renderer.prompt(messages, shown)
    except DataError as error:
        name = (error.field or "messages").partition("[")[0]
        problem = f"{error.field}: {error.problem}" + (f" ({error.fix})" if error.fix else "")
        raise Refusal(400, problem, code="invalid_value", parameter=name) from error
    except RenderingError as error:
        raise Refusal(400, str(error), code="invalid_value", parameter="messages") from error
    limit = request.max_completion_tokens or request.max_tokens
    asked = ready(served, request, [context], limit, None, served.calls if shown else None)
    return replace(asked, constraint=constraint)


def with_arguments(messages: list[Any]) -> list[Any]:
    """The messages with the calls that clients send without arguments, absent or null, given none:
    a data set that lacks them is refused, a client is not."""
    found = copy.deepcopy(messages)
    for message in found:
        for call in (message.get("tool_calls") or ()) if isinstance(message, dict) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and function.get("arguments") is None:
                function["arguments"] = {}
    return found


def ask_completion(served: Served, request: CompletionRequest) -> Asked:
    """A completion made ready. Raises Refusal (400)."""
    contexts = [prompt_tokens(served, prompt) for prompt in prompts(request.prompt)]
    return ready(served, request, contexts, request.max_tokens, COMPLETION_TOKENS, None)


def prompts(
    given: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]],
) -> list[str | Sequence[int]]:
    """The prompts of a request: texts or lists of token ids."""
    if isinstance(given, str):
        return [given]
    if given and isinstance(given[0], int):
        return [given]  # type: ignore[list-item]
    return list(given)  # type: ignore[arg-type]


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
        problem = f"prompt: token ids are 0 to {size - 1}"
        raise Refusal(400, problem, code="invalid_value", parameter="prompt")
    return tuple(prompt)


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
        problem = f"prompt: between 1 and {MOST_CHOICES} completions in one request"
        raise Refusal(400, problem, code="invalid_value", parameter="prompt")
    stop_tokens = frozenset(request.stop_token_ids or ())
    ends = served.end_tokens | stop_tokens
    speech = Speech(served.tokenizer, ends, request.stops, request.skip_special_tokens)
    seed = secrets.randbits(32) if request.seed is None else request.seed
    choices = []
    for prompt, context in enumerate(contexts):
        sampling = settings(request, room(served, context, limit, default))
        for sample in range(count):
            job = Job(context, SampleKey(seed, f"prompt {prompt}", sample), sampling)
            choices.append(listening(request, Choice(len(choices), job, Growing(speech), prompt)))
    return Asked(request, tuple(choices), speech, calls)


def listening(request: Asking, choice: Choice) -> Choice:
    """The job of a choice. It receives tokens as they are drawn if they may end or are streamed."""
    if request.stream or request.stops or request.stop_token_ids:
        choice.job.hears = partial(hears, choice, frozenset(request.stop_token_ids or ()))
    return choice


def again(asked: Asked, choice: Choice, number: int) -> Choice:
    """Another sample of a choice, reproducible from the same seed.

    A nearly greedy choice is drawn at temperature 1, or it would give the same sample.
    """
    job = choice.job
    key = replace(job.key, row=f"{job.key.row} again {number}")
    said = job.sampling.temperature
    sampling = replace(job.sampling, temperature=TEMPERATURE if said < LEAST_PLAIN else said)
    other = Choice(
        choice.index, Job(job.context, key, sampling), Growing(asked.speech), choice.prompt
    )
    return listening(asked.request, other)


def refuse_endless(served: Served, texts: Sequence[str], parameter: str) -> None:
    """Raise Refusal for texts that cannot fit, whatever is left of them, after a part of them.

    Tokens are counted in pieces, whose borders may cost a few, until there are twice as many as
    the context holds: time and memory do not grow with what was sent.
    """
    piece, most, found = max(PIECE, served.context_tokens), 2 * served.context_tokens, 0
    if sum(map(len, texts)) <= FEW_CHARACTERS:
        return
    for text in texts:
        for begin in range(0, len(text), piece):
            part = text[begin : begin + piece]
            found += len(served.tokenizer.encode(part, add_special_tokens=False))
            if found > most:
                problem = (
                    f"the prompt has more than {most} tokens, but the model's context holds "
                    f"{served.context_tokens}"
                )
                raise Refusal(400, problem, code="context_length_exceeded", parameter=parameter)


def room(served: Served, context: Sequence[int], limit: int | None, default: int | None) -> int:
    """The most tokens of the answer. Raises Refusal where prompt and answer do not fit."""
    left = served.context_tokens - len(context)
    wanted = limit or (left if default is None else min(default, left))
    if not context:
        raise Refusal(400, "the prompt is empty", code="invalid_value", parameter="prompt")
    if left < 1 or wanted > left:
        problem = (
            f"the prompt has {len(context)} tokens and {max(wanted, 1)} are asked for, but the "
            f"model's context holds {served.context_tokens}"
        )
        raise Refusal(400, problem, code="context_length_exceeded", parameter="messages")
    return wanted


def settings(request: Asking, max_tokens: int) -> Sampling:
    """The sampling settings of a request."""
    return Sampling(
        TEMPERATURE if request.temperature is None else request.temperature,
        max_tokens,
        request.top_p or 1.0,
        max(request.top_k or 0, 0),
    )


def hears(choice: Choice, stop_tokens: frozenset[int], token: int) -> bool:
    """Take a token of a choice as it is drawn; True where a stop text or token ends it."""
    if token in stop_tokens:
        return True
    choice.growing.add(token)
    if choice.tell is not None:
        choice.tell(choice)
    return choice.growing.stopped
