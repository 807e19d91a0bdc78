"""Every family of causal language models trains and samples on its path, and is saved whole.

The oracle is Transformers' own forward of one sequence at a time, without cache and padding.
"""

from pathlib import Path

import pytest
import torch
from benchmarks.families import byte_tokenizer, tiny_family
from transformers import AutoModelForCausalLM, PreTrainedModel

from assay.data.episode import Episode, tokens_of
from assay.models.adapt import save_activations, train_lora
from assay.models.load import load_model
from assay.models.lora import LoraOptions, merged
from assay.models.plain_forward import score_padded, score_plainly
from assay.models.precision import choose_precision
from assay.models.weight_files import load_weights, save_weights
from assay.rl.packed import Packed, pack
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.policies.language import LanguagePolicy
from tests.few import few
from tests.models.adapters import adapted

FP32 = choose_precision("fp32", "cpu")
SEVEN = (
    *("gemma3_text", "mistral with a window", "smollm3", "phi3", "olmo2", "granite", "qwen3_moe"),
)
OTHERS = ("gpt2", "gemma2", "opt", "bloom", "mamba", "rwkv", "mixtral", "phi3 with a window")
ENDS = frozenset({256})
CONTEXTS = [tuple(range(40, 52))] * 3 + [tuple(range(60, 67))] * 2
KEYS = [SampleKey(0, str(context[0]), n) for n, context in enumerate(CONTEXTS)]
every = pytest.mark.parametrize("family", [*SEVEN, *OTHERS])
seven = pytest.mark.parametrize("family", SEVEN)


def rolled_out(policy: LanguagePolicy) -> Packed:
    """Groups of two prompts of other lengths; the longest row is longer than every window."""
    turns = policy.sample(CONTEXTS, KEYS, Sampling(1.0, 16))
    return pack([Episode(str(n), str(n), (turn,)) for n, turn in enumerate(turns)])


def alone(model: torch.nn.Module, packed: Packed) -> torch.Tensor:
    return score_plainly(
        model, [tokens_of(c) for c in packed.contexts], packed.actions_S, packed.offsets_N1
    )[0]


def gradients(model: torch.nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


@every
def test_training_and_sampling_compute_what_transformers_computes_alone(family: str) -> None:
    model = tiny_family(family)
    policy = LanguagePolicy(model, FP32, ENDS)
    packed = rolled_out(policy)
    expected = alone(model, packed)
    wanted = gradients(model, expected.sum())
    scored = policy.score(packed).logps_S
    found = gradients(model, scored.sum())
    torch.testing.assert_close(scored, expected, atol=2e-5, rtol=0)
    torch.testing.assert_close(packed.behaviour_S, expected.detach(), atol=3e-5, rtol=0)
    assert set(found) == set(wanted)
    for name, gradient in wanted.items():
        gap = (found[name] - gradient).norm()
        assert float(gap) <= 1e-3 * float(gradient.norm()) + 1e-5, name


@seven
def test_in_float64_the_path_is_exact(family: str) -> None:
    model = tiny_family(family).double()
    if family == "qwen3_moe":
        model.set_experts_implementation("eager")  # the grouped product knows no float64
    policy = LanguagePolicy(model, FP32, ENDS)
    packed = rolled_out(LanguagePolicy(tiny_family(family), FP32, ENDS))
    # Transformers' norms of the families that are packed compute in float32 all the same.
    allowed = 1e-10 if policy.plain else 1e-6
    torch.testing.assert_close(
        policy.score(packed).logps_S, alone(model, packed), atol=allowed, rtol=0
    )


@seven
def test_a_saved_checkpoint_is_read_by_transformers_and_read_back(
    family: str, tmp_path: Path
) -> None:
    model = tiny_family(family)
    save_weights(model, tmp_path, byte_tokenizer())
    ids = torch.arange(30)[None]
    with torch.no_grad():
        expected = model(ids).logits
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
        torch.testing.assert_close(theirs(ids).logits, expected, atol=0, rtol=0)
        ours = load_model(tmp_path, FP32).model
        other: PreTrainedModel = tiny_family(family, seed=1)
        load_weights(other, tmp_path)
        for one in (ours, other):
            torch.testing.assert_close(one(ids).logits, expected, atol=1e-6, rtol=0)


@few("family", SEVEN, fast=3)
def test_an_adapter_trains_and_merges(family: str) -> None:
    model = adapted(tiny_family(family), LoraOptions(rank=2), 0.1, "lora_B")
    policy = LanguagePolicy(model, FP32, ENDS)
    packed = rolled_out(policy)
    scored = policy.score(packed).logps_S
    assert all("lora" in name for name in gradients(model, scored.sum()))
    torch.testing.assert_close(packed.behaviour_S, scored.detach(), atol=3e-5, rtol=0)
    with policy.reference():
        base = policy.score(packed).logps_S
    assert float((base - scored.detach()).abs().max()) > 1e-3
    whole = merged(model)
    torch.testing.assert_close(alone(whole, packed), scored.detach(), atol=3e-5, rtol=0)


def test_several_batches_and_checkpointing_give_the_gradient_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_family("gemma3_text")
    policy = LanguagePolicy(model, FP32, ENDS)
    packed = rolled_out(policy)
    wanted = gradients(model, policy.score(packed).logps_S.sum())
    monkeypatch.setattr("assay.models.plain_forward.BATCH_TOKENS", 40)
    save_activations(model)
    found = gradients(model, policy.score(packed).logps_S.sum())
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-4, rtol=1e-4)


def active(model: torch.nn.Module) -> list[str]:
    """Parts without parts of their own that are in training mode."""
    parts = model.named_modules()
    return [name for name, part in parts if part.training and not list(part.children())]


def test_the_models_own_dropout_is_off_and_the_adapters_is_on() -> None:
    model, _ = train_lora(tiny_family("opt"), LoraOptions(rank=2, dropout=0.5))
    model.train()
    policy = LanguagePolicy(model, FP32, ENDS)
    on = active(model)
    assert on and all("lora_dropout" in name for name in on)
    rolled_out(policy)
    assert on == active(model)


def test_turns_that_extend_each_other_are_one_sequence() -> None:
    model = tiny_family("gpt2")
    contexts = [(40, 41), (40, 41, 42, 43, 44), (60, 61, 62)]
    actions, offsets = torch.tensor([42, 43, 45, 46, 63]), torch.tensor([0, 2, 4, 5])
    found, entropy = score_padded(model, contexts, actions, offsets, temperature=0.7, entropy=True)
    expected = score_plainly(model, contexts, actions, offsets, temperature=0.7, entropy=True)
    torch.testing.assert_close(found, expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(entropy, expected[1], atol=1e-5, rtol=0)
