"""Samples completions from a Transformers causal language model, each distinct prompt once.

Contexts are worked off in waves: the wave's distinct prompts are prefilled in one packed row,
then all its completions decode together; finished rows are retired and the rest moved up. Token
in, token out: text is neither decoded nor encoded here. Which rows share a wave never changes
what is drawn, except through the last bits of the matrix products.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from assay.data.episode import Turn
from assay.models.attention import TreePlan
from assay.models.scoring import build_tree, distinct
from assay.rl.policy import SampleKey
from assay.rollout.cache import DecodePlan, PrefillPlan, WaveCache
from assay.rollout.sampling import Sampling, draw, key_states, uniforms

WAVE_ROWS = 64
"""Completions decoded together."""
WAVE_TOKENS = 32768
"""Prompt tokens (padded) and suffix tokens held by one wave at most, unless one group is larger."""
LEAST_ROWS = 8
"""Fewer rows than this give other last bits in fp32 matrix products, so a wave is filled up."""
RETIRE_SHARE = 0.75
"""A wave is moved up when it would shrink to this share of its rows or less."""


@dataclass
class Wave:
    """The rows that decode together; row r = prompt * slots + slot."""

    cache: WaveCache
    prompt_lengths_U: Tensor
    turn_B: Tensor
    """The caller's turn in each row; -1 in a slot that is empty or finished."""
    states_B: np.ndarray
    tokens: dict[int, list[int]] = field(default_factory=dict)
    logps: dict[int, list[float]] = field(default_factory=dict)


def sample_turns(
    model: PreTrainedModel,
    contexts: Sequence[tuple[int, ...]],
    keys: Sequence[SampleKey],
    sampling: Sampling,
    end_tokens: frozenset[int],
    policy_version: int = 0,
) -> list[Turn]:
    """One turn per context, in order. Equal contexts are prefilled once.

    A turn ends with an end token, which is its last action ("stop"), or at `max_tokens`
    ("length"). The model is used as it is: evaluation mode and dtype are the caller's business.
    """
    states = key_states(keys)
    turns: dict[int, Turn] = {}
    with torch.no_grad():
        for members in waves(contexts, sampling.max_tokens):
            wave = decode(model, members, states, sampling, end_tokens)
            for n in (n for indices in members.values() for n in indices):
                turns[n] = finished_turn(
                    contexts[n], wave.tokens[n], wave.logps[n], end_tokens, policy_version
                )
    return [turns[n] for n in range(len(contexts))]


def finished_turn(
    context: tuple[int, ...],
    tokens: list[int],
    logps: list[float],
    end_tokens: frozenset[int],
    policy_version: int,
) -> Turn:
    """The turn of a finished row."""
    return Turn(
        context=context,
        actions=tuple(tokens),
        loss_mask=(True,) * len(tokens),
        behaviour_logps=tuple(logps),
        ended="stop" if tokens[-1] in end_tokens else "length",
        policy_version=policy_version,
    )


def waves(
    contexts: Sequence[tuple[int, ...]], max_tokens: int
) -> Iterator[dict[tuple[int, ...], list[int]]]:
    """Groups of equal contexts, put together by length so that little is padded."""
    groups = [
        (context, members[first : first + WAVE_ROWS])
        for context, members in distinct(contexts).items()
        for first in range(0, len(members), WAVE_ROWS)
    ]
    wave: list[tuple[tuple[int, ...], list[int]]] = []
    for group in sorted(groups, key=lambda group: len(group[0])):
        grown = [*wave, group]
        slots = max(len(members) for _, members in grown)
        held = len(grown) * (len(group[0]) + slots * max_tokens)
        if wave and (len(grown) * slots > WAVE_ROWS or held > WAVE_TOKENS):
            yield dict(wave)
            wave = [group]
        else:
            wave = grown
    if wave:
        yield dict(wave)


def prefill(
    model: PreTrainedModel, prompts: Sequence[tuple[int, ...]]
) -> tuple[Tensor, PrefillPlan]:
    """Logits (U, V) after each prompt, and the keys and values of all prompt tokens, packed."""
    starts = np.cumsum([0] + [len(prompt) for prompt in prompts])
    trees = tuple(
        build_tree(int(start), len(prompt), [])
        for start, prompt in zip(starts[:-1], prompts, strict=True)
    )
    plan = PrefillPlan(TreePlan(trees), [], [])
    logits_1UV = model(
        input_ids=torch.tensor([[t for prompt in prompts for t in prompt]], device=model.device),
        position_ids=torch.tensor(
            [[p for prompt in prompts for p in range(len(prompt))]], device=model.device
        ),
        use_cache=False,
        logits_to_keep=torch.as_tensor(starts[1:] - 1, device=model.device),
        plan=plan,
    ).logits
    return logits_1UV[0], plan


def padded_prompts(packed_JTD: Tensor, lengths: Sequence[int]) -> Tensor:
    """Packed prompt keys or values as (U, J, P, D), zero-padded on the right."""
    longest = max(lengths)
    parts = [
        torch.nn.functional.pad(part, (0, 0, 0, longest - part.shape[1]))
        for part in packed_JTD.split(list(lengths), dim=1)
    ]
    return torch.stack(parts)


