"""Several processes draw what one draws, and none of them is left behind or missed."""

import os
import signal
from pathlib import Path

import pytest
import torch

from assay.data.episode import Turn
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu import sampler
from assay.rollout.engines.cpu.sampler import (
    LEAST_PROMPTS,
    LocalSampler,
    dealt,
    sample_side_by_side,
    sample_turns,
)
from tests.few import few
from tests.tiny import tiny_model

ENDS = frozenset({7})
PROMPTS = [tuple(5 + (i * j) % 40 for j in range(1, 3 + i % 9)) for i in range(3 * LEAST_PROMPTS)]
CONTEXTS = [*PROMPTS, *PROMPTS[:10]]
KEYS = [SampleKey(0, str(place), 0) for place in range(len(CONTEXTS))]


def children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2, "the threads that training has are given back"
    torch.set_num_threads(before)


@few("temperature", [1.0, 0.0], fast=1)
@few("processes", [2, 3], fast=1)
def test_several_processes_draw_what_one_draws(two_threads, temperature, processes):
    model, sampling = tiny_model(), Sampling(temperature, 12)
    before = children()
    alone = LocalSampler(model, ENDS)
    beside = LocalSampler(model, ENDS, processes=processes)
    expected = alone.sample(CONTEXTS, KEYS, sampling, 3)
    found = beside.sample(CONTEXTS, KEYS, sampling, 3)
    assert [t.actions for t in found] == [t.actions for t in expected]
    assert [t.context for t in found] == CONTEXTS
    for one, other in zip(found, expected, strict=True):
        assert (one.ended, one.policy_version, one.loss_mask) == (other.ended, 3, other.loss_mask)
        assert one.behaviour_logps == pytest.approx(other.behaviour_logps, abs=1e-5)
        assert one.entropies == pytest.approx(other.entropies, abs=1e-5)
    assert beside.prefilled_tokens > 0
    assert children() == before


def test_every_prompt_is_dealt_once_with_its_repeats_and_the_work_is_even():
    parts = dealt(CONTEXTS, 3)
    assert len(parts) == 3
    assert sorted(place for part in parts for place in part) == list(range(len(CONTEXTS)))
    of = {place: number for number, part in enumerate(parts) for place in part}
    assert all(of[place] == of[CONTEXTS.index(c)] for place, c in enumerate(CONTEXTS))
    sizes = [sum(len(c) for c in {CONTEXTS[place] for place in part}) for part in parts]
    assert max(sizes) - min(sizes) <= max(map(len, CONTEXTS))


def test_what_a_process_could_not_do_is_done_again(two_threads, monkeypatch):
    """Killed, for want of memory for one, before it has sent all."""
    parent, done = os.getpid(), []

    def sample(places):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        done.append(len(places))
        contexts, keys = [CONTEXTS[p] for p in places], [KEYS[p] for p in places]
        return sample_turns(model, contexts, keys, Sampling(0.0, 3), ENDS)

    model = LocalSampler(tiny_model(), ENDS).model
    turns, _ = sample_side_by_side(sample, CONTEXTS, 2)
    assert len(done) == 2
    assert sum(done) == len(CONTEXTS)
    assert [turn.context for turn in turns] == CONTEXTS


def test_processes_end_with_the_one_that_started_them(tmp_path):
    """They hold the run's lock as well: a killed run can be resumed at once."""
    reading, writing = os.pipe()
    started = os.fork()
    if started == 0:

        def sample(places):
            os.write(writing, f"{os.getpid()} ".encode())
            signal.pause()
            raise AssertionError

        try:
            sample_side_by_side(sample, CONTEXTS, 2)
        finally:
            os._exit(1)
    said = ""
    while len(said.split()) < 2:
        said += os.read(reading, 100).decode()
    (helper,) = {int(word) for word in said.split()} - {started}
    os.kill(started, signal.SIGKILL)
    os.waitpid(started, 0)
    os.close(writing)
    assert os.read(reading, 1) == b"", "nobody has the pipe any more"
    assert helper != started


def test_turns_that_go_on_from_each_other_stay_in_one_process(monkeypatch):
    def refused(*_):
        raise AssertionError

    monkeypatch.setattr(sampler, "forked", refused)
    local = LocalSampler(tiny_model(), ENDS, processes=2)
    with local.conversations():
        assert len(local.sample(CONTEXTS, KEYS, Sampling(0.0, 2))) == len(CONTEXTS)
    with pytest.raises(AssertionError):
        local.sample(CONTEXTS, KEYS, Sampling(0.0, 2))


def products() -> float:
    """Large enough for torch and both of its matrix libraries to use their threads."""
    rows, weight = torch.randn(512, 576), torch.randn(1024, 576)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, 64)
    plain = torch.nn.functional.linear(rows, weight)
    packed = torch.ops.mkldnn._linear_pointwise(rows, packed, None, "swish", [], "")
    heads = torch.randn(1, 4, 256, 64)
    seen = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    return float(plain.softmax(-1).cumsum(-1).sum() + packed.sum() + seen.sum())


def test_a_process_computes_after_threads_have_been_at_work(two_threads):
    """Their pool does not survive a fork: a process that used it would wait for ever."""
    weight = torch.randn(512, 512, requires_grad=True)
    (products() * weight @ weight).sum().backward()
    parent = os.getpid()

    def sample(places):
        products()
        turns = [Turn(CONTEXTS[place], (1,), (True,), (0.0,), "stop") for place in places]
        return turns, 1 if os.getpid() == parent else 1000

    for _ in range(2):
        turns, tokens = sample_side_by_side(sample, CONTEXTS, 2)
        assert tokens == 1001, "both parts were computed, each by its own process"
        assert len(turns) == len(CONTEXTS)
        products()
