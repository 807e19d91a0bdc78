"""One request from jobs to its answer: whole, or as the events of a stream.

A client that goes away ends its jobs. What the pieces say is `replies`' part.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Protocol

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from assay.data.episode import Turn
from assay.rollout.engines.cpu.batcher import Batcher
from assay.serve.asking import Asked, Choice
from assay.serve.replies import (
    CHAT,
    Answered,
    Envelope,
    Json,
    answered,
    certain,
    error_body,
)
from assay.serve.requests import Refusal

LOOK_SECONDS = 0.5
"""How often it is asked whether the client still waits."""
STOPPING = "the server is stopping"
FAILED = "the model failed; the server's log says why"


class Ledger(Protocol):
    """Keeps count of what a server does."""

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
    """What streamed choices have to say, from the sampling thread to the event loop.

    Only the newest text of each is kept, so that a client that reads slowly costs no memory.
    """

    asked: Asked
    loop: asyncio.AbstractEventLoop
    news: asyncio.Event = field(default_factory=asyncio.Event)
    texts: dict[int, str] = field(default_factory=dict)
    """By choice: the text that nothing can take back."""

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
    """The events of answers that had to be whole before anything of them could be sent."""
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
    """The choice's turn; giving up waiting does not touch the job."""
    return await asyncio.shield(asyncio.wrap_future(choice.job.done))


def leave(asked: Asked) -> None:
    """Nobody waits for what is still under way."""
    for choice in asked.choices:
        choice.job.cancelled = True
