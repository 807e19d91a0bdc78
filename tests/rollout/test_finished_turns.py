"""A sampler tells how many turns are finished while it samples, also from forked processes."""

import os

import torch

from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.sampler import LEAST_PROMPTS, LocalSampler
from assay.rollout.engines.plain_sampler import PlainSampler
from assay.rollout.episodes import telling
from tests.tiny import tiny_model

SAMPLING = Sampling(temperature=1.0, max_tokens=4)


def test_both_engines_tell_of_every_turn():
    for engine in (LocalSampler, PlainSampler):
        told: list[int] = []
        contexts = [(n, 2, 3) for n in range(1, 6)]
        with telling(told.append):
            engine(tiny_model(), frozenset({0})).sample(
                contexts, [SampleKey(1, str(n), 0) for n in range(5)], SAMPLING
            )
        assert told == [1, 2, 3, 4, 5]


def test_turns_of_forked_processes_are_counted_and_told_by_the_process_that_asked():
    count = 2 * LEAST_PROMPTS
    contexts = [(n + 1, 2, 3) for n in range(count)]
    keys = [SampleKey(1, str(n), 0) for n in range(count)]
    told: list[tuple[int, int]] = []
    sampler = LocalSampler(tiny_model(), frozenset({0}), torch.float32, processes=2)
    with telling(lambda done: told.append((os.getpid(), done))):
        sampler.sample(contexts, keys, SAMPLING)
    assert {pid for pid, _ in told} == {os.getpid()}
    done = [number for _, number in told]
    assert done == sorted(done) and LEAST_PROMPTS <= done[-1] <= count
