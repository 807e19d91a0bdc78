"""Writes a Llama model folder (config and safetensors) as a GGUF file that llama.cpp loads.

    python benchmarks/gguf_weights.py FOLDER FILE.gguf --type F16

Weights only: the file has no tokenizer, since the benchmarks hand over token ids. Matrices are
stored in the type that is asked for and norms in F32. Nothing is quantised.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig

TYPES = {
    "F32": (torch.float32, GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "F16": (torch.float16, GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "BF16": (torch.bfloat16, GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
}
WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(folder: Path, target: Path, kind: str) -> Path:
    """Write the model in `folder` to `target` with matrices of type F32, F16 or BF16."""
    config = AutoConfig.from_pretrained(folder)
    if config.model_type != "llama":
        raise ValueError(f"{folder}: a {config.model_type} model; only Llama's layout is known")
    unfinished = target.with_suffix(".unfinished")
    writer = GGUFWriter(unfinished, "llama")
    add_header(writer, config, TYPES[kind][2])
    for name, weight in renamed(folder, config):
        add_weight(writer, name, weight, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.replace(target)
    return target


def add_header(writer: GGUFWriter, config: Any, file_type: LlamaFileType) -> None:
    """The sizes that llama.cpp builds the model from, and a vocabulary without words."""
    heads = config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(head_size(config))
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(file_type)


def head_size(config: Any) -> int:
    """Numbers per attention head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def renamed(folder: Path, config: Any) -> Iterator[tuple[str, Tensor]]:
    """Weights under llama.cpp's names; a head tied to the embedding is left out."""
    for file in sorted(folder.glob("*.safetensors")):
        for name, weight in load_file(file).items():
            if name == "lm_head.weight" and config.tie_word_embeddings:
                continue
            yield gguf_name(name), reordered(name, weight, config)


def gguf_name(name: str) -> str:
    """llama.cpp's name of a Transformers weight."""
    if name in WHOLE:
        return WHOLE[name]
    _, _, layer, rest = name.split(".", 3)
    module, _, what = rest.rpartition(".")
    return f"blk.{layer}.{LAYER[module]}.{what}"


def reordered(name: str, weight: Tensor, config: Any) -> Tensor:
    """Queries and keys in llama.cpp's order of rows.

    Its rotary embedding turns neighbouring pairs, Transformers' turns number i with i + D / 2.
    """
    heads = {
        "q_proj": config.num_attention_heads,
        "k_proj": config.num_key_value_heads,
    }.get(name.split(".")[-2])
    if heads is None:
        return weight
    halves = weight.view(heads, 2, head_size(config) // 2, weight.shape[1])
    return halves.transpose(1, 2).reshape(weight.shape)


def add_weight(writer: GGUFWriter, name: str, weight: Tensor, kind: str) -> None:
    """Store a matrix in its type, a vector in F32."""
    dtype, stored, _ = TYPES[kind if weight.ndim > 1 else "F32"]
    converted = weight.to(dtype).contiguous()
    if dtype == torch.bfloat16:
        # numpy has no bf16: the bytes go in as they are.
        writer.add_tensor(name, converted.view(torch.uint8).numpy(), raw_dtype=stored)
    else:
        writer.add_tensor(name, np.ascontiguousarray(converted.numpy()), raw_dtype=stored)


def main() -> None:
    """Convert one folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--type", choices=list(TYPES), default="F16")
    arguments = parser.parse_args()
    print(write_gguf(arguments.folder, arguments.target, arguments.type))


if __name__ == "__main__":
    main()
