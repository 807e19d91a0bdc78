"""What is drawn depends on the prompt and its seed, and its log-probs are those of training."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from assay.data.episode import Episode, Turn
from assay.models.precision import choose_precision
from assay.rl.packed import pack
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu import sampler
from assay.rollout.engines.cpu.sampler import LocalSampler
from assay.rollout.policies.language import LanguagePolicy
from tests.exact import exact_model
from tests.few import few
from tests.tiny import FAMILIES, VOCABULARY, generated

ENDS = frozenset({7, 8, 9, 10})
FP32 = choose_precision("fp32", "cpu")
Request = tuple[tuple[int, ...], SampleKey]

models = few(
    "family, adapter",
    [
        *(("llama", True), ("qwen3", False), ("granite", False)),
        *((family, False) for family in sorted(FAMILIES.keys() - {"qwen3", "granite"})),
    ],
    fast=3,
)


def requests(seed: int, groups: Sequence[int]) -> list[Request]:
    """Groups of these sizes, each of a prompt of 1 to 40 random tokens."""
    generator = np.random.default_rng(seed)
    found = []
    for row, size in enumerate(groups):
        prompt = tuple(generator.integers(0, VOCABULARY, generator.integers(1, 41)).tolist())
        found += [(prompt, SampleKey(seed, str(row), sample)) for sample in range(size)]
    return found


def sample(
    module: torch.nn.Module, asked: Sequence[Request], tokens: int, ends: frozenset[int] = ENDS
) -> list[Turn]:
    contexts, keys = [context for context, _ in asked], [key for _, key in asked]
    return LocalSampler(module, ends).sample(contexts, keys, Sampling(1.0, tokens))


@models
def test_in_float64_a_completion_is_its_seeds_whatever_else_is_in_the_batch(
    family, adapter, monkeypatch
):
    module = exact_model(family, adapter).double()
    asked = requests(1, (16, 1, 5, 9, 2))
    together = sample(module, asked, 24)
    assert len({len(turn.actions) for turn in together}) > 3, "rows must finish at different times"
    generator = np.random.default_rng(2)
    for rows, refill in ((128, 0.75), (9, 1.0), (16, 0.3), (4, 0.75)):
        monkeypatch.setattr(sampler, "ROWS", rows)
        monkeypatch.setattr(sampler, "REFILL_SHARE", refill)
        some = generator.permutation(len(asked))[: generator.integers(1, len(asked) + 1)]
        found = sample(module, [asked[n] for n in some], 24)
        assert [turn.actions for turn in found] == [together[n].actions for n in some]
        for turn, n in zip(found, some, strict=True):
            expected = together[n].behaviour_logps
            assert turn.behaviour_logps == pytest.approx(expected, abs=1e-6)


@models
def test_log_probs_and_entropies_of_the_rollout_are_those_of_the_training_forward(family, adapter):
    policy = LanguagePolicy(exact_model(family, adapter), FP32, ENDS)
    for seed, groups in enumerate([(1,), (16, 1), (3, 8, 2)]):
        asked = requests(seed, groups)
        turns = policy.sample(
            [context for context, _ in asked],
            [key for _, key in asked],
            Sampling(0.7, 24),
        )
        episodes = [Episode(str(n), str(n), (turn,)) for n, turn in enumerate(turns)]
        packed = pack(episodes, 0.7)
        assert packed.behaviour_S is not None
        scores = policy.score(packed, entropy=True)
        torch.testing.assert_close(packed.behaviour_S, scores.logps_S.detach(), atol=2e-5, rtol=0)
        entropy_S = torch.tensor([x for turn in turns for x in turn.entropies or ()])
        assert scores.entropy_S is not None
        torch.testing.assert_close(entropy_S, scores.entropy_S.detach(), atol=2e-5, rtol=0)


@models
def test_greedy_tokens_are_those_of_generate(family, adapter):
    module = exact_model(family, adapter)
    asked = requests(3, (1,) * 6)
    contexts, keys = [context for context, _ in asked], [key for _, key in asked]
    turns = LocalSampler(module, ENDS).sample(contexts, keys, Sampling(0.0, 32))
    for context, turn in zip(contexts, turns, strict=True):
        assert list(turn.actions) == generated(module, context, ENDS, 32)


@pytest.mark.slow
def test_in_fp32_another_schedule_flips_fewer_than_one_token_in_ten_thousand(monkeypatch):
    module = exact_model("llama", False)
    asked = requests(4, (24,) * 9)
    ends = frozenset({7})
    usual = sample(module, asked, 64, ends)
    monkeypatch.setattr(sampler, "ROWS", 8)
    order = np.random.default_rng(5).permutation(len(asked))
    other = sample(module, [asked[n] for n in order], 64, ends)
    flips = compared = 0
    for n, found in zip(order, other, strict=True):
        pairs = list(zip(usual[n].actions, found.actions, strict=False))
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        # After a flip the two go on from different contexts.
        compared += same
        flips += same < len(pairs) or len(usual[n].actions) != len(found.actions)
    assert compared > 10_000
    assert flips <= compared // 10_000
