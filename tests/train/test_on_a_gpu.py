"""Sampling, scoring, updates and checkpoints on a pretended GPU: no tensor is left on the CPU, and
what comes out is what the CPU computes."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedModel

from assay.data.episode import Episode, Turn
from assay.models import weight_files
from assay.models.adapt import save_activations, train_all, train_lora
from assay.models.lora import LoraOptions
from assay.models.precision import choose_precision
from assay.rl.objectives import GrpoObjective, NllObjective
from assay.rl.packed import Packed, pack
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.policies.language import LanguagePolicy
from assay.rollout.policies.self_check import check_language_policy
from assay.train.checkpoint import TrainState, load_checkpoint, save_checkpoint
from assay.train.update import make_optimizer, update
from tests.pretended_cuda import CUDA, device_of, pretended_cuda
from tests.tiny import tiny_model

CONTEXTS = [tuple(range(40, 52))] * 3 + [tuple(range(60, 67))] * 2
KEYS = [SampleKey(0, str(context[0]), n) for n, context in enumerate(CONTEXTS)]
DRAWN, GREEDY = Sampling(1.0, 24), Sampling(0.0, 12)
NARROW = Sampling(0.7, 12, top_p=0.9, top_k=40, min_p=0.01)


def lora(**options: Any) -> Callable[[PreTrainedModel], torch.nn.Module]:
    return lambda model: train_lora(model, LoraOptions(4, 8.0, **options))[0]


def full(model: PreTrainedModel) -> torch.nn.Module:
    return train_all(model)[0]


def recomputed(model: PreTrainedModel) -> torch.nn.Module:
    save_activations(model)
    return full(model)


def neox() -> PreTrainedModel:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 64}
    config = GPTNeoXConfig(**sizes, num_hidden_layers=2, num_attention_heads=4)
    return GPTNeoXForCausalLM(config).eval()


CASES = {
    "fp32": ("qwen3", full, "fp32"),
    "bf16": ("llama", full, "bf16"),
    "recomputed": ("granite", recomputed, "fp32"),
    "LoRA with dropout": ("qwen3", lora(dropout=0.2), "fp32"),
    "LoRA in bf16": ("llama", lora(), "bf16"),
    "plain": ("neox", full, "fp32"),
    "plain in bf16": ("neox", full, "bf16"),
}


def policy_of(case: str, device: str) -> LanguagePolicy:
    family, adapt, dtype = CASES[case]
    model = neox() if family == "neox" else tiny_model(family)
    model.to(device)  # type: ignore[arg-type]
    torch.manual_seed(1)
    module = adapt(model).train()
    return LanguagePolicy(module, choose_precision(dtype, device), frozenset([7]))  # type: ignore[arg-type]


def batch(turns: list[Turn]) -> Packed:
    packed = pack([Episode(str(i), str(i), (turn,)) for i, turn in enumerate(turns)])
    slope_S = torch.linspace(-1, 1, len(packed.actions_S))
    return packed.with_tokens(advantage_S=slope_S, reference_S=packed.behaviour_S)


def trained(case: str, device: str) -> dict[str, Any]:
    """Samples, and two updates by an objective that reads all there is."""
    policy = policy_of(case, device)
    sampled = [policy.sample(CONTEXTS, KEYS, how) for how in (DRAWN, GREEDY, NARROW)]
    packed = batch(sampled[0])
    optimizer = make_optimizer(policy.module.parameters(), lr=1e-3)
    objective = GrpoObjective(entropy_coef=0.1, kl_coef=0.1)
    sizes = {"micro_tokens": 40, "clip_norm": 1.0}
    norms = [update(policy, packed, objective, optimizer, **sizes).grad_norm for _ in range(2)]
    norms.append(update(policy, packed, NllObjective(), optimizer, **sizes).grad_norm)
    weights = {name: p.detach().cpu() for name, p in policy.module.named_parameters()}
    return {"sampled": sampled, "norms": norms, "weights": weights}


QUICK = ("fp32", "plain")


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c in QUICK else pytest.mark.slow) for c in CASES]
)
def test_every_tensor_is_where_it_is_used_and_results_are_those_of_the_cpu(case: str) -> None:
    plain = trained(case, "cpu")
    with pretended_cuda():
        other = trained(case, "cuda")
    assert other["norms"] == pytest.approx(plain["norms"], rel=0.2 if "bf16" in case else 1e-3)
    if "bf16" in case:
        return  # rounding decides which tokens are drawn
    drawn = [[[t.actions for t in turns] for turns in each["sampled"]] for each in (plain, other)]
    assert drawn[0] == drawn[1]
    for name, weight in plain["weights"].items():
        torch.testing.assert_close(other["weights"][name], weight, rtol=0, atol=3e-4)


@pytest.mark.parametrize("case", ["fp32", pytest.param("plain", marks=pytest.mark.slow)])
def test_the_self_check_runs_on_a_gpu(case: str) -> None:
    with pretended_cuda():
        policy = policy_of(case, "cuda")
        packed = batch(policy.sample(CONTEXTS, KEYS, DRAWN))
        assert check_language_policy(policy, packed, GrpoObjective(), tokens=512)


def test_a_checkpoint_is_resumed_on_a_gpu(tmp_path: Path) -> None:
    def step(policy: LanguagePolicy, optimizer: torch.optim.Optimizer, turns: list[Turn]) -> None:
        update(policy, batch(turns), NllObjective(), optimizer, micro_tokens=64, clip_norm=1.0)

    with pretended_cuda():
        policy = policy_of("fp32", "cuda")
        optimizer = make_optimizer(policy.module.parameters(), lr=1e-3)
        turns = policy.sample(CONTEXTS, KEYS, DRAWN)
        step(policy, optimizer, turns)
        saved = save_checkpoint(tmp_path, policy, optimizer, TrainState(step=1))
        step(policy, optimizer, turns)
        other = policy_of("fp32", "cuda")
        again = make_optimizer(other.module.parameters(), lr=1e-3)
        assert load_checkpoint(saved, other, again).step == 1
        step(other, again, turns)
        for mine, theirs in zip(policy.module.parameters(), other.module.parameters(), strict=True):
            assert device_of(theirs) == CUDA
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("case", ["bf16", pytest.param("LoRA in bf16", marks=pytest.mark.slow)])
def test_weights_are_handed_over_and_scored_from_a_gpu(case: str) -> None:
    actions = [[5, 6, 7], [8, 9]]
    contexts = [[40, 41], [60]]
    with pretended_cuda():
        module = policy_of(case, "cuda").module
        state = weight_files.whole_weights(module, torch.bfloat16)
        assert {device_of(tensor) for tensor in state.values()} == {CUDA}
        with weight_files.rounded(module, torch.bfloat16):
            found = weight_files.logps_of(module, contexts, actions).numpy()
    with weight_files.rounded(here := policy_of(case, "cpu").module, torch.bfloat16):
        expected = weight_files.logps_of(here, contexts, actions).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_only_a_backward_pass_on_a_gpu_adds_in_one_order(device: str) -> None:
    seen: list[bool] = []

    def note(grad: torch.Tensor) -> None:
        seen.append(torch.are_deterministic_algorithms_enabled())

    with pretended_cuda() if device == "cuda" else nullcontext():
        policy = policy_of("fp32", device)
        turns = policy.sample(CONTEXTS, KEYS, DRAWN)
        next(policy.module.parameters()).register_hook(note)
        optimizer = make_optimizer(policy.module.parameters(), lr=1e-3)
        update(policy, batch(turns), NllObjective(), optimizer, micro_tokens=40, clip_norm=1.0)
    assert seen
    assert set(seen) == {device == "cuda"}
    assert not torch.are_deterministic_algorithms_enabled()
