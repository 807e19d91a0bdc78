"""What cannot be computed, and what takes the plain path, is known by config.json alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.families import tiny_family
from transformers import (
    AutoConfig,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from assay.errors import InputError
from assay.models import load
from assay.models.load import check_loadable, least_weights, load_model
from assay.models.precision import choose_precision
from assay.models.supported import read_config, refuse_untrainable, why_plain
from tests.models.conftest import SaveModel
from tests.models.edits import edit_json, edited_weights
from tests.models.folders import SIZES, tiny_model

FP32 = choose_precision("fp32", "cpu")
HUGE = b'{"model_type": "llama", "hidden_size": ' + b"9" * 5000 + b"}"
"""Python reads no integer of so many digits."""


def mistral(window: int | None) -> MistralForCausalLM:
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=window))


def qwen2(windowed: bool) -> Qwen2ForCausalLM:
    config = Qwen2Config(
        **SIZES, use_sliding_window=windowed, sliding_window=16, max_window_layers=1
    )
    return Qwen2ForCausalLM(config)


def gpt2() -> GPT2LMHeadModel:
    sizes: dict[str, Any] = {"vocab_size": 259, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(**sizes, eos_token_id=256, bos_token_id=256))


def refusal(folder: Path) -> InputError:
    """What the folder is refused with, in one line, although no weight can be read."""
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError) as caught:
        read_config(folder)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (gpt2, "gpt2 layers"),
        (lambda: mistral(16), "no sliding window (16 tokens)"),
        (lambda: qwen2(True), "no sliding window (16 tokens)"),
        (lambda: mistral(None), ""),
        (lambda: qwen2(False), ""),
    ],
)
def test_the_reason_for_the_plain_path_follows_from_the_config(
    save_model: SaveModel, make: Callable[[], Any], why: str
) -> None:
    found = why_plain(read_config(save_model(make())))
    assert found.endswith(why) and bool(found) == bool(why)


def test_mistrals_own_default_is_a_window(save_model: SaveModel) -> None:
    folder = save_model(mistral(None))
    stated = json.loads((folder / "config.json").read_text())
    del stated["sliding_window"]
    (folder / "config.json").write_text(json.dumps(stated))
    assert "4096 tokens" in why_plain(read_config(folder))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("bart", "'bart' writes from what an encoder read"),
        ("t5", "'t5' .*no causal language model"),
        ("vit", r"'vit' .*is no causal language model"),
    ],
)
def test_what_needs_more_than_text_is_refused_with_the_reason(
    tmp_path: Path, kind: str, words: str
) -> None:
    AutoConfig.for_model(kind).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=words) as caught:
        read_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_model_that_reads_later_tokens_is_not_loaded(save_model: SaveModel) -> None:
    with pytest.raises(InputError, match="BertLMHeadModel reads later tokens"):
        load_model(save_model(tiny_family("bert")), FP32)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_positions_that_depend_on_the_longest_row_are_refused_on_both_paths(
    save_model: SaveModel, kind: str
) -> None:
    folder = save_model(tiny_family("olmo2"))
    factors = {"long_factor": [1.0] * 4, "short_factor": [1.0] * 4}
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0, **factors}
    rope["original_max_position_embeddings"] = 64
    edit_json(folder / "config.json", rope_parameters=rope)
    assert isinstance(refusal(folder), InputError)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", "two"),
        ("hidden_size", 0),
        ("num_key_value_heads", 3),
        ("rms_norm_eps", float("nan")),
        ("hidden_act", "nope"),
        ("rope_parameters", {"rope_type": "nope", "rope_theta": 1e4}),
        ("eos_token_id", 10**9),
        ("model_type", ["llama"]),
        ("dtype", "float7"),
        ("quantization_config", {"quant_method": "gptq", "bits": 4}),
    ],
)
def test_a_config_of_which_no_model_can_be_made_is_refused(
    save_model: SaveModel, field: str, value: object
) -> None:
    folder = save_model(tiny_model())
    edit_json(folder / "config.json", **{field: value})
    assert str(folder / "config.json") in str(refusal(folder))


@pytest.mark.parametrize(
    "content",
    [b"[1]", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"", HUGE],
    ids=["array", "cut", "no text", "nested", "empty", "long integer"],
)
def test_a_config_that_is_no_json_object_is_refused(save_model: SaveModel, content: bytes) -> None:
    folder = save_model(tiny_model())
    (folder / "config.json").write_bytes(content)
    assert isinstance(refusal(folder), InputError)


def test_code_that_came_with_a_model_is_not_run(save_model: SaveModel) -> None:
    folder = save_model(tiny_model())
    own = {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
    edit_json(folder / "config.json", auto_map=own)
    (folder / "own.py").write_text("raise SystemExit('run')\n")
    load_model(folder, FP32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 10**6}, "1000000 layers, and the weight files hold 20 tensors"),
        ({"hidden_size": 10**9}, "asks for at least 835,000,000,000 weights"),
        ({"vocab_size": 10**12}, "asks for at least 32,000,000,018,432 weights"),
    ],
)
def test_an_absurd_size_is_refused_before_any_layer_is_made(
    save_model: SaveModel,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, int],
    words: str,
) -> None:
    folder = save_model(tiny_model())
    edit_json(folder / "config.json", **changes)
    monkeypatch.setattr(load, "load_strictly", None)
    with pytest.raises(InputError, match=words):
        load_model(folder, FP32)


def test_weights_that_do_not_fit_into_memory_are_not_loaded(
    save_model: SaveModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_model(tiny_model())
    least = least_weights(tiny_model().config)
    monkeypatch.setattr("assay.models.load.available_memory", lambda device: 4.0 * least)
    check_loadable(folder)
    monkeypatch.setattr("assay.models.load.available_memory", lambda device: 4.0 * least - 1)
    with pytest.raises(InputError, match="GiB of memory"):
        check_loadable(folder)


def test_dropout_in_attention_is_sampled_and_not_trained(save_model: SaveModel) -> None:
    folder = save_model(tiny_model())
    refuse_untrainable(read_config(folder), folder / "config.json")
    edit_json(folder / "config.json", attention_dropout=0.1)
    with pytest.raises(InputError, match="attention_dropout"):
        refuse_untrainable(read_config(folder), folder / "config.json")
    # The plain path trains without it.
    plain = save_model(tiny_family("olmo2"), "plain")
    edit_json(plain / "config.json", attention_dropout=0.1)
    refuse_untrainable(read_config(plain), plain / "config.json")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_weight_that_is_not_finite_is_named(save_model: SaveModel, value: float) -> None:
    folder = save_model(tiny_model())
    name = "model.layers.1.mlp.up_proj.weight"
    with edited_weights(folder / "model.safetensors") as state:
        state[name][5, 3] = value
    with pytest.raises(InputError, match=f"not finite: {name} "):
        load_model(folder, FP32)


@pytest.mark.parametrize(
    "content", ['{"eos_tok', "[]", '{"eos_token_id": "x"}', '{"eos_token_id": [3, 259]}']
)
def test_end_tokens_that_cannot_be_read_are_not_left_out(
    save_model: SaveModel, content: str
) -> None:
    folder = save_model(tiny_model())
    (folder / "generation_config.json").write_text(content)
    with pytest.raises(InputError, match=r"generation_config\.json"):
        load_model(folder, FP32)
