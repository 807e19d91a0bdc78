"""Checkpoint files give back every bit, and belong to one architecture and one adapter."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file

from assay.errors import InputError
from assay.models.load import weight_fingerprint
from assay.models.lora import LoraOptions
from assay.models.weight_files import load_weights, save_weights
from tests.models.adapters import adapted
from tests.models.edits import edited_weights
from tests.models.folders import tiny_model


def lora_model(
    rank: int = 4, std: float = 0.0, targets: tuple[str, ...] = ("q_proj",)
) -> PeftModel:
    return adapted(tiny_model(), LoraOptions(rank=rank, targets=targets), std)


def scrambled(**options: bool):
    model = tiny_model(**options)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    return model


@pytest.mark.parametrize("tied", [True, False])
def test_a_full_checkpoint_gives_back_every_bit_with_tied_weights_once(
    tmp_path: Path, tied: bool
) -> None:
    model = scrambled(tied=tied)
    save_weights(model, tmp_path)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert len({"lm_head.weight", "model.embed_tokens.weight"} & names) == (1 if tied else 2)
    assert "model.embed_tokens.weight" in names, "the name that other programs look for"
    other = tiny_model(tied=tied)
    load_weights(other, tmp_path)
    assert weight_fingerprint(other) == weight_fingerprint(model)


def test_an_adapter_checkpoint_holds_the_adapter_alone_and_gives_it_back(tmp_path: Path) -> None:
    model = lora_model(std=0.3)
    save_weights(model, tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    stored = load_file(tmp_path / "adapter_model.safetensors")
    assert len(stored) == 4 and all("lora_" in name for name in stored)
    other = lora_model()
    load_weights(other, tmp_path)
    assert weight_fingerprint(other) == weight_fingerprint(model)


def test_another_architecture_is_refused_with_both_names(tmp_path: Path) -> None:
    save_weights(tiny_model("qwen3"), tmp_path)
    with pytest.raises(InputError, match="Qwen3ForCausalLM, the model is LlamaForCausalLM"):
        load_weights(tiny_model("llama"), tmp_path)


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_an_incomplete_adapter_names_the_file(tmp_path: Path, name: str) -> None:
    save_weights(lora_model(), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=f"{name}: is missing"):
        load_weights(lora_model(), tmp_path)


def test_an_adapter_with_a_key_too_few_or_too_many_is_refused(tmp_path: Path) -> None:
    save_weights(lora_model(std=0.1), tmp_path)
    with edited_weights(tmp_path / "adapter_model.safetensors") as state:
        gone = sorted(state)[0]
        state["base_model.model.extra"] = state.pop(gone)
    model = lora_model()
    before = weight_fingerprint(model)
    with pytest.raises(InputError) as caught:
        load_weights(model, tmp_path)
    assert f"1 missing: {gone}" in str(caught.value)
    assert "1 unexpected: base_model.model.extra" in str(caught.value)
    assert weight_fingerprint(model) == before


def test_adapters_of_another_rank_or_other_layers_are_refused(tmp_path: Path) -> None:
    save_weights(lora_model(rank=8), tmp_path)
    with pytest.raises(InputError, match=r"r: adapter has 8, the model's has 4"):
        load_weights(lora_model(rank=4), tmp_path)
    save_weights(lora_model(targets=("k_proj",)), tmp_path)
    with pytest.raises(InputError):
        load_weights(lora_model(), tmp_path)


@pytest.mark.parametrize("make", [lora_model, tiny_model])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_checkpoint_with_a_weight_that_is_no_number_is_named_and_not_loaded(
    tmp_path: Path, make: Callable[[], Any], value: float
) -> None:
    save_weights(make(), tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    with edited_weights(file) as state:
        spoiled = sorted(state)[1]
        state[spoiled].view(-1)[3] = value
    model = make()
    before = weight_fingerprint(model)
    with pytest.raises(InputError, match=f"not finite: {re.escape(spoiled)}"):
        load_weights(model, tmp_path)
    assert weight_fingerprint(model) == before
