"""Which causal language models of Transformers train and sample here, and on which path.

Makes a tiny random model of each family, saves and loads it as `path:` does, takes a gradient and
samples, and compares both with Transformers' forward on one sequence at a time. Prints a table, of
which docs/models.md has the paths: `python -m benchmarks.families [FAMILY ...]`.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from assay.data.episode import Episode, tokens_of
from assay.errors import InputError, RunFailure
from assay.models.load import load_model
from assay.models.plain_forward import score_plainly
from assay.models.precision import choose_precision
from assay.models.supported import why_plain
from assay.rl.packed import pack
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.plain_sampler import PlainSampler
from assay.rollout.policies.language import LanguagePolicy

VOCABULARY = 259
TOKENS: dict[str, Any] = {"vocab_size": VOCABULARY, "bos_token_id": None, "pad_token_id": 256}
SIZES: dict[str, Any] = TOKENS | {
    "eos_token_id": 256,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LAYERS: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention"]}
WINDOW: dict[str, Any] = {"sliding_window": 8}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": None},
    "mistral with a window": WINDOW,
    "smollm3": {"no_rope_layers": [1, 0]},
    "granite": {
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.1,
        "logits_scaling": 4.0,
    },
    "phi3": {"sliding_window": None},
    "phi3 with a window": WINDOW,
    "olmo2": {},
    "olmo3": WINDOW | LAYERS,
    "gemma": {},
    "gemma2": WINDOW | LAYERS | {"final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0},
    "gemma3_text": WINDOW | LAYERS,
    "gemma4_text": WINDOW
    | LAYERS
    | {
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 8,
        "global_head_dim": 8,
        "num_kv_shared_layers": 0,
    },
    "qwen3_moe": EXPERTS | {"decoder_sparse_step": 1, "mlp_only_layers": []},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "gpt_oss": WINDOW | LAYERS | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {"n_positions": 512, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "gpt_neox": {},
    "gpt_neo": {
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 8,
    },
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "bloom": {"n_layer": 2, "n_head": 4},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False},
    "stablelm": {},
    "cohere": {},
    "cohere2": WINDOW | LAYERS,
    "glm4": {},
    "phi": {},
    "starcoder2": {"sliding_window": None},
    "mamba": {"state_size": 8, "expand": 2, "num_heads": 4},
    "mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8},
    "lfm2": {"full_attn_idxs": [1], "layer_types": None},
    "qwen3_next": EXPERTS
    | {
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "shared_expert_intermediate_size": 32,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "nemotron_h": {
        "layers_block_type": ["mamba", "moe", "attention"],
        "mamba_num_heads": 4,
        "mamba_head_dim": 8,
        "n_groups": 1,
        "ssm_state_size": 8,
        "chunk_size": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 32,
    },
    "falcon_h1": {
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_n_groups": 1,
        "mamba_d_state": 8,
        "mamba_chunk_size": 8,
    },
    "glm4_moe": {
        "first_k_dense_replace": 1,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 32,
    },
    "rwkv": {"attention_hidden_size": 32, "context_length": 64},
    "moshi": WINDOW,
    "bert": {},
    "bart": {"d_model": 32},
}
"""Families by model type, a remark after it where one is tried twice, with what differs from
SIZES."""
VISION: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}
QWEN_VISION: dict[str, Any] = {
    "depth": 1,
    "hidden_size": 32,
    "embed_dim": 16,
    "intermediate_size": 32,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
}
TIMES: dict[str, Any] = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 16.0,
    "original_max_position_embeddings": 32,
    "llama_4_scaling_beta": 0.1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
RECURRENT: dict[str, Any] = {
    name: value for name, value in FAMILIES["qwen3_next"].items() if name.startswith("l")
}
LLAMA4_SIZES = ("vision_output", "projector_input", "projector_output")
COMPOSITES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]] = {
    "gemma3": (WINDOW | LAYERS, VISION, {"mm_tokens_per_image": 1}),
    "gemma4": (FAMILIES["gemma4_text"], VISION | {"num_key_value_heads": 2, "head_dim": 8}, {}),
    "qwen2_vl": (TIMES, QWEN_VISION, {}),
    "qwen2_5_vl": (TIMES, QWEN_VISION | {"fullatt_block_indexes": [0]}, {}),
    "qwen3_vl": (TIMES, QWEN_VISION | {"deepstack_visual_indexes": [0]}, {}),
    "qwen3_5": (RECURRENT, QWEN_VISION, {}),
    "qwen3_5_moe": (
        RECURRENT | EXPERTS | {"shared_expert_intermediate_size": 32},
        QWEN_VISION,
        {"tie_word_embeddings": False},
    ),
    "mistral3": (
        {"model_type": "mistral", "sliding_window": None},
        VISION | {"model_type": "pixtral", "head_dim": 8},
        {"tie_word_embeddings": False},
    ),
    "mistral3 with ministral3": (
        {
            "model_type": "ministral3",
            "rope_parameters": YARN,
        },
        VISION | {"model_type": "pixtral", "head_dim": 8},
        {},
    ),
    "llama4": (
        {
            "intermediate_size_mlp": 64,
            "num_local_experts": 2,
            "moe_layers": [1],
            "no_rope_layers": [1, 0],
            "layer_types": ["chunked_attention", "full_attention"],
            "attention_chunk_size": 8,
        },
        VISION | {f"{name}_dim": 16 for name in LLAMA4_SIZES},
        {"tie_word_embeddings": False},
    ),
    "smolvlm": ({"model_type": "llama"}, VISION, {"scale_factor": 2}),
    "idefics3": ({"model_type": "llama"}, VISION, {"scale_factor": 2}),
    "internvl": (
        {"model_type": "qwen3"},
        VISION | {"image_size": [16, 16], "patch_size": [8, 8]},
        {"tie_word_embeddings": False},
    ),
    "llava": ({"model_type": "llama"}, VISION | {"model_type": "clip_vision_model"}, {}),
    "lfm2_vl": (
        {"model_type": "lfm2", "layer_types": ["conv", "full_attention"]},
        VISION | {"model_type": "siglip2_vision_model"},
        {},
    ),
}
"""Checkpoints of several models by model type: what differs from SIZES in the text model, the model
that reads images, and what the whole has beside the two."""


def config_of(family: str) -> Any:
    """A tiny configuration of a family."""
    kind = family.split()[0]
    if family in COMPOSITES:
        text, vision, more = COMPOSITES[family]
        whole: dict[str, Any] = {"tie_word_embeddings": True} | dict(more)
        texts = SIZES | {"tie_word_embeddings": whole["tie_word_embeddings"]} | dict(text)
        return AutoConfig.for_model(kind, text_config=texts, vision_config=dict(vision), **whole)
    known = AutoConfig.for_model(kind).to_dict()
    wanted = {name: value for name, value in SIZES.items() if name in known or name in TOKENS}
    return AutoConfig.for_model(kind, **(wanted | dict(FAMILIES[family])))


def tiny_family(family: str, seed: int = 0) -> PreTrainedModel:
    """A random model of a family whose distributions over words have a shape."""
    torch.manual_seed(seed)
    made: Any = AutoModelForImageTextToText if family in COMPOSITES else AutoModelForCausalLM
    model = made.from_config(config_of(family), dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.mul_(3.0)
    return model


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes and three special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|endoftext|>")
    marks: Any = {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}
    tokenizer.add_special_tokens(marks)
    return tokenizer


@dataclass(frozen=True)
class Trial:
    """What was found of a family."""

    family: str
    path: str
    """packed, plain or refused."""
    remark: str
    """How it is decoded where not with a cache, or why it is refused."""
    logp: float = 0.0
    """Largest difference of a trained log-prob from one sequence at a time."""
    rollout: float = 0.0
    """The same of the log-probs that sampling recorded."""


CONTEXTS = [tuple(range(40, 52))] * 3 + [tuple(range(60, 67))] * 2
KEYS = [SampleKey(0, str(context[0]), n) for n, context in enumerate(CONTEXTS)]


def tried(family: str, folder: Path) -> Trial:
    """Save, load, sample, score and differentiate a tiny model."""
    try:
        tiny_family(family).save_pretrained(folder)
        byte_tokenizer().save_pretrained(folder)
        loaded = load_model(folder, choose_precision("fp32", "cpu"))
        policy = LanguagePolicy(loaded.model, choose_precision("fp32", "cpu"), loaded.end_tokens)
        turns = policy.sample(CONTEXTS, KEYS, Sampling(1.0, 24))
    except InputError as error:
        return Trial(family, "refused", error.problem)
    except RunFailure as error:
        return Trial(family, "refused", str(error).partition(";")[0])
    packed = pack([Episode(str(i), str(i), (turn,)) for i, turn in enumerate(turns)])
    scores = policy.score(packed)
    scores.logps_S.sum().backward()
    given = [tokens_of(c) for c in packed.contexts], packed.actions_S, packed.offsets_N1
    with torch.no_grad():
        alone_S, _ = score_plainly(whole(family, folder) or loaded.model, *given)
    assert packed.behaviour_S is not None
    why = why_plain(loaded.model.config)
    remark = why
    if isinstance(policy.sampler, PlainSampler):
        way = policy.sampler.way
        ways = [] if way.cached else ["no cache: every token from the whole sequence"]
        remark = "; ".join(ways if way.padded else [*ways, "contexts of one length together"])
    return Trial(
        family,
        "plain" if why else "packed",
        remark,
        float((scores.logps_S.detach() - alone_S).abs().max()),
        float((packed.behaviour_S - alone_S).abs().max()),
    )


def whole(family: str, folder: Path) -> PreTrainedModel | None:
    """The saved model as Transformers loads it whole; None where the family is one model."""
    if family not in COMPOSITES:
        return None
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()


def table(families: list[str]) -> Iterator[str]:
    """A Markdown table, a line for each path and remark, with the largest differences."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for family in families:
        with TemporaryDirectory() as folder:
            found = tried(family, Path(folder))
        groups.setdefault((found.path, found.remark), []).append(found)
    yield "| path | families | training | sampling | remark |"
    yield "|---|---|---:|---:|---|"
    for (path, remark), trials in groups.items():
        largest = max(each.logp for each in trials), max(each.rollout for each in trials)
        numbers = " | ".join(f"{each:.0e}" if path != "refused" else "" for each in largest)
        yield f"| {path} | {', '.join(each.family for each in trials)} | {numbers} | {remark} |"


if __name__ == "__main__":
    for line in table(sys.argv[1:] or [*FAMILIES, *COMPOSITES]):
        print(line, flush=True)
