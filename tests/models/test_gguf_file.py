"""GGUF files give other readers the same model, and what cannot be written is refused first."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Regex, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, MistralConfig, PreTrainedModel

from assay.errors import InputError
from assay.models.gguf_file import (
    LLAMA3,
    QWEN,
    check_gguf,
    smollm_pre_tokenizer,
    splitter,
    write_gguf,
)
from assay.models.weight_files import save_weights
from tests.data.chat import LINES, metaspace, tokenizer
from tests.few import few
from tests.models.folders import tiny_model

TEXT = f"{LINES[0]} 2026 {LINES[3]}"


def whole(kind: str, folder: Path, tied: bool, dtype: torch.dtype = torch.float32) -> Any:
    """A model in a folder with its GGUF file; some of its ids are no token."""
    words = tokenizer("chatml")
    # Transformers' own reader takes Qwen3's heads to be 128 wide, whatever the file says.
    heads = {"head_dim": 128 if kind == "qwen3" else 16}
    sizes = {"hidden_size": 64, "vocab_size": len(words) + 3, **heads}
    model = tiny_model(kind, tied=tied, **sizes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(3.0) if parameter.dim() == 2 else parameter.add_(0.1 * ("norm" in name))
            if name.endswith("bias"):
                parameter.normal_()
    model.eval().to(dtype)  # type: ignore[arg-type]
    save_weights(model, folder, words)
    check_gguf(model, words)
    write_gguf(model, folder, folder / "model.gguf")
    return model


def logits(model: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].float()


@few("tied", [True, False], fast=1)
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_transformers_reads_the_same_model_from_the_gguf_file(
    tmp_path: Path, kind: str, tied: bool
) -> None:
    model = whole(kind, tmp_path, tied)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", dtype=torch.float32
    ).eval()
    words = AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    ids = AutoTokenizer.from_pretrained(tmp_path).encode(TEXT)
    assert words.encode(TEXT) == ids
    torch.testing.assert_close(logits(theirs, ids), logits(model, ids), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_llama_cpp_reads_the_same_model_and_the_same_tokens(
    tmp_path: Path, kind: str, dtype: torch.dtype
) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="pip install llama-cpp-python")
    model = whole(kind, tmp_path, True, dtype)
    theirs = llama_cpp.Llama(
        str(tmp_path / "model.gguf"), n_ctx=256, n_threads=1, logits_all=True, verbose=False
    )
    text = f"<|im_start|>user\n{TEXT}<|im_end|>\n<|im_start|>assistant\n"
    ids = AutoTokenizer.from_pretrained(tmp_path).encode(text)
    assert theirs.tokenize(text.encode(), add_bos=True, special=True) == ids
    theirs.eval(ids)
    own = logits(model.float(), ids)
    found = torch.tensor(theirs.scores[: len(ids)])
    # llama.cpp keeps keys and values in 16 bits, and multiplies bf16 weights in bf16.
    assert (found - own).abs().max() < 0.03 * own.abs().max()


def test_ways_of_splitting_text_are_known_by_llama_cpps_names() -> None:
    def split(pattern: str) -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    named = {
        "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "smollm": smollm_pre_tokenizer(),
        "qwen2": split(QWEN),
        "llama-bpe": split(LLAMA3),
    }
    backend = tokenizer("chatml").backend_tokenizer
    text = json.loads(backend.to_str())
    for name, made in named.items():
        text["pre_tokenizer"] = json.loads(made.__getstate__())
        assert splitter(text) == name
    for other in (
        split(r"\w+"),
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.Sequence([pre_tokenizers.Digits(), named["gpt-2"]]),
    ):
        text["pre_tokenizer"] = json.loads(other.__getstate__())
        with pytest.raises(InputError, match="way of splitting text"):
            splitter(text)


def test_what_llama_cpp_would_compute_otherwise_is_refused_by_name() -> None:
    words = tokenizer("chatml")
    model = tiny_model()
    with pytest.raises(InputError, match="way of splitting text"):
        check_gguf(model, metaspace())
    model.config.rope_parameters = {"rope_type": "yarn", "rope_theta": 10000.0}
    with pytest.raises(InputError, match="'yarn'"):
        check_gguf(model, words)
    sliding = tiny_model("qwen2")
    sliding.config.use_sliding_window = True
    with pytest.raises(InputError, match="sliding window"):
        check_gguf(sliding, words)
    other = AutoModelForCausalLM.from_config(
        MistralConfig(
            hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
        )
    )
    with pytest.raises(InputError, match="no GGUF of a mistral"):
        check_gguf(other, words)
