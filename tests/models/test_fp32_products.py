"""What Transformers computes in fp32 with bf16 weights is computed in fp32 under autocast.

The oracle is the module itself, asked outside autocast for the same inputs.
"""

import copy
from pathlib import Path

import pytest
import torch
from benchmarks.families import byte_tokenizer, tiny_family
from torch import Tensor, nn

from assay.models.adapt import save_activations, train_lora
from assay.models.load import load_model
from assay.models.lora import LoraOptions
from assay.models.plain_forward import keep_fp32_products, logits_from
from assay.models.precision import choose_precision
from assay.models.weight_files import save_weights

IDS = torch.arange(40, 70)[None]
ROUTERS = {"nemotron_h": "model.layers.1.mixer.gate", "glm4_moe": "model.layers.1.mlp.gate"}
INSIDE = ("mamba2", "qwen3_next", "gpt_neo")
"""Families that compute parts of a layer in fp32, not a whole one."""


def bf16_logits(model: nn.Module) -> Tensor:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return logits_from(model, IDS, None, 0).float()


def asked_and_answered(model: nn.Module, name: str) -> tuple[Tensor, Tensor]:
    """A router's input under autocast, and its scores of the experts."""
    seen: list[tuple[Tensor, Tensor]] = []
    module = model.get_submodule(name)

    def note(_: nn.Module, given: tuple[Tensor, ...], found: tuple[Tensor, ...]) -> None:
        seen.append((given[0], found[0] if isinstance(found, tuple) else found))

    handle = module.register_forward_hook(note)
    bf16_logits(model)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("family", ROUTERS)
def test_a_router_scores_experts_in_fp32_under_autocast(family: str) -> None:
    model = tiny_family(family)
    router = model.get_submodule(ROUTERS[family])

    def gap() -> float:
        given, found = asked_and_answered(model, ROUTERS[family])
        with torch.no_grad():
            alone = router(given.float())
        return float((found - (alone[0] if isinstance(alone, tuple) else alone)).abs().max())

    assert gap() > 1e-4
    keep_fp32_products(model)
    assert gap() == 0


@pytest.mark.parametrize("family", [*ROUTERS, *INSIDE])
def test_the_trial_leaves_weights_and_fp32_answers_as_they_were(family: str) -> None:
    model = tiny_family(family)
    weights = {name: p.data_ptr() for name, p in model.named_parameters()}
    with torch.no_grad():
        before = logits_from(model, IDS, None, 0)
        rounded = bf16_logits(model)
        keep_fp32_products(model)
        assert {name: p.data_ptr() for name, p in model.named_parameters()} == weights
        assert torch.equal(logits_from(model, IDS, None, 0), before)
        assert not torch.equal(bf16_logits(model), rounded)


def test_a_copy_an_adapter_and_a_recomputed_layer_keep_them_too() -> None:
    model = tiny_family("glm4_moe")
    keep_fp32_products(model)
    expected = bf16_logits(model)
    assert torch.equal(bf16_logits(copy.deepcopy(model)), expected)
    adapted, _ = train_lora(copy.deepcopy(model), LoraOptions(rank=2))
    assert torch.equal(bf16_logits(adapted.get_base_model()), expected)

    def gradient() -> Tensor:
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            logits_from(model, IDS, None, 0).float().log_softmax(-1)[0, :, 7].sum().backward()
        found = model.get_submodule(ROUTERS["glm4_moe"]).weight.grad
        assert isinstance(found, Tensor)
        return found.clone()

    whole = gradient()
    save_activations(model)
    torch.testing.assert_close(gradient(), whole, rtol=0, atol=0)


def test_a_model_is_tried_where_it_is_computed_in_bf16(tmp_path: Path) -> None:
    save_weights(tiny_family("glm4_moe"), tmp_path, byte_tokenizer())
    for name, hooked in (("bf16", True), ("fp32", False)):
        model = load_model(tmp_path, choose_precision(name, "cpu")).model  # type: ignore[arg-type]
        assert bool(model.get_submodule(ROUTERS["glm4_moe"])._forward_hooks) == hooked
