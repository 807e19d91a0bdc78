"""One request from jobs to its answer: whole, or as the events of a stream.

A client that goes away ends its jobs. What the pieces say is `replies`' part.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import CancelledError
from typing import Protocol

from assay.data.episode import Turn
from assay.lab.serving.asking import Asked, Choice
from assay.lab.serving.batching import Batcher
from assay.lab.serving.replies import (
    CHAT,
    Answered,
    Envelope,
    Json,
    answered,
    certain,
    error_body,
)
from assay.lab.serving.requests import Refusal

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
        return [answered(asked, c, turn) for c, turn in zip(asked.choices, turns, strict=True)]
    except (CancelledError, asyncio.CancelledError) as error:
        raise Refusal(503, STOPPING, code="server_stopping") from error
    except Refusal:
        raise
    except Exception as error:
        ledger.report(error)
        raise Refusal(500, FAILED, code="internal_error") from error
    finally:
        leave(asked)


async def stream(
    batcher: Batcher, asked: Asked, envelope: Envelope, ledger: Ledger
) -> AsyncIterator[str]:
    """The events of a streamed answer; the last is [DONE], or an error where sampling failed."""
    loop = asyncio.get_running_loop()
    grown: asyncio.Queue[tuple[Choice, str | None]] = asyncio.Queue()

    def tell(choice: Choice) -> None:
        loop.call_soon_threadsafe(grown.put_nowait, (choice, certain(asked, choice)))

    def over(choice: Choice) -> None:
        loop.call_soon_threadsafe(grown.put_nowait, (choice, None))

    for choice in asked.choices:
        choice.tell = tell
        choice.job.done.add_done_callback(lambda _, choice=choice: over(choice))
        batcher.submit(choice.job)
    try:
        async for value in pieces(asked, envelope, grown):
            yield event(value)
        ledger.count(asked, [choice.job.done.result() for choice in asked.choices])
        yield "data: [DONE]\n\n"
    except (CancelledError, asyncio.CancelledError):
        yield event(error_body(Refusal(503, STOPPING, code="server_stopping")))
    except Exception as error:
        ledger.report(error)
        yield event(error_body(Refusal(500, FAILED, code="internal_error")))
    finally:
        leave(asked)


async def pieces(
    asked: Asked, envelope: Envelope, grown: "asyncio.Queue[tuple[Choice, str | None]]"
) -> AsyncIterator[Json]:
    """The objects of a stream until every choice is over. Raises what sampling raised."""
    shape, sent = envelope.shape, dict.fromkeys(range(len(asked.choices)), "")
    if shape is CHAT:
        for choice in asked.choices:
            yield envelope.piece(choice.index, {"delta": {"role": "assistant", "content": ""}})
    turns: list[Turn] = []
    while len(turns) < len(asked.choices):
        choice, text = await grown.get()
        index = choice.index
        if text is None:
            turns.append(choice.job.done.result())
            one = answered(asked, choice, turns[-1])
            yield envelope.piece(index, shape.last(one, sent[index]), one.finish)
        elif len(text) > len(sent[index]):
            fresh, sent[index] = text[len(sent[index]) :], text
            yield envelope.piece(index, shape.delta(fresh))
    if asked.request.with_usage:
        yield envelope.counts(asked, turns)


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
