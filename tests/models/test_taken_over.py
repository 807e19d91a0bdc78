"""A checkpoint of another program is the model that its own loader makes of it, or it is refused.

peft's logits over its own unmerged adapters are the truth; folders are read back by the lab's
strict loader.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from assay.errors import InputError
from assay.models.load import load_strictly
from assay.models.supported import read_config
from assay.models.taken_over import PROBED, open_theirs, refuse_unlike, whole
from assay.models.weight_files import save_weights
from tests.few import few
from tests.models.edits import edit_json, edited_weights
from tests.models.folders import tiny_model

IDS = torch.arange(3, 250, 5)[None]
LORA = partial(peft.LoraConfig, r=4, lora_alpha=8, task_type="CAUSAL_LM")
QV = ["q_proj", "v_proj"]
MERGED: dict[str, Callable[[], peft.PeftConfig]] = {
    "alpha_pattern": lambda: LORA(target_modules=QV, alpha_pattern={"q_proj": 64}),
    "pissa": lambda: LORA(target_modules=QV, init_lora_weights="pissa"),
    "tied head saved": lambda: LORA(target_modules=QV, modules_to_save=["lm_head"]),
    "lora_bias": lambda: LORA(target_modules=QV, lora_bias=True),
    "rank_pattern": lambda: LORA(target_modules=QV, rank_pattern={"q_proj": 2}),
    "olora": lambda: LORA(target_modules=QV, init_lora_weights="olora"),
    "regex": lambda: LORA(target_modules=r".*layers\.1.*q_proj"),
    "tied embedding": lambda: LORA(target_modules=["q_proj", "embed_tokens"]),
    "token rows": lambda: LORA(target_modules=QV, trainable_token_indices=[5, 250]),
    "replicated layers": lambda: LORA(target_modules=QV, layer_replication=[(0, 2), (0, 2)]),
    "dora with alpha": lambda: LORA(target_modules=QV, use_dora=True, alpha_pattern={"v_proj": 3}),
    "parameters": lambda: LORA(target_modules=[], target_parameters=["mlp.down_proj.weight"]),
    "ties kept": lambda: LORA(
        target_modules=QV, modules_to_save=["embed_tokens"], ensure_weight_tying=True
    ),
    "the largest of a bank": lambda: peft.VBLoRAConfig(
        task_type="CAUSAL_LM",
        target_modules=QV,
        num_vectors=16,
        vector_length=8,
        save_only_topk_weights=True,
    ),
    "IA3": lambda: peft.IA3Config(
        task_type="CAUSAL_LM",
        target_modules=["k_proj", "down_proj"],
        feedforward_modules=["down_proj"],
    ),
}


def adapter(folder: Path, config: peft.PeftConfig) -> tuple[Path, Tensor]:
    """A trained adapter as peft saves it, and its logits."""
    model: Any = peft.get_peft_model(tiny_model(), config)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(0.05 * torch.randn_like(weight))
        model.save_pretrained(folder)
        return folder, model.eval()(IDS).logits


@few("kind", MERGED, 4)
def test_merged_weights_give_the_logits_of_pefts_adapter(kind: str, tmp_path: Path) -> None:
    folder, want = adapter(tmp_path / "theirs", MERGED[kind]())
    (stored := tmp_path / "stored").mkdir()
    save_weights(whole(open_theirs(folder, tiny_model), folder), stored)
    ours = load_strictly(stored, read_config(stored), torch.float32).eval()
    with torch.no_grad():
        assert float((ours(IDS).logits - want).abs().max()) < 1e-6
        assert float((tiny_model()(IDS).logits - want).abs().max()) > 1e-3 or kind == "IA3"
    refuse_unlike(open_theirs(folder, tiny_model), ours, folder)


def test_the_first_layer_that_differs_is_named(tmp_path: Path) -> None:
    theirs, ours = tiny_model().eval(), tiny_model().eval()
    refuse_unlike(theirs, ours, tmp_path)
    with torch.no_grad():
        ours.get_parameter("model.layers.1.mlp.up_proj.weight")[3, 4] += 0.01
        ours.get_parameter("model.layers.1.mlp.down_proj.weight")[3, 4] += 0.01
    with pytest.raises(InputError, match=r"model\.layers\.1\.mlp\.up_proj differs by"):
        refuse_unlike(theirs, ours, tmp_path)


def test_a_row_of_the_embedding_that_no_probe_reads_is_compared(tmp_path: Path) -> None:
    theirs, ours = tiny_model(tied=False).eval(), tiny_model(tied=False).eval()
    read = set(torch.linspace(0, 258, PROBED).long().tolist())
    row = next(row for row in range(259) if row not in read)
    with torch.no_grad():
        ours.get_parameter("model.embed_tokens.weight")[row, 0] += 1e-4
    with pytest.raises(InputError, match="the input embedding differs"):
        refuse_unlike(theirs, ours, tmp_path)


def test_rounding_is_no_difference_and_a_thousandth_of_an_adapter_is(tmp_path: Path) -> None:
    folder, _ = adapter(tmp_path, LORA(target_modules="all-linear"))
    theirs = open_theirs(folder, tiny_model)
    again: Any = open_theirs(folder, tiny_model)
    refuse_unlike(theirs, again.merge_and_unload(), folder)
    other: Any = open_theirs(folder, tiny_model)
    layer = other.get_submodule("base_model.model.model.layers.0.self_attn.q_proj")
    layer.scaling["default"] *= 1.001
    with pytest.raises(InputError, match=r"model\.layers\.0\.self_attn\.q_proj differs"):
        refuse_unlike(theirs, other, folder)
    layer.scaling["default"] /= 1.001
    up = other.get_submodule("base_model.model.model.layers.1.mlp.up_proj")
    with torch.no_grad():
        up.lora_B["default"].weight.mul_(1.02)
    with pytest.raises(InputError, match=r"model\.layers\.1\.mlp\.up_proj differs"):
        refuse_unlike(theirs, other, folder)


REFUSED: dict[str, tuple[Callable[[], peft.PeftConfig], str]] = {
    "prompt": (
        lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
        "PROMPT_TUNING is no change of weights",
    ),
    "aLoRA": (
        lambda: LORA(target_modules=QV, alora_invocation_tokens=[65, 66]),
        "peft cannot merge this LORA adapter",
    ),
}


@few("kind", REFUSED, 1)
def test_what_no_weights_can_hold_is_refused(kind: str, tmp_path: Path) -> None:
    config, words = REFUSED[kind]
    folder, _ = adapter(tmp_path, config())
    with pytest.raises(InputError, match=words):
        whole(open_theirs(folder, tiny_model), folder)


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "a setting of a later peft": ({"use_more": "yes"}, "use_more: peft .* does not know"),
    "a kind of a later peft": ({"peft_type": "MORE"}, "knows no adapters of type 'MORE'"),
    "fewer targets": ({"target_modules": ["q_proj"]}, r"opens it without .*v_proj\.lora_A"),
    "more targets": ({"target_modules": [*QV, "o_proj"]}, r"lacks .*o_proj\.lora_A"),
    "another rank": ({"r": 8}, "peft does not open it over this base model"),
}


@few("change", CHANGED, 3)
def test_a_configuration_that_does_not_fit_the_weights_is_refused(
    change: str, tmp_path: Path
) -> None:
    folder, _ = adapter(tmp_path, LORA(target_modules=QV))
    keys, words = CHANGED[change]
    edit_json(folder / "adapter_config.json", **keys)
    with pytest.raises(InputError, match=words):
        open_theirs(folder, tiny_model)


def test_a_setting_of_a_later_peft_that_is_off_is_no_obstacle(tmp_path: Path) -> None:
    folder, want = adapter(tmp_path, LORA(target_modules=QV))
    edit_json(folder / "adapter_config.json", use_more=False)
    with torch.no_grad():
        assert torch.equal(open_theirs(folder, tiny_model)(IDS).logits, want)


def test_a_pickled_adapter_is_not_opened(tmp_path: Path) -> None:
    folder, _ = adapter(tmp_path, LORA(target_modules=QV))
    weights = folder / "adapter_model.safetensors"
    torch.save(load_file(weights), folder / "adapter_model.bin")
    weights.unlink()
    with pytest.raises(InputError, match=r"adapter_model\.safetensors: is missing"):
        open_theirs(folder, tiny_model)


def test_whole_weights_that_lack_a_tensor_are_refused(tmp_path: Path) -> None:
    save_weights(tiny_model(), tmp_path)
    with edited_weights(tmp_path / "model.safetensors") as state:
        del state["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(InputError, match=r"1 missing: model\.layers\.1\.mlp\.up_proj\.weight"):
        open_theirs(tmp_path, tiny_model)
