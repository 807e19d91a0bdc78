"""Runs the jobs of a request and sends the answer, complete or as the events of a stream.

A constrained request is sampled a bounded number of times: once as without the constraint and, if
that does not fit, in a batch of which the first fitting sample is the answer. If none fits, the
request is refused. Jobs of a client that has gone are cancelled; `replies` builds the chunks.
"""

import asyncio
import copy
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from assay.data.conversation import parse_messages
from assay.data.episode import Turn
from assay.data.hashing import canonical_json
from assay.data.loaded import DataError, Record
from assay.data.renderings.template import RenderingError
from assay.data.row import Message
from assay.data.tools import parse_tools
from assay.lab.evaluate.opened_model import Served
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.batcher import Batcher, Job
from assay.rollout.token_choice import LEAST_PLAIN
from assay.sandbox.limits import Limits
from assay.sandbox.pool import Worker
from assay.serve.replies import (
    CHAT,
    Answered,
    Asked,
    Choice,
    Envelope,
    Growing,
    Json,
    Speech,
    answered,
    certain,
)
from assay.serve.requests import (
    MOST_CHOICES,
    Asking,
    ChatRequest,
    CompletionRequest,
    Constraint,
    Refusal,
    bare_json,
    constraint_of,
    error_body,
    problem_of,
    texts_by_schema,
)
from assay.tasks.task import CallSyntax

TEMPERATURE = 1.0
"""OpenAI's, where a request names none."""
PIECE = 16 << 10
"""Characters that are tokenised at once where a prompt is counted."""
FEW_CHARACTERS = 1 << 20
"""A prompt up to here is tokenised whole, within seconds."""
COMPLETION_TOKENS = 16
"""OpenAI's limit of a completion request that names none; chat may fill the context."""


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


LOOK_SECONDS = 0.5
"""Seconds between checks that the client is still connected."""
STOPPING = "the server is stopping"
FAILED = "the model failed; the server's log says why"


class Ledger(Protocol):
    """Counts the work of a server."""

    def report(self, error: BaseException) -> None:
        """Sampling raised this."""
        ...

    def count(self, asked: Asked, turns: Sequence[Turn]) -> None:
        """A request was answered in full."""
        ...


async def sample_all(
    batcher: Batcher, asked: Asked, gone: Callable[[], Awaitable[bool]], ledger: Ledger
) -> list[Answered]:
    """The finished completions of a request. Raises Refusal where there are none to give."""
    for choice in asked.choices:
        batcher.submit(choice.job)
    waiting = asyncio.gather(*(finished(choice) for choice in asked.choices))
    try:
        while not (await asyncio.wait({waiting}, timeout=LOOK_SECONDS))[0]:
            if await gone():
                raise Refusal(499, "the client went away", code="cancelled")
        turns = waiting.result()
        ledger.count(asked, turns)
        return [
            await asyncio.to_thread(answered, asked, choice, turn)
            for choice, turn in zip(asked.choices, turns, strict=True)
        ]
    except (CancelledError, asyncio.CancelledError) as error:
        raise Refusal(503, STOPPING, code="server_stopping") from error
    except Refusal:
        raise
    except Exception as error:
        ledger.report(error)
        raise Refusal(500, FAILED, code="internal_error") from error
    finally:
        leave(asked)


@dataclass
class Feed:
    """Text of streamed choices, passed from the sampling thread to the event loop.

    Only the newest text of each is kept, so that a slow client costs no memory.
    """

    asked: Asked
    loop: asyncio.AbstractEventLoop
    news: asyncio.Event = field(default_factory=asyncio.Event)
    texts: dict[int, str] = field(default_factory=dict)
    """The final text of each choice so far."""

    def submit(self, batcher: Batcher) -> None:
        """Have the choices sampled and listen to them."""
        for choice in self.asked.choices:
            choice.tell = self.tell
            choice.job.done.add_done_callback(lambda _: self.wake())
            batcher.submit(choice.job)

    def tell(self, choice: Choice) -> None:
        """A choice may have grown."""
        text = certain(self.asked, choice)
        if len(text) > len(self.texts.get(choice.index, "")):
            self.texts[choice.index] = text
            self.wake()

    def wake(self) -> None:
        """There is something to look at."""
        self.loop.call_soon_threadsafe(self.news.set)


async def stream(
    batcher: Batcher, asked: Asked, envelope: Envelope, ledger: Ledger
) -> AsyncIterator[str]:
    """The events of a streamed answer; the last is [DONE], or an error where sampling failed."""
    feed = Feed(asked, asyncio.get_running_loop())
    try:
        feed.submit(batcher)
        async for value in pieces(asked, envelope, feed):
            yield event(value)
        ledger.count(asked, [choice.job.done.result() for choice in asked.choices])
        yield "data: [DONE]\n\n"
    except CancelledError:
        yield event(error_body(Refusal(503, STOPPING, code="server_stopping")))
    except Exception as error:
        ledger.report(error)
        yield event(error_body(Refusal(500, FAILED, code="internal_error")))
    finally:
        leave(asked)


