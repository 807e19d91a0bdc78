"""The sampler draws what a plain loop would draw, whatever shares its batch."""

import dataclasses

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu import sampler
from assay.rollout.engines.cpu.kv_cache import CacheShape, empty_cache
from assay.rollout.engines.cpu.sampler import LocalSampler
from tests.tiny import tiny_model

ENDS = frozenset({7, 8, 9, 10, 11, 12})
PROMPTS = [tuple(range(5, 25)), tuple(range(3, 10)), tuple(range(100, 130)), (4,)]


def sample_turns(model, contexts, keys, sampling, ends, policy_version=0):
    return LocalSampler(model, ends).sample(contexts, keys, sampling, policy_version)


def requests(group: int) -> tuple[list[tuple[int, ...]], list[SampleKey]]:
    contexts = [prompt for prompt in PROMPTS for _ in range(group)]
    keys = [SampleKey(0, str(r), g) for r in range(len(PROMPTS)) for g in range(group)]
    return contexts, keys


def test_a_turn_says_how_it_ended_and_keeps_its_end_token():
    contexts, keys = requests(4)
    turns = sample_turns(tiny_model(), contexts, keys, Sampling(1.0, 10), ENDS, policy_version=3)
    assert {turn.ended for turn in turns} == {"stop", "length"}
    for turn in turns:
        assert (turn.actions[-1] in ENDS) == (turn.ended == "stop")
        assert not set(turn.actions[:-1]) & ENDS
        assert len(turn.actions) <= 10
        assert turn.policy_version == 3
        assert len(turn.loss_mask) == len(turn.actions) == len(turn.behaviour_logps or ())
    assert dataclasses.asdict(turns[0])["context"] == contexts[0]


@given(
    alive=st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=6).filter(
        lambda rows: any(map(any, rows))
    ),
    prompt=st.integers(1, 40),
    drawn=st.integers(1, 40),
)
def test_shrinking_keeps_every_living_row_under_its_own_prompt(alive, prompt, drawn):
    flags = np.array(alive).reshape(-1)
    shape = CacheShape(1, 1, 2, torch.float64, torch.device("cpu"))
    cache = empty_cache(shape, len(alive), 6, prompt, 40)
    cache.prompt_keys[0][:] = torch.arange(len(alive))[:, None, None, None]
    cache.own_keys[0][:] = torch.arange(len(flags))[:, None, None, None]
    running = sampler.RunningRows(
        cache=cache,
        contexts=[(u,) * prompt for u in range(len(alive))],
        turn_B=np.where(flags, np.arange(len(flags)), -1),
        states_B=np.arange(len(flags), dtype=np.uint64),
        drawn_B=np.full(len(flags), drawn),
        tokens_BC=np.zeros((len(flags), 40), dtype=np.int64),
        logps_BC=np.zeros((len(flags), 40)),
        entropies_BC=np.zeros((len(flags), 40)),
        variances_BC=np.zeros((len(flags), 40)),
    )
    before = len(flags)
    sampler.shrink(running)
    turns = running.turn_B[running.alive_A]
    assert sorted(turns) == np.flatnonzero(flags).tolist()
    for row in running.alive_A:
        turn = int(running.turn_B[row])
        assert cache.own_keys[0][row].eq(turn).all() and running.states_B[row] == turn
        assert cache.prompt_keys[0][row // cache.slots].eq(turn // 6).all()
        assert running.contexts[row // cache.slots][0] == turn // 6
    assert len(running.turn_B) <= before


def test_a_watch_hears_every_token_and_ends_turns_without_touching_the_others():
    contexts, keys = requests(3)
    sampler = LocalSampler(tiny_model().double(), ENDS)
    free = sampler.sample(contexts, keys, Sampling(1.0, 30))
    heard: dict[int, list[int]] = {n: [] for n in range(len(contexts))}

    def watch(turns_A: np.ndarray, tokens_A: np.ndarray) -> np.ndarray:
        for turn, token in zip(turns_A.tolist(), tokens_A.tolist(), strict=True):
            heard[turn].append(token)
        return np.array([t % 2 == 1 and len(heard[t]) == 4 for t in turns_A.tolist()])

    watched = sampler.sample(contexts, keys, Sampling(1.0, 30), watch=watch)
    assert any(len(turn.actions) > 4 for turn in free[1::2])
    for n, (one, other) in enumerate(zip(free, watched, strict=True)):
        limit = 4 if n % 2 else 30
        assert other.actions == one.actions[:limit] == tuple(heard[n])
        cut = len(one.actions) > limit
        assert other.ended == ("length" if cut else one.ended)
