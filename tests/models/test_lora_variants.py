"""Rank-stabilised scaling and DoRA are peft's; bf16 sampling keeps an adapter apart."""

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch import Tensor, nn

from assay.models.adapt import train_lora
from assay.models.inference import inference_model
from assay.models.lora import LoraOptions, PackedLora, adapter_free, merged
from assay.models.prefix_tree import answer_logps
from assay.models.scoring import score_actions
from assay.models.weight_files import ADAPTER_CONFIG, load_weights, own_adapter, save_weights
from tests.models.folders import tiny_model

CONTEXT, ACTIONS = (5, 6, 7, 8, 9, 4, 3), (8, 9, 10, 11, 12, 250, 13)
VARIANTS = {
    "plain": LoraOptions(rank=4),
    "rslora": LoraOptions(rank=4, rslora=True),
    "dora": LoraOptions(rank=4, dora=True),
    "both": LoraOptions(rank=4, dora=True, rslora=True, targets=("q_proj", "up_proj")),
}


def adapted(options: LoraOptions, *, spread: float = 0.2) -> PeftModel:
    torch.manual_seed(0)
    model, _ = train_lora(tiny_model("qwen2"), options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=spread)
            elif "magnitude" in name:
                parameter.mul_(1 + spread * torch.rand_like(parameter))
    return model.eval()


def peft_logps(model: nn.Module) -> Tensor:
    """peft's and Transformers' own forward."""
    logits = model(input_ids=torch.tensor([CONTEXT + ACTIONS])).logits[0, len(CONTEXT) - 1 : -1]
    return logits.float().log_softmax(-1)[range(len(ACTIONS)), list(ACTIONS)]


def packed_logps(model: PeftModel) -> Tensor:
    offsets = torch.tensor([0, len(ACTIONS)])
    return score_actions(model, [CONTEXT], torch.tensor(ACTIONS), offsets)[0]  # type: ignore[arg-type]


def sampler_logps(model: nn.Module, dtype: torch.dtype) -> Tensor:
    return torch.tensor(answer_logps(inference_model(model, dtype), [CONTEXT], [ACTIONS]).logps[0])


def trained_gradients(model: PeftModel, logps: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    logps.sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_packed_path_gives_what_peft_gives_gradients_too(variant):
    model = adapted(VARIANTS[variant])
    with adapter_free(model):
        bare = peft_logps(model).detach()
    ours, theirs = packed_logps(model), peft_logps(model)
    assert (theirs - bare).abs().max() > 0.01
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-5)
    found, expected = trained_gradients(model, ours), trained_gradients(model, theirs)
    assert found.keys() == expected.keys()
    assert any("magnitude" in name for name in found) == VARIANTS[variant].dora
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_sampling_and_merging_give_what_peft_gives(variant):
    model = adapted(VARIANTS[variant])
    expected = peft_logps(model).detach()
    torch.testing.assert_close(sampler_logps(model, torch.float32), expected, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(peft_logps(merged(model)), expected, atol=2e-5, rtol=1e-5)


def test_rank_stabilised_adapters_are_scaled_by_the_root_of_the_rank():
    modules = adapted(VARIANTS["rslora"]).modules()
    layer = next(module for module in modules if isinstance(module, PackedLora))
    assert layer.scaling["default"] == 32 / 2


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_written_adapter_says_what_it_is_and_is_read_back(variant, tmp_path: Path):
    model, options = adapted(VARIANTS[variant]), VARIANTS[variant]
    save_weights(model, tmp_path)
    config = json.loads((tmp_path / ADAPTER_CONFIG).read_text())
    assert (config["use_rslora"], config["use_dora"]) == (options.rslora, options.dora)
    fresh = adapted(options, spread=0.0)
    load_weights(fresh, tmp_path)
    assert torch.equal(peft_logps(fresh), peft_logps(model))
    plain = PeftModel.from_pretrained(tiny_model("qwen2"), str(tmp_path)).eval()
    torch.testing.assert_close(peft_logps(plain), peft_logps(model), atol=1e-6, rtol=1e-6)
    assert own_adapter(tmp_path).scale == pytest.approx(32 / (2 if options.rslora else 4))


def test_a_small_change_is_sampled_as_it_is_trained_in_bf16():
    """Merged into bf16 weights, a change after one step is as large as what rounding takes of it;
    kept apart, sampling computes what training under autocast does."""
    model = adapted(LoraOptions(rank=8), spread=1e-4)
    with torch.no_grad():
        for parameter in model.get_base_model().parameters():
            parameter.copy_(parameter.bfloat16())
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        trained = packed_logps(model)
    apart = sampler_logps(model, torch.bfloat16)
    rounded = sampler_logps(merged(model), torch.bfloat16)
    assert (rounded - trained).abs().mean() > 1e-4
    assert (apart - trained).abs().mean() < 0.2 * (rounded - trained).abs().mean()


def test_dora_in_bf16_is_as_near_as_bf16_is():
    model = adapted(VARIANTS["dora"], spread=1e-3)
    exact = peft_logps(model).detach()
    gap = (sampler_logps(model, torch.bfloat16) - exact).abs().mean()
    with torch.autocast("cpu", torch.bfloat16):
        floor = (packed_logps(model).detach() - exact).abs().mean()
    assert 0 < gap < 2 * floor
