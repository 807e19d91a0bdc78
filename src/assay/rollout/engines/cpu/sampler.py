"""Samples from a module in this process, or in several where that is faster.

Every distinct prompt is computed once. Groups of equal contexts wait in a queue, the longest first;
when all rows of a group have finished, the next takes its place. Takes and returns token ids; text
is handled elsewhere. Which rows run together never changes the tokens drawn, except through the
last bits of the matrix products.

Sampling weights are a copy in the type of the products, adapters merged in fp32 and kept apart in
bf16; they are dropped when training continues and made again when needed. Small models and short
prompts make small products that gain little from a second thread, so a batch may be split over
processes of one thread each.
"""

import json
import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from assay.data.episode import Context, Turn, tokens_of
from assay.models.inference import InferenceModel, inference_model
from assay.models.matmul import moved
from assay.models.scoring import distinct
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.decode import decoder
from assay.rollout.engines.cpu.kv_cache import (
    CachedPrompts,
    Drawing,
    PrefixStore,
    RunningRows,
    cache_shape,
    empty_cache,
    nothing_drawn,
    prefill,
)
from assay.rollout.episodes import turn_finished
from assay.rollout.token_choice import draw_with_moments, key_states, uniforms
from assay.sandbox.call_process import PR_SET_PDEATHSIG, process_control

ROWS = 128
"""Completions decoded together."""
CACHE_BYTES = 2 << 30
"""Keys and values held at once, unless a single group needs more."""
PREFILL_TOKENS = 8192
"""Tokens prefilled in one pass, unless a single prompt is longer."""
REFILL_SHARE = 0.75
"""Finished rows are replaced when no more than this share of the rows is left."""
SHRINK_SHARE = 0.75
"""Once nothing waits, the cache is shrunk when it can be cut to this share or less."""

Group = tuple[tuple[int, ...], list[int]]
"""A context and the caller's turns that continue it."""