def start_wave(
    model: PreTrainedModel,
    members: dict[tuple[int, ...], list[int]],
    states: np.ndarray,
    max_tokens: int,
) -> tuple[Wave, Tensor]:
    """A wave after prefill, and the logits (B, V) of every row's first token."""
    prompts = list(members)
    lengths = [len(prompt) for prompt in prompts]
    slots = max(*map(len, members.values()), -(-LEAST_ROWS // len(prompts)))
    logits_UV, plan = prefill(model, prompts)
    keys = [padded_prompts(key, lengths) for key in plan.keys]
    values = [padded_prompts(value, lengths) for value in plan.values]
    rows = len(prompts) * slots
    shape = (rows, keys[0].shape[1], max_tokens, keys[0].shape[3])
    lengths_U = torch.tensor(lengths, device=model.device)
    cache = WaveCache(
        prompt_keys=keys,
        prompt_values=values,
        suffix_keys=[key.new_empty(shape) for key in keys],
        suffix_values=[value.new_empty(shape) for value in values],
        hidden_UP=torch.arange(max(lengths), device=model.device)[None] >= lengths_U[:, None],
        slots=slots,
    )
    turn_B = torch.full((rows,), -1)
    for u, indices in enumerate(members.values()):
        turn_B[u * slots : u * slots + len(indices)] = torch.tensor(indices)
    states_B = states[turn_B.clamp(min=0).numpy()]
    wave = Wave(cache, lengths_U, turn_B, states_B)
    for turn in turn_B[turn_B >= 0].tolist():
        wave.tokens[turn], wave.logps[turn] = [], []
    return wave, logits_UV.repeat_interleave(slots, dim=0)


def decode(
    model: PreTrainedModel,
    members: dict[tuple[int, ...], list[int]],
    states: np.ndarray,
    sampling: Sampling,
    end_tokens: frozenset[int],
) -> Wave:
    """Decode one wave to the end of its last row."""
    wave, logits_BV = start_wave(model, members, states, sampling.max_tokens)
    ends = torch.tensor(sorted(end_tokens), dtype=torch.long)
    for position in range(sampling.max_tokens):
        uniform_B = uniforms(wave.states_B, np.full(len(wave.states_B), position))
        token_B, logp_B = draw(
            logits_BV, sampling, torch.from_numpy(uniform_B).to(logits_BV.device)
        )
        token_B, logp_B = token_B.cpu(), logp_B.cpu()
        record(wave, token_B, logp_B)
        wave.turn_B = wave.turn_B.masked_fill(torch.isin(token_B, ends), -1)
        if position + 1 == sampling.max_tokens or not bool((wave.turn_B >= 0).any()):
            break
        token_B = retire(wave, token_B)
        logits_BV = step(model, wave, token_B)
    return wave


def record(wave: Wave, token_B: Tensor, logp_B: Tensor) -> None:
    """Append this position's tokens to the turns that are still going."""
    for turn, token, logp in zip(
        wave.turn_B.tolist(), token_B.tolist(), logp_B.tolist(), strict=True
    ):
        if turn >= 0:
            wave.tokens[turn].append(token)
            wave.logps[turn].append(logp)


def step(model: PreTrainedModel, wave: Wave, token_B: Tensor) -> Tensor:
    """Feed one token per row; logits (B, V) of the next."""
    position_U = wave.prompt_lengths_U + wave.cache.length
    logits_B1V = model(
        input_ids=token_B[:, None].to(model.device),
        position_ids=position_U.repeat_interleave(wave.cache.slots)[:, None],
        use_cache=False,
        plan=DecodePlan(wave.cache),
    ).logits
    wave.cache.length += 1
    return logits_B1V[:, 0]


def retire(wave: Wave, token_B: Tensor) -> Tensor:
    """Drop finished rows where that shrinks the wave enough.

    Returns the tokens to feed, in the new row order.
    """
    rows_B, turn_B, slots = compact(wave.turn_B, wave.cache.slots)
    if len(rows_B) > RETIRE_SHARE * len(wave.turn_B):
        return token_B
    # Row r of the old grid belongs to prompt r // old slots; each new grid row keeps one.
    prompts = (rows_B // wave.cache.slots)[::slots].to(wave.cache.hidden_UP.device)
    wave.cache.keep(prompts, rows_B.to(prompts.device), slots)
    wave.prompt_lengths_U = wave.prompt_lengths_U[prompts]
    wave.turn_B = turn_B
    wave.states_B = wave.states_B[rows_B.numpy()]
    return token_B[rows_B]


def compact(turn_B: Tensor, slots: int) -> tuple[Tensor, Tensor, int]:
    """The smallest grid for the rows that are still going: old rows, their turns, new slots.

    Either each prompt that still has rows with as many slots as the fullest of them needs, or,
    where the groups have become ragged, each row on its own with a copy of its prompt. Rows that
    only fill a grid up have turn -1.
    """
    alive_Un = (turn_B >= 0).view(-1, slots)
    prompts = alive_Un.any(dim=1).nonzero()[:, 0]
    needed = max(int(alive_Un.sum(dim=1).max()), -(-LEAST_ROWS // len(prompts)))
    alone = (turn_B >= 0).nonzero()[:, 0]
    if needed > slots or max(len(alone), LEAST_ROWS) <= RETIRE_SHARE * len(prompts) * needed:
        filling = alone[:1].repeat(max(LEAST_ROWS - len(alone), 0))
        turns = torch.cat([turn_B[alone], torch.full_like(filling, -1)])
        return torch.cat([alone, filling]), turns, 1
    # A stable sort puts each prompt's living slots first.
    order_Un = alive_Un[prompts].int().argsort(dim=1, descending=True, stable=True)[:, :needed]
    rows_B = (prompts[:, None] * slots + order_Un).flatten()
    return rows_B, turn_B[rows_B], needed
