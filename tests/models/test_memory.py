"""The memory formula adds up to what autograd really keeps, and says what fits."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

import assay.models.attention  # noqa: F401 (registers the attention)
from assay.models.memory import (
    ModelShape,
    StepLoad,
    available_memory,
    choose_checkpointing,
    estimate_memory,
    layer_bytes,
    model_shape,
    probability_bytes,
)
from assay.models.scoring import score_actions
from tests.models.folders import VOCABULARY, tiny_model

SIZES: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_attention_heads": 6,
    "head_dim": 32,
}
CASES = [(kind, bf16) for kind in ("llama", "qwen2", "qwen3") for bf16 in (False, True)]


def kept_bytes(model: PreTrainedModel, bf16: bool, forward: Callable[[], Any]) -> int:
    """Bytes of distinct storages that autograd keeps, the weights and their casts left out."""
    weights = {tuple(p.shape) for p in model.parameters()}
    weights |= {shape[::-1] for shape in weights}
    known = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        cast = tensor.dtype == torch.bfloat16 and tuple(tensor.shape) in weights
        if place not in known and not cast:
            kept[place] = tensor
        return tensor

    model.train()
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16),
    ):
        forward()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def kept_per_layer(kind: str, bf16: bool, prompt: int, completion: int, count: int) -> float:
    """What one layer more costs, for `count` completions behind one shared prompt."""
    contexts = [tuple(t % 250 for t in range(prompt))] * count
    actions_S = torch.arange(count * completion) % VOCABULARY
    offsets_N1 = torch.arange(count + 1) * completion

    def layers(number: int) -> int:
        model = tiny_model(kind, num_hidden_layers=number, **SIZES)
        model.set_attn_implementation("assay")
        return kept_bytes(
            model, bf16, lambda: score_actions(model, contexts, actions_S, offsets_N1)
        )

    return (layers(3) - layers(1)) / 2


@pytest.mark.parametrize(("kind", "bf16"), CASES)
def test_a_layer_without_shared_prompts_keeps_what_the_formula_says(kind: str, bf16: bool) -> None:
    sizes: dict[str, Any] = SIZES | {"num_key_value_heads": 6}

    def kept(layers: int) -> int:
        model = tiny_model(kind, num_hidden_layers=layers, **sizes)
        ids = torch.arange(64)[None]
        return kept_bytes(model, bf16, lambda: model(ids, use_cache=False, logits_to_keep=1))

    shape = model_shape(tiny_model(kind, **sizes).config)
    assert (kept(3) - kept(1)) / 2 == pytest.approx(64 * layer_bytes(shape, bf16), rel=5e-3)


@pytest.mark.parametrize(("kind", "bf16"), CASES)
def test_behind_a_shared_prompt_a_layer_keeps_about_what_the_formula_says(
    kind: str, bf16: bool
) -> None:
    prompt, completion, count = 128, 65, 4
    shape = model_shape(tiny_model(kind, **SIZES).config)
    fed = count * (completion - 1)
    formula = (prompt + fed) * layer_bytes(shape, bf16)
    formula += fed * probability_bytes(shape, prompt + completion - 1, bf16)
    assert formula == pytest.approx(kept_per_layer(kind, bf16, prompt, completion, count), rel=0.1)


def test_with_checkpointing_a_layer_keeps_its_input_alone() -> None:
    def kept(layers: int) -> int:
        model = tiny_model(num_hidden_layers=layers, **SIZES)
        model.activation_checkpointing_enable({"use_reentrant": False})
        ids = torch.arange(64)[None]
        return kept_bytes(model, False, lambda: model(ids, use_cache=False, logits_to_keep=1))

    measured = (kept(3) - kept(1)) / 2
    shape = model_shape(tiny_model(num_hidden_layers=1, **SIZES).config)
    deeper = replace(shape, layers=2)
    load = StepLoad(tokens=64, checkpointing=True)
    more = estimate_memory(deeper, load).activations - estimate_memory(shape, load).activations
    assert more == measured == 64 * 4 * 192


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_the_shape_is_read_off_the_config(kind: str, tied: bool) -> None:
    model = tiny_model(kind, tied=tied, **SIZES)
    shape = model_shape(model.config)
    weights = sum(p.numel() for p in model.parameters())
    assert shape == ModelShape(weights, 2, 192, 192, 64, 6, 512, VOCABULARY, kind == "qwen3")


SHAPE = ModelShape(1000, 4, 8, 8, 4, 2, 16, 100, False)


def test_the_parts_of_full_training_in_fp32() -> None:
    estimate = estimate_memory(SHAPE, StepLoad(tokens=10, logit_rows=5))
    layer = (16 * 8 + 8) + 8 * 8 + (4 * 8 * 4 + 4 * 2) + 4 * 16 * 4
    assert estimate.parts == {
        "weights": 4000,
        "casts": 0,
        "gradients": 4000,
        "moments": 8000,
        "activations": 10 * (4 * layer + 64),
        "logits": 5 * 100 * 16,
    }
    assert estimate.total == sum(estimate.parts.values())
    assert estimate.fits(estimate.total * 1.15)
    assert not estimate.fits(estimate.total * 1.14)


def test_8_bit_moments_a_small_share_and_bf16_each_save_their_part() -> None:
    full = estimate_memory(SHAPE, StepLoad(tokens=10))
    eight = estimate_memory(SHAPE, StepLoad(tokens=10, optimizer="adamw8bit"))
    assert eight.moments == 2000 + 1000 * 2 * 4 / 256
    lora = estimate_memory(SHAPE, StepLoad(tokens=10, trainable=50))
    assert (lora.weights, lora.gradients, lora.moments) == (4000, 200, 400)
    half = estimate_memory(SHAPE, StepLoad(tokens=10, bf16=True))
    assert half.casts == 2000
    assert half.activations < full.activations


def test_checkpointing_costs_one_layer_and_the_inputs_of_all() -> None:
    load = StepLoad(tokens=10, completion_tokens=6, visible=7)
    plain = estimate_memory(SHAPE, load)
    saving = estimate_memory(SHAPE, replace(load, checkpointing=True))
    layer = 10 * layer_bytes(SHAPE, False) + 6 * 2 * 7 * 4
    assert plain.activations == 4 * layer + 10 * 64
    assert saving.activations == layer + 4 * 10 * 32 + 10 * 64
    assert saving.checkpointing and not plain.checkpointing


def test_checkpointing_is_chosen_only_where_the_plain_step_does_not_fit() -> None:
    load = StepLoad(tokens=10)
    plain = estimate_memory(SHAPE, load)
    assert choose_checkpointing(SHAPE, load, plain.total * 1.15) == plain
    chosen = choose_checkpointing(SHAPE, load, plain.total * 1.14)
    assert chosen == estimate_memory(SHAPE, replace(load, checkpointing=True))


def test_free_memory_is_a_plausible_number_of_bytes() -> None:
    assert 1e6 < available_memory("cpu") < 1e14
