"""Samples completions: every distinct prompt once, the batch kept full from a queue.

Groups of equal contexts wait in a queue, the longest first; when all rows of a group have finished,
the next takes its place. Takes and returns token ids; text is handled elsewhere. Which rows run
together never changes the tokens drawn, except through the last bits of the matrix products.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from assay.data.episode import Turn
from assay.models.inference import InferenceModel
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
        queue = deque(queued(contexts))
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


def queued(contexts: Sequence[tuple[int, ...]]) -> list[Group]:
    """Groups of at most ROWS equal contexts, the longest context first."""
    groups = [
        (context, members[first : first + ROWS])
        for context, members in distinct(contexts).items()
        for first in range(0, len(members), ROWS)
    ]
    return sorted(groups, key=lambda group: -len(group[0]))


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
