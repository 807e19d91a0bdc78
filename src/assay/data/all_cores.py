"""Does the same work on many items in forked processes, one for each core."""

import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Value = TypeVar("Value")

TOGETHER = 16
"""Items whose results are sent at once."""


def on_all_cores(
    work: Callable[[int], Value], places: Sequence[int], cores: int
) -> Iterator[Value]:
    """What `work` gives for each place, in order; it ends early where a process was killed or
    failed, and then the caller does the rest itself, where the same fails again and is told."""
    context = get_context("fork")
    parts = [places[at : at + TOGETHER] for at in range(0, len(places), TOGETHER)]
    receivers: list[Connection] = []
    processes: list[Any] = []
    # Whoever forks says so to the tokenizers' library; its texts come one at a time.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        for number in range(min(cores, len(parts))):
            receiver, sender = context.Pipe(duplex=False)
            receivers.append(receiver)
            own = parts[number :: min(cores, len(parts))]
            process = context.Process(target=_serve, args=(work, own, sender, receivers))
            with warnings.catch_warnings():  # of other threads, whose locks the child does not take
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            sender.close()
            processes.append(process)
        with suppress(EOFError, OSError):
            for number in range(len(parts)):
                yield from receivers[number % len(receivers)].recv()
    finally:
        for process in processes:
            process.kill()
            process.join()
        for receiver in receivers:
            receiver.close()


def _serve(
    work: Callable[[int], Any],
    parts: Sequence[Sequence[int]],
    sender: Connection,
    receivers: Sequence[Connection],
) -> None:
    """A process: without its parent, which alone may read the pipes, the next write ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for receiver in receivers:
        receiver.close()
    with suppress(Exception):  # the parent meets the same, and tells it
        for part in parts:
            sender.send([work(place) for place in part])