Watch = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Called with the turns that drew a token and these tokens; returns which of them end (bool)."""


@dataclass(frozen=True)
class DrawJob:
    """What decides the draws of one call, by turn."""

    states_N: np.ndarray
    drawn_N: np.ndarray
    """Tokens that each turn continues, drawn by the same key."""
    sampling: Sampling
    ends: np.ndarray
    policy_version: int
    watch: Watch | None


def job_of(
    keys: Sequence[SampleKey],
    drawn: Sequence[int] | None,
    sampling: Sampling,
    end_tokens: frozenset[int],
    policy_version: int,
    watch: Watch | None,
) -> DrawJob:
    """See `sample_turns`."""
    ends = np.array(sorted(end_tokens), dtype=np.int64)
    drawn_N = np.array([0] * len(keys) if drawn is None else drawn, dtype=np.int64)
    return DrawJob(key_states(keys), drawn_N, sampling, ends, policy_version, watch)


def sample_turns(
    model: InferenceModel,
    contexts: Sequence[tuple[int, ...]],
    keys: Sequence[SampleKey],
    sampling: Sampling,
    end_tokens: frozenset[int],
    policy_version: int = 0,
    conversations: PrefixStore | None = None,
    watch: Watch | None = None,
    drawn: Sequence[int] | None = None,
    *,
    cache_bytes: int = CACHE_BYTES,
) -> tuple[list[Turn], int]:
    """One turn per context, in order, and the number of tokens that were prefilled.

    A turn ends with an end token, which is its last action, or a stop string ("stop"), or at
    `max_tokens` or where `watch` ends it ("length"). Equal contexts, and blocks that several begin
    with, are prefilled once. What `conversations` holds is not prefilled again, and finished turns
    are added to it. `drawn` says how many tokens at the end of each context were drawn by its key:
    the turn goes on where they end. Keys and values take `cache_bytes`, unless a single group needs
    more.
    """
    job = job_of(keys, drawn, sampling, end_tokens, policy_version, watch)
    decode = decoder(model)
    turns: dict[int, Turn] = {}
    with torch.no_grad():
        groups = equal_groups(contexts, ROWS)
        queue = deque(sorted(groups, key=lambda group: -len(group[0])))
        if not queue:
            return [], 0
        prompts = CachedPrompts(model, contexts, conversations)
        running = start(model, sampling.max_tokens, queue, cache_bytes)
        while queue or len(running.alive_A):
            if queue:
                admit(job, running, queue, prompts, turns)
            else:
                shrink(running)
            if len(running.alive_A):
                take_in(job, running, prompts, turns, running.alive_A, decode(running))
    return [turns[n] for n in range(len(contexts))], prompts.prefilled


def equal_groups(contexts: Sequence[tuple[int, ...]], most: int) -> list[Group]:
    """Groups of at most so many equal contexts."""
    return [
        (context, members[first : first + most])
        for context, members in distinct(contexts).items()
        for first in range(0, len(members), most)
    ]


def start(
    model: InferenceModel, tokens: int, queue: Sequence[Group], cache_bytes: int
) -> RunningRows:
    """Empty slots for the queue: enough for ROWS rows, or fewer where memory ends."""
    shape, longest = cache_shape(model), len(queue[0][0])
    slots = max(len(members) for _, members in queue)
    prompts = prompt_slots(
        shape.token_bytes, longest, slots, tokens, waiting=len(queue), cache_bytes=cache_bytes
    )
    cache = empty_cache(shape, prompts, slots, longest, tokens)
    drawing = nothing_drawn(prompts * slots, tokens)
    return RunningRows(**drawing, cache=cache, contexts=[()] * prompts)


def prompt_slots(
    token_bytes: int,
    longest: int,
    slots: int,
    tokens: int,
    *,
    waiting: int,
    cache_bytes: int = CACHE_BYTES,
) -> int:
    """Prompts held at once, with `slots` completions of at most `tokens` each."""
    # Groups finish raggedly: with room for more prompts than fit at once, rows stay filled.
    spare = 1 if slots == 1 else 2
    each = token_bytes * (longest + slots * tokens)
    return max(1, min(waiting, -(-ROWS * spare // slots), cache_bytes // each))


def admit(
    job: DrawJob,
    running: RunningRows,
    queue: deque[Group],
    prompts: CachedPrompts,
    turns: dict[int, Turn],
) -> None:
    """Fill free prompt slots from the queue, once enough rows have finished."""
    alive, slots = len(running.alive_A), running.cache.slots
    free = np.flatnonzero((running.turn_B.reshape(-1, slots) < 0).all(axis=1))
    if not len(free) or alive > REFILL_SHARE * min(ROWS, len(running.turn_B)):
        return
    chosen: list[tuple[int, Group]] = []
    fresh = 0
    for slot in free.tolist():
        alive += slots
        fresh += len(queue[0][0]) if queue else 0
        if not queue or (chosen and (alive > max(ROWS, slots) or fresh > PREFILL_TOKENS)):
            break
        chosen.append((slot, queue.popleft()))
    rows = []
    for slot, (context, members) in chosen:
        first = slot * slots
        running.contexts[slot] = context
        running.turn_B[first : first + len(members)] = members
        rows += range(first, first + len(members))
    rows_A = np.array(rows)
    running.states_B[rows_A] = job.states_N[running.turn_B[rows_A]]
    running.drawn_B[rows_A] = 0
    logits_KV = prefill(prompts, running.cache, [(slot, group[0]) for slot, group in chosen])
    # All members of a group draw their first token from the prompt's logits.
    counts = torch.tensor([len(members) for _, (_, members) in chosen], device=logits_KV.device)
    take_in(job, running, prompts, turns, rows_A, logits_KV.repeat_interleave(counts, dim=0))


def take_in(
    job: DrawJob,
    running: RunningRows,
    prompts: CachedPrompts,
    turns: dict[int, Turn],
    rows_A: np.ndarray,
    logits_AV: Tensor,
) -> None:
    """`take`; what later turns may extend is kept."""
    slots = running.cache.slots

    def context_of(row: int, number: int) -> tuple[int, ...]:
        return running.contexts[row // slots]

    for row, number, turn in take(job, running, context_of, rows_A, logits_AV):
        turns[number] = turn
        prompts.remember(running.cache, row, turn)


def take(
    job: DrawJob,
    drawing: Drawing,
    context_of: Callable[[int, int], tuple[int, ...]],
    rows_A: np.ndarray,
    logits_AV: Tensor,
) -> list[tuple[int, int, Turn]]:
    """Draw the next token of these rows; the finished ones, with the numbers of their turns, by
    both of which their contexts are found, and the turns."""
    at_A = drawing.drawn_B[rows_A]
    number_A = drawing.turn_B[rows_A]
    uniform_A = uniforms(drawing.states_B[rows_A], at_A + job.drawn_N[number_A])
    uniform_A = moved(torch.from_numpy(uniform_A), logits_AV.device)
    drawn = draw_with_moments(logits_AV, job.sampling, uniform_A)
    columns = drawing.tokens_BC, drawing.logps_BC, drawing.entropies_BC, drawing.variances_BC
    for column, each_A in zip(columns, drawn, strict=True):
        column[rows_A, at_A] = each_A.cpu().numpy()
    drawing.drawn_B[rows_A] += 1
    token_A = drawing.tokens_BC[rows_A, at_A]
    stopped_A = np.isin(token_A, job.ends)
    if (stop := job.sampling.stop) is not None:
        texts = zip(rows_A.tolist(), (at_A + 1).tolist(), strict=True)
        stopped_A |= [stop.ends(drawing.tokens_BC[row, :count].tolist()) for row, count in texts]
    over_A = stopped_A | (at_A + 1 == job.sampling.max_tokens)
    if job.watch is not None:
        over_A |= job.watch(number_A, token_A)
    finished = []
    for place in np.flatnonzero(over_A).tolist():
        row, number, count = int(rows_A[place]), int(number_A[place]), int(at_A[place]) + 1
        actions, logps, entropies, variances = (tuple(c[row, :count].tolist()) for c in columns)
        turn = Turn(
            context=context_of(row, number),
            actions=actions,
            loss_mask=(True,) * count,
            behaviour_logps=logps,
            ended="stop" if stopped_A[place] else "length",
            policy_version=job.policy_version,
            entropies=entropies,
            variances=variances,
        )
        finished.append((row, number, turn))
        turn_finished()
    drawing.turn_B[rows_A[over_A]] = -1
    return finished


def shrink(running: RunningRows) -> None:
    """Drop slots of finished rows where that makes the cache smaller by enough."""
    alive_A, slots = running.alive_A, running.cache.slots
    prompts_A = alive_A // slots
    kept, counts = np.unique(prompts_A, return_counts=True)
    own = int(running.drawn_B[alive_A].max())
    prompt = max(len(running.contexts[u]) for u in kept)
    # Either rows stay together by prompt, or, where few are left of each, every row gets its copy.
    together = len(kept) * (prompt + int(counts.max()) * own)
    alone = len(alive_A) * (prompt + own)
    now = len(running.contexts) * (prompt + slots * own)
    if min(together, alone) > SHRINK_SHARE * now:
        return
    if alone < together:
        running.keep(prompts_A, alive_A, running.turn_B[alive_A], 1)
        return
    most = int(counts.max())
    living = running.turn_B.reshape(-1, slots)[kept] >= 0
    # A stable sort puts each prompt's living slots first.
    order = np.argsort(~living, axis=1, kind="stable")[:, :most]
    rows = (kept[:, None] * slots + order).reshape(-1)
    running.keep(kept, rows, running.turn_B[rows], most)


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
        others = [stack.enter_context(forked(sample, part)) for part in parts[1:]]
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
    sample: Sample, part: Sequence[int]
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
            yield lambda: _result(pipe.read())
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
            lines = [[getattr(turn, each.name) for each in fields(turn)] for turn in turns]
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(json.dumps([lines, prefilled]).encode())
    finally:
        # Without the parent's exit handlers and buffered output, which the fork has copies of.
        os._exit(0)


def _result(text: bytes) -> tuple[list[Turn], int] | None:
    """What a process sent; None where it ended before all was sent."""
    try:
        lines, prefilled = json.loads(text)
    except ValueError:
        return None
    turns = []
    for line in lines:
        values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in line]
        turns.append(Turn(*values))
    return turns, prefilled


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
        """One turn per context; see `sample_turns`."""
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
