"""Samples one batch in several processes of one thread each, instead of in one of several threads.

Short prompts and small models make small products, which gain little from a second thread, and
Python between them gains nothing. A forked process shares the weights, samples its part of the
prompts and sends tokens back through a pipe; it touches nothing else. Which process samples a row
changes nothing but the last bits of the matrix products. What is sampled is `engine`'s.
"""

import json
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import torch

from assay.data.episode import Turn
from assay.models.scoring import distinct
from assay.sandbox.call_process import PR_SET_PDEATHSIG, process_control

LEAST_PROMPTS = 16
"""A process is not started for fewer prompts."""

Sample = Callable[[Sequence[int]], tuple[list[Turn], int]]
"""Samples the contexts at these places: a turn for each, and the tokens that were prefilled."""


def sample_side_by_side(
    sample: Sample, contexts: Sequence[tuple[int, ...]], processes: int
) -> tuple[list[Turn], int]:
    """One turn per context, in order, and the number of tokens that were prefilled.

    Raises what `sample` raises. What a process could not do, be it for want of memory, is done
    again in this one, where an error is everybody's to see.
    """
    parts = dealt(contexts, processes)
    with ExitStack() as stack:
        # Before forking: a pool of threads does not survive it.
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        others = [stack.enter_context(forked(sample, part, contexts)) for part in parts[1:]]
        found = [sample(parts[0])]
        for part, result in zip(parts[1:], others, strict=True):
            found.append(result() or sample(part))
    turns: dict[int, Turn] = {}
    for part, (sampled, _) in zip(parts, found, strict=True):
        turns |= zip(part, sampled, strict=True)
    return [turns[place] for place in range(len(contexts))], sum(count for _, count in found)


def dealt(contexts: Sequence[tuple[int, ...]], processes: int) -> list[list[int]]:
    """The places of the contexts in parts of about equal work; equal contexts stay together.

    As many parts as there are processes, fewer where one would have too few prompts.
    """
    groups = sorted(distinct(contexts).items(), key=lambda group: -len(group[0]))
    count = max(1, min(processes, len(groups) // LEAST_PROMPTS))
    parts: list[list[int]] = [[] for _ in range(count)]
    for number, (_, places) in enumerate(groups):
        # To and fro: the first of every round are the longest.
        turn, place = divmod(number, count)
        parts[place if turn % 2 == 0 else count - 1 - place] += places
    return parts


@contextmanager
def forked(
    sample: Sample, part: Sequence[int], contexts: Sequence[tuple[int, ...]]
) -> Iterator[Callable[[], tuple[list[Turn], int] | None]]:
    """A process that samples a part; gives what waits for its result, None where it failed.

    It ends with the block, and with this process.
    """
    parent = os.getpid()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns of threads, which torch has; the child needs none of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _work(sample, part, writing, parent)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            yield lambda: _result(pipe.read(), part, contexts)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _work(sample: Sample, part: Sequence[int], writing: int, parent: int) -> NoReturn:
    """The life of a forked process."""
    try:
        # It holds the run's lock as well, and must not outlive the process whose lock it is.
        process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            turns, prefilled = sample(part)
            said = [[t.actions, t.behaviour_logps, t.ended, t.policy_version] for t in turns]
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(json.dumps([said, prefilled]).encode())
    finally:
        # Neither the parent's buffers nor its exit handlers are this process's to run.
        os._exit(0)


def _result(
    text: bytes, part: Sequence[int], contexts: Sequence[tuple[int, ...]]
) -> tuple[list[Turn], int] | None:
    """What a process sent; None where it ended before all was sent."""
    try:
        said, prefilled = json.loads(text)
    except ValueError:
        return None
    turns = [_turn(contexts[place], *one) for place, one in zip(part, said, strict=True)]
    return turns, prefilled


def _turn(context: Any, actions: Any, logps: Any, ended: Any, version: int) -> Turn:
    mask = (True,) * len(actions)
    return Turn(context, tuple(actions), mask, tuple(logps), ended, version)
