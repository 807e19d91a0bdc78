"""What prompts have in common is computed once, and never mixed up or kept for ever."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu import kv_cache
from assay.rollout.engines.cpu.kv_cache import BLOCK, PrefixStore, cache_shape, compute, joined
from assay.rollout.engines.cpu.sampler import LocalSampler
from tests.few import few
from tests.tiny import FAMILIES, tiny_model

SYSTEM = tuple(range(10, 10 + 2 * BLOCK + 5))
TOOLS = tuple(range(100, 100 + BLOCK))
PROMPTS = [
    (*SYSTEM, 7, 8),
    (*SYSTEM, *TOOLS, 9),
    (*SYSTEM, *TOOLS, 5, 6),
    (*SYSTEM, *reversed(TOOLS), 3),
    (4, *SYSTEM),
    SYSTEM[:BLOCK],
]


def keys_values(tokens: tuple[int, ...]) -> torch.Tensor:
    """A made-up cache (3 layers, 2, 1 head, T, 1) that names every position and its token."""
    line = torch.tensor(tokens, dtype=torch.float64) + 1000 * torch.arange(len(tokens))
    return line[None, None, None, :, None].expand(3, 2, 1, -1, 1)


def sample(model, contexts, ends=frozenset({3})):
    sampler = LocalSampler(model, ends)
    keys = [SampleKey(0, str(n), 0) for n in range(len(contexts))]
    return sampler.sample(contexts, keys, Sampling(1.0, 9)), sampler.prefilled_tokens


@few("family", sorted(FAMILIES))
def test_shared_beginnings_change_nothing_but_the_tokens_computed(family):
    model = tiny_model(family).double()
    together, computed = sample(model, PROMPTS)
    assert computed < sum(map(len, PROMPTS))
    # Every distinct block once, and of each prompt what follows its last shared block.
    blocks = 3
    rest = [len(p) - 2 * BLOCK for p in (PROMPTS[0], PROMPTS[3])]
    rest += [len(p) - 3 * BLOCK for p in (PROMPTS[1], PROMPTS[2])]
    assert computed == blocks * BLOCK + sum(rest) + len(PROMPTS[4]) + BLOCK
    for n, prompt in enumerate(PROMPTS):
        sampler = LocalSampler(model, frozenset({3}))
        [alone] = sampler.sample([prompt], [SampleKey(0, str(n), 0)], Sampling(1.0, 9))
        assert sampler.prefilled_tokens == len(prompt)
        assert alone.actions == together[n].actions
        assert alone.behaviour_logps == pytest.approx(together[n].behaviour_logps, abs=1e-12)


def test_a_conversation_computes_each_token_once():
    model = tiny_model().double()
    sampler = LocalSampler(model, frozenset({3}))
    fresh = LocalSampler(model, frozenset({3}))
    context, computed = SYSTEM, []
    with sampler.conversations():
        for turn in range(6):
            before = sampler.prefilled_tokens
            key = [SampleKey(0, str(turn), 0)]
            [said] = sampler.sample([context], key, Sampling(1.0, 40))
            [plain] = fresh.sample([context], key, Sampling(1.0, 40))
            assert said.actions == plain.actions
            computed.append(sampler.prefilled_tokens - before)
            context = (*context, *said.actions, *range(50, 50 + BLOCK))
    # What is new since the last turn, and at most a block and the unfed last token besides.
    assert computed[0] == len(SYSTEM)
    assert all(tokens <= 2 * BLOCK + 1 for tokens in computed[1:])
    after = sampler.prefilled_tokens
    sampler.sample([context], [SampleKey(0, "after", 0)], Sampling(1.0, 2))
    assert sampler.prefilled_tokens - after == len(context), "nothing outlives the conversation"


def test_new_weights_forget_what_the_old_ones_computed():
    model = tiny_model().double()
    sampler = LocalSampler(model, frozenset({3}))
    key = [SampleKey(0, "a", 0)]
    with sampler.conversations():
        sampler.sample([SYSTEM], key, Sampling(1.0, 40))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.2)
        sampler.refresh(model)
        [turn] = sampler.sample([SYSTEM], key, Sampling(1.0, 40))
    [expected] = LocalSampler(model, frozenset({3})).sample([SYSTEM], key, Sampling(1.0, 40))
    assert turn.behaviour_logps == pytest.approx(expected.behaviour_logps, abs=1e-12)


@given(
    st.lists(st.lists(st.integers(0, 1), max_size=5), min_size=1, max_size=12),
    st.integers(1, 40),
)
def test_the_store_returns_the_blocks_of_these_very_tokens(branches, room):
    budget = room * keys_values(tuple(range(BLOCK))).nbytes
    store = PrefixStore(budget=budget)
    size = keys_values(tuple(range(BLOCK))).contiguous().nbytes
    for branch in branches:
        tokens = (*tuple(t for bit in branch for t in (bit,) * BLOCK), 9)
        store.add(tokens, keys_values(tokens))
        assert store.used == size * len(store.blocks) <= budget
        for known in branches:
            wanted = tuple(t for bit in known for t in (bit,) * BLOCK)
            found = store.find(wanted)
            assert len(found) == store.count(wanted)
            if found:
                expected = keys_values(wanted)[..., : len(found) * BLOCK, :]
                assert torch.equal(joined(found), expected)


X, Y1, Y2, Z1, Z2 = (tuple(range(first, first + BLOCK)) for first in (10, 20, 30, 40, 50))
FORKED = [
    (*stem, last) for stem in ((*X, *Y1), (*X, *Y2, *Z1), (*X, *Y2, *Z2, *Z1)) for last in (7, 8)
]
"""Three stems that two contexts each begin with; two of them share more than the third."""


@pytest.mark.parametrize("contexts", [PROMPTS, FORKED])
@pytest.mark.parametrize("room", [0, *range(1, 8)])
def test_a_store_too_small_for_what_is_shared_still_samples_the_same(contexts, room, monkeypatch):
    model = tiny_model().double()
    expected, _ = sample(model, contexts)
    block = BLOCK * cache_shape(LocalSampler(model, frozenset()).model).token_bytes
    defaults = PrefixStore.__init__.__defaults__ or ()
    budget = max(1, room * block)
    monkeypatch.setattr(PrefixStore.__init__, "__defaults__", (budget, *defaults[1:]))
    assert PrefixStore().budget == budget
    passes = []
    monkeypatch.setattr(kv_cache, "compute", lambda *a, **k: passes.append(1) or limited(*a, **k))

    def limited(*given, **named):
        assert len(passes) < 50, "what was driven out is computed again and again"
        return compute(*given, **named)

    small, _ = sample(model, contexts)
    assert [t.actions for t in small] == [t.actions for t in expected]
