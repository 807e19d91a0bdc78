"""Makes sampling jobs of requests in OpenAI's format, and reads their text while it grows.

Runs no model and knows no HTTP.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.agents.protocol import (
    ChatRequest,
    CompletionRequest,
    FinishedCompletion,
    Json,
    RequestParameters,
    finished_completion,
    read_chat,
    refusal,
)
from assay.data.renderings.template import RenderingError
from assay.data.row import Message
from assay.lab.evaluate.opened_model import Served
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.batcher import SamplingJob
from assay.tasks.task import CallSyntax

UNFINISHED = "\ufffd"
"""The decoded form of a character with missing bytes."""


def overlap(text: str, word: str) -> int:
    """The number of characters at the end of `text` that begin `word`, at most all but one."""
    most = min(len(text), len(word) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(word[:n])), 0)


@dataclass(eq=False)
class ReadyRequest:
    """A request made ready, and the text of its answer while its tokens come."""

    request: RequestParameters
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
        ended = bool(turn.actions) and turn.actions[-1] in self.end_tokens
        return finished_completion(self.decode(turn.actions), self.request.stops, ended, self.calls)

    def usage(self) -> Json:
        """Token counts of a finished answer; an end token counts as a token of the completion."""
        prompt, drawn = len(self.job.context), len(self.job.done.result().actions)
        total = prompt + drawn
        return {"prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": total}


TEMPERATURE = 1.0
"""OpenAI's, where a request names none."""
COMPLETION_TOKENS = 16
"""OpenAI's limit of a completion request that names none; chat may fill the context."""


def ask_chat(served: Served, request: ChatRequest) -> ReadyRequest:
    """A chat made ready. Raises a refusal (400)."""
    messages, tools = read_chat(request)
    refuse_endless(served, [message.content for message in messages], "messages")
    refuse_endless(served, [json.dumps(tool) for tool in tools], "tools")
    try:
        context = served.renderer.prompt(messages, tools)
    except RenderingError as error:
        raise refusal(str(error), "messages") from error
    limit = request.max_completion_tokens or request.max_tokens
    return ready(served, request, context, limit, None, served.calls if tools else None)


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
