"""GGUF files give other readers the same model, and what cannot be written is refused first."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
)

from assay.engines.environments import misfit
from assay.errors import InputError
from assay.models.gguf_file import (
    LLAMA3,
    QWEN,
    chat_templates,
    check_gguf,
    refuse_unlike,
    smollm_pre_tokenizer,
    splitter,
    write_gguf,
)
from assay.models.gguf_header import read_header
from assay.models.weight_files import save_weights
from tests.data.chat import metaspace, tokenizer
from tests.models.folders import tiny_model
from tests.models.llama_cpp import PIECES, by_llama_cpp, by_transformers, chat, exported, trained


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


def test_every_role_of_a_token_and_every_end_is_in_the_header(tmp_path: Path) -> None:
    words = copy.deepcopy(tokenizer("llama"))
    ids = words.get_vocab()
    end, other = ids["<|eot|>"], ids["<|head|>"]
    words.pad_token = words.eos_token = "<|eot|>"
    words.chat_template = {"default": "{{ pad_token }}{{ bos_token }}", "tool use": "t"}
    model = tiny_model(vocab_size=len(words))
    model.generation_config = GenerationConfig(eos_token_id=[other, end], pad_token_id=end)
    save_weights(model, tmp_path, words)
    write_gguf(model, tmp_path, tmp_path / "model.gguf")
    held = read_header(tmp_path / "model.gguf").values
    roles = {"bos": words.bos_token_id, "eos": end, "eot": other, "padding": end}
    assert {role: held[f"tokenizer.ggml.{role}_token_id"] for role in roles} == roles
    assert held["tokenizer.chat_template.tool use"] == "t"
    template = '{%- set pad_token = "<|eot|>" %}{{ pad_token }}{{ bos_token }}'
    assert held["tokenizer.chat_template"] == template


def test_a_template_without_a_first_token_gets_none(tmp_path: Path) -> None:
    """llama.cpp takes the token of id 11 for one, where a file names none."""
    words = copy.deepcopy(tokenizer("chatml"))
    words.bos_token, words.chat_template = None, "{{ bos_token }}x"
    made = chat_templates(words)
    assert made == {"tokenizer.chat_template": '{%- set bos_token = "" %}{{ bos_token }}x'}


@pytest.mark.parametrize(
    ("name", "field", "value", "told"),
    [
        ("generation_config.json", "eos_token_id", 5, "eos_token_id"),
        ("config.json", "rms_norm_eps", 0.5, "layer_norm_rms_epsilon"),
        ("tokenizer_config.json", "pad_token", "<think>", "padding_token_id"),
        ("tokenizer.json", "merges", None, "merges"),
    ],
)
def test_a_header_that_is_not_the_folders_is_refused(tmp_path: Path, name, field, value, told):
    whole("llama", tmp_path, True)
    stated = json.loads((tmp_path / name).read_text())
    if value is None:
        stated["model"][field].pop()
    else:
        stated[field] = value
    (tmp_path / name).write_text(json.dumps(stated))
    with pytest.raises(InputError, match=told) as caught:
        refuse_unlike(tmp_path / "model.gguf", tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "splits", "begins", "sizes"),
    [
        ("llama", "llama-bpe", True, {"head_dim": 32}),
        ("llama", "smollm", False, {"tied": False, "attention_bias": True, "mlp_bias": True}),
        ("qwen2", "qwen2", False, {}),
        ("qwen3", "gpt-2", True, {"tied": False, "rms_norm_eps": 1e-3}),
        ("qwen3", "dbrx", False, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    ],
)
def test_llama_cpp_reads_the_prompts_and_answers_of_transformers(
    tmp_path: Path, kind: str, splits: str, begins: bool, sizes: dict[str, Any]
) -> None:
    if problem := misfit("llamacpp"):
        pytest.skip(f"assay engines add llamacpp: {problem}")
    model, words = trained(kind, splits, begins, **sizes)
    formats = {"fp32": torch.float32, "bf16": torch.bfloat16}
    folders = [exported(tmp_path / n, model, words, dtype) for n, dtype in formats.items()]
    request = {"texts": PIECES, "chats": [chat(piece) for piece in PIECES], "max_tokens": 40}
    added = AutoTokenizer.from_pretrained(folders[0]).added_tokens_decoder
    by_name = {id_ for id_, token in added.items() if token.content == "<|endoftext|>"}
    for folder, ours in zip(folders, by_transformers(folders, request), strict=True):
        theirs = by_llama_cpp(folder / "model.gguf", request, [5, 11, 100, *added])
        assert theirs["texts"] == ours["texts"]
        assert theirs["chats"] == ours["chats"]
        assert sum(each["stop"] == "eos" for each in ours["chats"]) >= 18
        assert {each["answer"][-1] for each in ours["chats"]} >= {*ours["ends"]}
        assert {*theirs["ends"]} - by_name == {*ours["ends"]}


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
    for name, made in named.items():
        assert splitter(splitting(made, name == "llama-bpe")) == name
    assert splitter(splitting(split(LLAMA3), False)) == "dbrx"
    digits = pre_tokenizers.Digits(individual_digits=True)
    for other, whole_words in (
        (split(r"\w+"), False),
        (split(QWEN), True),
        (named["gpt-2"], True),
        (pre_tokenizers.ByteLevel(add_prefix_space=True), False),
        (pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), False),
        (pre_tokenizers.Sequence([pre_tokenizers.Digits(), named["gpt-2"]]), False),
        (pre_tokenizers.Sequence([named["gpt-2"], digits]), False),
    ):
        with pytest.raises(InputError, match="way of splitting text"):
            splitter(splitting(other, whole_words))


def splitting(made: pre_tokenizers.PreTokenizer, whole_words: bool) -> PreTrainedTokenizerFast:
    """The tokenizer with another way of splitting text."""
    text = json.loads(tokenizer("chatml").backend_tokenizer.to_str())
    text["pre_tokenizer"] = json.loads(made.__getstate__())
    text["model"]["ignore_merges"] = whole_words
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(text)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "changes text before"),
        ({"model": {"merges": []}}, "has no merges"),
        ({"model": {"byte_fallback": True}}, "not those of plain bytes"),
        ({"added_tokens": {"lstrip": True}}, "takes white space with it"),
        ({"added_tokens": {"single_word": True}}, "whole words alone"),
    ],
)
def test_a_tokenizer_that_makes_other_tokens_in_llama_cpp_is_refused(
    change: dict[str, Any], words: str
) -> None:
    text = json.loads(tokenizer("chatml").backend_tokenizer.to_str())
    ((name, value),) = change.items()
    held = text[name][-1] if name == "added_tokens" else text[name] or {}
    held.update(value)
    text[name] = text[name] or held
    changed = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(text)))
    with pytest.raises(InputError, match=words):
        splitter(changed)


def unlike(kind: str = "llama", **settings: Any) -> Any:
    """A model with other settings than tiny ones have."""
    model = tiny_model(kind)
    for name, value in settings.items():
        setattr(model.config, name, value)
    return model


def test_what_llama_cpp_would_compute_otherwise_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="way of splitting text"):
        check_gguf(tiny_model(), metaspace())
    small: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    mistral = MistralConfig(**small, num_attention_heads=2)
    rope = {"rope_type": "yarn", "rope_theta": 10000.0}
    cases = [
        (unlike(rope_parameters=rope), "'yarn'"),
        (unlike("qwen2", layer_types=["full_attention", "sliding_attention"]), "sliding window"),
        (unlike(hidden_act="gelu"), "activation 'gelu'"),
        (tiny_model("qwen2", head_dim=16), "a qwen2 with heads 64 wide"),
        (tiny_model("qwen3", attention_bias=True), "a qwen3 with biases"),
        (AutoModelForCausalLM.from_config(mistral), "no GGUF of a mistral"),
    ]
    for ends in ([], [1, 2, 3, 4]):
        model = tiny_model()
        model.generation_config = GenerationConfig(eos_token_id=ends)
        cases.append((model, f"with {len(ends)} tokens that end an answer"))
    for model, words in cases:
        with pytest.raises(InputError, match=words):
            check_gguf(model, tokenizer("chatml"))
