"""Tells a page that its runs recorded something, as server-sent events.

The events carry no numbers: the page asks for itself again, so that there is one way to render it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from urllib.parse import urlencode

from assay.data.hashing import sha256_text
from assay.errors import AssayError
from assay.runs.run_directory import RunDirectory
from assay.runs.status import STATUS, read_status
from assay.view.window import Window, stamp_of, stamps_of

EVERY = 1.0
"""Seconds between two looks at the files."""
SILENCE = 15
"""Looks without a change after which a line is sent all the same, so that nobody hangs up."""


def live_address(window: Window, names: Sequence[str]) -> str:
    """Where a page asks for changes of some runs, or of all, since it was made; "" where none of
    them runs. To be called before the page reads anything."""
    alive, _ = now = state(window, names)
    pairs = [("run", name) for name in names]
    return "/live?" + urlencode([*pairs, ("seen", digest(now))]) if alive else ""


def digest(now: Hashable) -> str:
    """A state in a word."""
    return sha256_text(repr(now))[:12]


async def changes(
    window: Window, names: Sequence[str], seen: str, gone: Callable[[], Awaitable[bool]]
) -> AsyncIterator[str]:
    """An event whenever one of some runs (LAB/NAME/ID; else all) changes, the first one where they
    have since the state `seen`, until the reader left or the server stops.

    "ended" is the last one, when none of them runs any more.
    """
    before, quiet = seen, 0
    yield "retry: 3000\n\n"
    while not (window.closing.is_set() or await gone()):
        found = await asyncio.to_thread(state, window, names)
        if not found[0]:
            yield "event: ended\ndata: \n\n"
            return
        if (now := digest(found)) != before:
            yield "event: grown\ndata: \n\n"
            before, quiet = now, 0
        elif (quiet := quiet + 1) % SILENCE == 0:
            yield ": still here\n\n"
        await asyncio.sleep(EVERY)


def state(window: Window, names: Sequence[str]) -> tuple[bool, Hashable]:
    """Whether one of the runs is running, and what changes with what they record; of all runs only
    what their list shows."""
    if not names:
        every = (run for _, run in window.everywhere())
        return True, tuple(stamps_of(run.path / STATUS, run.metrics) for run in every)
    runs = [named(window, name)[1] for name in names]
    return any(map(running, runs)), tuple((running(run), stamp_of(run)) for run in runs)


def named(window: Window, name: str) -> tuple[str, RunDirectory]:
    """A run by LAB/NAME/ID. Raises RunNotFound."""
    lab, _, rest = name.partition("/")
    return lab, window.run(lab, rest)


def running(run: RunDirectory) -> bool:
    """Whether a process executes the run."""
    try:
        return read_status(run.path).status == "running"
    except AssayError:  # a damaged run does not run
        return False