async def pieces(asked: Asked, envelope: Envelope, feed: Feed) -> AsyncIterator[Json]:
    """The objects of a stream until every choice is over. Raises what sampling raised."""
    shape, sent = envelope.shape, dict.fromkeys(range(len(asked.choices)), "")
    if shape is CHAT:
        for choice in asked.choices:
            yield envelope.piece(choice.index, {"delta": {"role": "assistant", "content": ""}})
    left = list(asked.choices)
    while left:
        await feed.news.wait()
        feed.news.clear()
        for choice in list(left):
            index, over = choice.index, choice.job.done.done()
            text = feed.texts.get(index, "")
            if len(text) > len(sent[index]):
                fresh, sent[index] = text[len(sent[index]) :], text
                yield envelope.piece(index, shape.delta(fresh))
            if over:
                left.remove(choice)
                turn = choice.job.done.result()
                one = await asyncio.to_thread(answered, asked, choice, turn)
                yield envelope.piece(index, shape.last(one, sent[index]), one.finish)
    if asked.request.with_usage:
        yield envelope.counts(asked, [choice.job.done.result() for choice in asked.choices])


async def streamed(
    asked: Asked, envelope: Envelope, answers: Sequence[Answered]
) -> AsyncIterator[str]:
    """The events of answers that had to be complete before they were sent."""
    for one in answers:
        start = {"delta": {"role": "assistant", "content": ""}}
        yield event(envelope.piece(one.choice.index, start))
        last = await asyncio.to_thread(envelope.shape.last, one, "")
        yield event(envelope.piece(one.choice.index, last, one.finish))
    if asked.request.with_usage:
        yield event(envelope.counts(asked, [one.turn for one in answers]))
    yield "data: [DONE]\n\n"


class Stream(StreamingResponse):
    """A streamed answer whose jobs end with its connection, however that ends."""

    def __init__(self, events: AsyncIterator[str], asked: Asked, headers: Mapping[str, str]):
        """`events` are those of `stream`."""
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self.asked = asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `StreamingResponse`."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            leave(self.asked)


def event(value: Json) -> str:
    """One server-sent event."""
    return f"data: {json.dumps(value, ensure_ascii=False, allow_nan=False)}\n\n"


async def finished(choice: Choice) -> Turn:
    """Wait for the choice; cancelling the wait does not cancel the job."""
    return await asyncio.shield(asyncio.wrap_future(choice.job.done))


def leave(asked: Asked) -> None:
    """Cancel the jobs that are not finished."""
    for choice in asked.choices:
        choice.job.cancelled = True


MORE_SAMPLES = 7
"""Drawn where the first does not fit."""
CHECK_SECONDS = 5.0
"""For one check against a schema."""

Sample = Callable[[Asked], Awaitable[list[Answered]]]


@dataclass(frozen=True)
class Schemas:
    """Checks schemas and texts in a process that is killed where it takes too long."""

    worker: Worker = field(
        default_factory=lambda: Worker(
            "assay.data.json_schema:check", Limits(cpu_seconds=10, memory_bytes=1 << 30)
        )
    )
    thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="assay-schemas")
    )

    async def problem(self, schema: Mapping[str, Any], text: str | None) -> str | None:
        """Why a text does not fit; without one, nothing. Raises Refusal (400) for a bad schema."""
        arguments = {"schema": dict(schema), "text": text}
        loop = asyncio.get_running_loop()
        outcome = await loop.run_in_executor(
            self.thread, self.worker.call, arguments, CHECK_SECONDS
        )
        found = outcome.value or {}
        if outcome.failure is not None:
            where = "schema" if text is None else "text"
            found = {where: f"cannot be checked: {outcome.why or outcome.failure}"}
        if "schema" in found:
            problem = f"the schema {found['schema']}"
            raise Refusal(400, problem, code="invalid_schema", parameter="response_format")
        return found.get("text")

    def close(self) -> None:
        """End the process."""
        self.thread.shutdown()
        self.worker.close()


async def fitting(asked: Asked, sample: Sample, schemas: Schemas) -> tuple[list[Answered], int]:
    """An answer for each choice that meets the constraint, and the number of samples drawn.

    Raises Refusal: 400 for an invalid schema, 422 if no sample fits.
    """
    constraint = asked.constraint
    for schema in constraint.schemas:
        await schemas.problem(schema, None)
    found: dict[int, Answered] = {}
    drawn, last = 0, ""
    choices: Sequence[Choice] = asked.choices
    for _ in range(2):
        for one in await sample(replace(asked, choices=tuple(choices))):
            drawn += 1
            one = bare(constraint, one)
            if one.choice.index in found:
                continue
            problem = await problem_in(constraint, one, schemas)
            if problem is None:
                found[one.choice.index] = one
            else:
                last = problem
        missing = [choice for choice in asked.choices if choice.index not in found]
        if not missing:
            return [found[choice.index] for choice in asked.choices], drawn
        numbers = range(1, MORE_SAMPLES + 1)
        choices = [again(asked, choice, number) for choice in missing for number in numbers]
    problem = f"none of {1 + MORE_SAMPLES} samples is what was demanded; the last one {last}"
    raise Refusal(422, problem, code="no_fitting_answer", parameter=constraint.parameter)


def bare(constraint: Constraint, one: Answered) -> Answered:
    """The answer; the content without reasoning and fence where it is to be JSON."""
    if not constraint.must_be_json or one.calls:
        return one
    return replace(one, content=bare_json(one.content))


async def problem_in(constraint: Constraint, one: Answered, schemas: Schemas) -> str | None:
    """The violation of the constraint by an answer; None for none."""
    if problem := await asyncio.to_thread(problem_of, constraint, one.content, one.calls):
        return problem
    for schema, text in texts_by_schema(constraint, one.content, one.calls):
        if problem := await schemas.problem(schema, text):
            return f"does not fit its schema: {problem}"
    return None
