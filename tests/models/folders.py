"""Tiny random models of three architectures and a byte-level tokenizer, to be saved as folders."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

VOCABULARY = 259
CHAT = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONFIGS: dict[str, Callable[..., PreTrainedConfig]] = {
    "llama": LlamaConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
}


SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": VOCABULARY,
    "eos_token_id": 256,
    "bos_token_id": None,
}


def tiny_model(kind: str = "llama", *, tied: bool = True, **sizes: Any) -> PreTrainedModel:
    """A random model with two layers and hidden size 32, the same at every call."""
    torch.manual_seed(0)
    config = CONFIGS[kind](**SIZES | {"tie_word_embeddings": tied, "pad_token_id": 256} | sizes)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes, then `<|endoftext|>`, `<|im_start|>` and `<|im_end|>`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})  # type: ignore[arg-type]
    tokenizer.chat_template = CHAT
    return tokenizer


def save_tiny_model(folder: Path, template: str | None = None, positions: int = 2048) -> None:
    """A tiny Llama and its tokenizer as a folder, with a chat template of its own if one is given;
    `positions` is how many tokens it reads at once.
    """
    tiny_model(max_position_embeddings=positions).save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    if template is not None:
        tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
