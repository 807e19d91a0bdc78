"""Adapters trained one upon another are one adapter, of which a stage finds its own again."""

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file

from assay.errors import InputError
from assay.models.lora import LoraOptions, merged
from assay.models.weight_files import load_weights, own_adapter, save_weights, stand_on
from tests.models.adapters import adapted
from tests.models.folders import tiny_model, tiny_tokenizer

CHAIN = (
    LoraOptions(rank=4, alpha=8.0, targets=("q_proj", "down_proj")),
    LoraOptions(rank=3, alpha=5.0, targets=("q_proj", "up_proj")),
    LoraOptions(rank=2, alpha=7.0, targets=("up_proj", "k_proj")),
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "base").mkdir()
    save_weights(tiny_model(), tmp_path / "base", tiny_tokenizer())
    return tmp_path / "base"


def chain(base: Path) -> tuple[list[Path], torch.nn.Module]:
    """Folders of three adapters, each over those before it, and the model they make."""
    torch.manual_seed(1)
    model, folders = tiny_model(), []
    for index, options in enumerate(CHAIN):
        made = adapted(model, options)
        folder = base.parent / f"adapter-{index}"
        folder.mkdir()
        save_weights(made, folder)
        stand_on(folder, base, folders)
        folders.append(folder)
        model = merged(made)
    return folders, model


def test_plain_peft_makes_the_whole_chain_of_one_folder(base: Path) -> None:
    folders, model = chain(base)
    theirs = PeftModel.from_pretrained(tiny_model(), str(folders[-1])).merge_and_unload()
    expected = dict(model.named_parameters())
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(parameter, expected[name], rtol=1e-5, atol=1e-5)
    config = json.loads((folders[-1] / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    assert config["r"] == 9 and config["lora_alpha"] == pytest.approx(9 * 7 / 2)
    tensors = load_file(folders[-1] / "adapter_model.safetensors")
    assert all(9 in tensor.shape for tensor in tensors.values())


def test_a_stage_finds_every_bit_of_its_own_adapter_under_none_and_over_others(
    base: Path, tmp_path: Path
) -> None:
    folders, _ = chain(base)
    (tmp_path / "alone").mkdir()
    made = adapted(tiny_model(), CHAIN[2])
    save_weights(made, tmp_path / "alone")
    before = own_adapter(tmp_path / "alone")
    stand_on(tmp_path / "alone", base, folders[:2])
    after = own_adapter(tmp_path / "alone")
    assert after.rank == before.rank and after.scale == pytest.approx(before.scale)
    assert after.tensors.keys() == before.tensors.keys()
    assert all(torch.equal(after.tensors[name], before.tensors[name]) for name in before.tensors)
    other = adapted(tiny_model(), CHAIN[2])
    load_weights(other, tmp_path / "alone")
    for one, two in zip(made.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_damaged_adapter_below_is_named(base: Path, tmp_path: Path) -> None:
    folders, _ = chain(base)
    (folders[0] / "adapter_model.safetensors").write_bytes(b"not weights")
    (tmp_path / "next").mkdir()
    save_weights(adapted(tiny_model(), CHAIN[1]), tmp_path / "next")
    with pytest.raises(InputError, match="adapter-0"):
        stand_on(tmp_path / "next", base, folders[:1])
