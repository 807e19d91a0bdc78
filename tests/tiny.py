"""Tiny random models and tokenizers that tests build for themselves."""

from typing import Any

import torch
from torch import nn
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

VOCABULARY = 300
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "granite": (GraniteConfig, GraniteForCausalLM),
    "smollm3": (SmolLM3Config, SmolLM3ForCausalLM),
}
EXTRA: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 16},
    "granite": {
        "embedding_multiplier": 6.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
        "logits_scaling": 2.0,
    },
    "smollm3": {"no_rope_layers": [1, 0], "pad_token_id": 0},
}
"""What differs from SIZES."""


def tiny_model(family: str = "llama", *, seed: int = 0, attention: str = "sdpa") -> PreTrainedModel:
    """A random model of two layers."""
    torch.manual_seed(seed)
    config, model = FAMILIES[family]
    built = model(config(**SIZES, **EXTRA.get(family, {}))).eval()
    # Random weights at their usual scale give nearly flat distributions; these have a shape.
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3.0)
    built.set_attn_implementation(attention)
    return built


def generated(
    module: nn.Module, context: tuple[int, ...], ends: frozenset[int], tokens: int
) -> list[int]:
    """The greedy answer of Transformers' own `generate`."""
    return module.generate(  # type: ignore[operator]
        input_ids=torch.tensor([context]),
        attention_mask=torch.ones(1, len(context), dtype=torch.long),
        max_new_tokens=tokens,
        do_sample=False,
        eos_token_id=sorted(ends),
        pad_token_id=0,
    )[0, len(context) :].tolist()
