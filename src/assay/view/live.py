"""Tells a page that its runs recorded something, as server-sent events.

The events carry no numbers: the page asks for itself again, so that there is one way to render it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from urllib.parse import urlencode

from assay.data.hashing import sha256_text
from assay.errors import AssayError, InputError
from assay.runs.run_directory import RunDirectory
from assay.runs.status import STATUS, is_held, read_status
from assay.view.window import Window, stamp_of, stamps_of

EVERY = 1.0
"""Seconds between two looks at the files."""
SILENCE = 15
"""Looks without a change after which a line is sent all the same, so that nobody hangs up."""
DAMAGED = "damaged"
TURNED = "event: turned\ndata: \n\n"


def live_address(window: Window, names: Sequence[str]) -> str:
    """Where a page asks for changes of some runs, or of all, since it was made; "" where all of
    them are finished. To be called before the page reads anything."""
    states, _ = now = state(window, names)
    pairs = [("run", name) for name in names]
    return "/live?" + urlencode([*pairs, ("seen", digest(now))]) if unfinished(states) else ""


def digest(now: Hashable) -> str:
    """A state in a word."""
    return sha256_text(repr(now))[:12]


async def changes(
    window: Window, names: Sequence[str], seen: str, gone: Callable[[], Awaitable[bool]]
) -> AsyncIterator[str]:
    """An event whenever one of some runs (LAB/NAME/ID; else all) changes, the first one where they
    have since the state `seen`, until the reader left or the server stops.

    "turned" says that a run began, broke off, ended or is gone, "grown" that it recorded more. When
    all are finished, no more is to come; one that was killed may be resumed.
    """
    before, states, quiet = seen, None, 0
    yield "retry: 3000\n\n"
    while not (window.closing.is_set() or await gone()):
        try:
            found = await asyncio.to_thread(state, window, names)
        except InputError:  # the page itself says what is gone, once it is asked for again
            yield TURNED
            return
        turned, states = states not in (None, found[0]), found[0]
        if (now := digest(found)) != before:
            yield TURNED if turned else "event: grown\ndata: \n\n"
            before, quiet = now, 0
        if not unfinished(states):
            return
        if (quiet := quiet + 1) % SILENCE == 0:
            yield ": still here\n\n"
        await asyncio.sleep(EVERY)


def state(window: Window, names: Sequence[str]) -> tuple[Sequence[str], Hashable]:
    """The states of the runs, and what changes with what they record; of all runs only what their
    list shows."""
    if not names:
        every = [run for _, run in window.everywhere()]
        stamps = tuple(stamps_of(run.path / STATUS, run.metrics) for run in every)
        return [str(is_held(run.path)) for run in every] or ["none"], stamps
    runs = [named(window, name)[1] for name in names]
    return list(map(state_of, runs)), tuple(map(stamp_of, runs))


def unfinished(states: Sequence[str]) -> bool:
    """Whether one of the runs may go on; a damaged run does not."""
    return any(state not in ("finished", DAMAGED) for state in states)


def named(window: Window, name: str) -> tuple[str, RunDirectory]:
    """A run by LAB/NAME/ID. Raises RunNotFound."""
    lab, _, rest = name.partition("/")
    return lab, window.run(lab, rest)


def state_of(run: RunDirectory) -> str:
    """The state of a run, DAMAGED for one that does not say it."""
    try:
        return read_status(run.path).status
    except AssayError:
        return DAMAGED
