"""A language policy samples from the weights it trains, whatever their type and adapters."""

import pytest
import torch

from assay.data.episode import Episode
from assay.models.adapt import train_lora
from assay.models.lora import LoraOptions
from assay.models.precision import Precision, choose_precision
from assay.rl.packed import pack
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.policies.language import LanguagePolicy
from tests.tiny import tiny_model

ENDS = frozenset({7})
CONTEXTS = [(5, 6, 8), (5, 6, 8), (9, 10)]
KEYS = [SampleKey(0, "a", 0), SampleKey(0, "a", 1), SampleKey(0, "b", 0)]
FP32 = choose_precision("fp32", "cpu")
BF16 = Precision(torch.float32, torch.bfloat16, "cpu", "asked for")


def sampled(policy: LanguagePolicy):
    turns = policy.sample(CONTEXTS, KEYS, Sampling(1.0, 12))
    packed = pack([Episode(str(i), str(i), (turn,)) for i, turn in enumerate(turns)])
    return turns, packed


def gap(policy: LanguagePolicy) -> float:
    _, packed = sampled(policy)
    assert packed.behaviour_S is not None
    with torch.no_grad():
        scored = policy.score(packed).logps_S
    return float((scored - packed.behaviour_S).abs().max())


def shake(module: torch.nn.Module) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter) * parameter.std().clamp(min=0.02))


@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("precision", [FP32, BF16], ids=["fp32", "bf16"])
def test_the_sampler_follows_every_update(precision, adapter):
    module = tiny_model()
    if adapter:
        module, _ = train_lora(module, LoraOptions(rank=4))
    policy = LanguagePolicy(module, precision, ENDS)
    allowed = 2e-5 if precision is FP32 else 0.3
    assert gap(policy) < allowed
    shake(policy.module)
    policy.updated()
    assert gap(policy) < allowed
    assert sampled(policy)[0][0].policy_version == 1


def test_the_frozen_copy_is_the_reference_and_stays_where_it_was():
    policy = LanguagePolicy(tiny_model(), FP32, ENDS, frozen=tiny_model().requires_grad_(False))
    _, packed = sampled(policy)
    before = policy.score(packed).logps_S.detach()
    shake(policy.module)
    with policy.reference():
        reference = policy.score(packed).logps_S
    assert not reference.requires_grad
    torch.testing.assert_close(reference, before)
    assert not torch.allclose(policy.score(packed).logps_S, before, atol=1e-2)


def test_without_a_copy_the_adapter_free_base_is_the_reference():
    base = tiny_model()
    module, _ = train_lora(tiny_model(), LoraOptions(rank=4))
    policy = LanguagePolicy(module, FP32, ENDS)
    shake(module)
    _, packed = sampled(policy)
    with policy.reference():
        reference = policy.score(packed).logps_S
    plain = LanguagePolicy(base, FP32, ENDS).score(packed).logps_S.detach()
    torch.testing.assert_close(reference, plain, atol=1e-5, rtol=0)
    assert not torch.allclose(policy.score(packed).logps_S, plain, atol=1e-2)
