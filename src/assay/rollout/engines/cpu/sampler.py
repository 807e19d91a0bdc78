"""Samples from a module in this process, or in several where that is faster.

Sampling weights are a copy in the type of the products, adapters merged in fp32 and kept apart in
bf16; they are dropped when training continues and made again when needed. Small models and short
prompts make small products that gain little from a second thread, so a batch may be split over
processes of one thread each. Tokens are drawn in `engine`.
"""

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NoReturn

import torch
from torch import nn

from assay.data.episode import Context, Ended, Turn, tokens_of
from assay.models.inference import InferenceModel, inference_model
from assay.models.scoring import distinct
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.engine import CACHE_BYTES, Watch, sample_turns
from assay.rollout.engines.cpu.kv_cache import PrefixStore, cache_shape
from assay.sandbox.call_process import PR_SET_PDEATHSIG, process_control

LEAST_PROMPTS = 16
"""A process is not started for fewer prompts."""

Sample = Callable[[Sequence[int]], tuple[list[Turn], int]]
"""Samples the contexts at these places: a turn for each, and the tokens that were prefilled."""


def sample_side_by_side(
    sample: Sample, contexts: Sequence[tuple[int, ...]], processes: int
) -> tuple[list[Turn], int]:
    """One turn per context, in order, and the number of tokens that were prefilled.

    Raises what `sample` raises. A part whose process failed, for lack of memory for example, is
    sampled again in this process, which raises its error.
    """
    parts = dealt(contexts, processes)
    with ExitStack() as stack:
        # Before forking: torch's thread pool does not survive a fork.
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        others = [stack.enter_context(forked(sample, part, contexts)) for part in parts[1:]]
        shares = [sample(parts[0])]
        for part, result in zip(parts[1:], others, strict=True):
            shares.append(result() or sample(part))
    turns: dict[int, Turn] = {}
    for part, (sampled, _) in zip(parts, shares, strict=True):
        turns |= zip(part, sampled, strict=True)
    return [turns[place] for place in range(len(contexts))], sum(count for _, count in shares)


def dealt(contexts: Sequence[tuple[int, ...]], processes: int) -> list[list[int]]:
    """The places of the contexts in parts of about equal work; equal contexts stay together.

    As many parts as there are processes, fewer where one would have too few prompts.
    """
    groups = sorted(distinct(contexts).items(), key=lambda group: -len(group[0]))
    count = max(1, min(processes, len(groups) // LEAST_PROMPTS))
    parts: list[list[int]] = [[] for _ in range(count)]
    for number, (_, places) in enumerate(groups):
        # The direction alternates, because the first of every round is the longest.
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
        # Python warns about forking with threads; the child does not use torch's.
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
    """The forked process: sample the part, send the turns, exit."""
    try:
        # The child inherits the run's lock, so it must not outlive its parent.
        process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            turns, prefilled = sample(part)
            lines = [
                [t.actions, t.behaviour_logps, t.ended, t.policy_version, t.entropies, t.variances]
                for t in turns
            ]
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(json.dumps([lines, prefilled]).encode())
    finally:
        # Without the parent's exit handlers and buffered output, which the fork has copies of.
        os._exit(0)


def _result(
    text: bytes, part: Sequence[int], contexts: Sequence[tuple[int, ...]]
) -> tuple[list[Turn], int] | None:
    """What a process sent; None where it ended before all was sent."""
    try:
        lines, prefilled = json.loads(text)
    except ValueError:
        return None
    turns = [_turn(contexts[place], *one) for place, one in zip(part, lines, strict=True)]
    return turns, prefilled


def _turn(
    context: tuple[int, ...],
    actions: list[int],
    logps: list[float],
    ended: Ended,
    version: int,
    *moments: list[float] | None,
) -> Turn:
    mask = (True,) * len(actions)
    known = [None if values is None else tuple(values) for values in moments]
    return Turn(context, tuple(actions), mask, tuple(logps), ended, version, *known)


class LocalSampler:
    """Samples in this process; `module`'s weights are laid out for it when they are needed."""

    def __init__(
        self,
        module: nn.Module,
        end_tokens: frozenset[int],
        compute: torch.dtype | None = None,
        processes: int = 1,
    ):
        """`compute` is the type products run in; the module's own without it.

        With several `processes`, batches that are large enough are sampled in that many
        (`sample_side_by_side`), on a CPU under Linux only, and not where turns extend earlier ones.
        """
        self.module = module
        self.processes = processes
        self.end_tokens = end_tokens
        self.compute = compute or next(module.parameters()).dtype
        self.prefilled_tokens = 0
        """Prompt tokens computed so far; what was shared or kept counts once."""
        self._model: InferenceModel | None = None
        self._store: PrefixStore | None = None

    def refresh(self, module: nn.Module) -> None:
        """The weights changed: lay them out anew before the next sample."""
        self.module = module
        self.sleep()

    def sleep(self) -> None:
        """Drop the laid-out weights, and keys and values made with them."""
        self._model = None
        if self._store is not None:
            self._store = PrefixStore()

    @property
    def model(self) -> InferenceModel:
        """The weights laid out for sampling."""
        if self._model is None:
            self._model = inference_model(self.module, self.compute)
        return self._model

    @contextmanager
    def conversations(self) -> Iterator[int]:
        """Inside, keep finished turns in a store for the turns that extend them.

        Gives the number of tokens that the store holds.
        """
        self._store = PrefixStore()
        try:
            yield self._store.budget // cache_shape(self.model).token_bytes
        finally:
            self._store = None

    def sample(
        self,
        contexts: Sequence[Context],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int = 0,
        watch: Watch | None = None,
        drawn: Sequence[int] | None = None,
    ) -> list[Turn]:
        """One turn per context; see `rollout.engines.cpu.engine.sample_turns`."""
        model, prompts = self.model, [tokens_of(context) for context in contexts]

        def some(places: Sequence[int]) -> tuple[list[Turn], int]:
            return sample_turns(
                model,
                [prompts[place] for place in places],
                [keys[place] for place in places],
                sampling,
                self.end_tokens,
                policy_version,
                self._store,
                watch,
                None if drawn is None else [drawn[place] for place in places],
                cache_bytes=CACHE_BYTES // processes,
            )

        alone = self._store is not None or watch is not None or model.device.type != "cpu"
        # Other systems' libraries do not survive a fork.
        alone = alone or sys.platform != "linux"
        processes = 1 if alone else self.processes
        if processes == 1:
            turns, prefilled = some(range(len(prompts)))
        else:
            turns, prefilled = sample_side_by_side(some, prompts, processes)
        self.prefilled_tokens += prefilled
        return turns
