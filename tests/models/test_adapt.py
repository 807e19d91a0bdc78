"""What is trained is what was asked for; an adapter is exact when merged and absent when off."""

import pytest
import torch
from benchmarks.families import tiny_family
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from assay.errors import InputError
from assay.models import lora
from assay.models.adapt import train_lora, train_unfrozen
from assay.models.lora import LoraOptions, PackedLora
from tests.models.adapters import adapted as with_adapter
from tests.models.folders import tiny_model

IDS = torch.tensor([[5, 6, 7, 8]])


def logits(model: PreTrainedModel | PeftModel) -> Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def trained_lora() -> PeftModel:
    """A LoRA model whose adapter does something."""
    return with_adapter(tiny_model()).eval()


def test_a_fresh_adapter_changes_nothing_and_only_it_is_trained() -> None:
    base = tiny_model().eval()
    before = logits(base)
    model, adaptation = train_lora(base, LoraOptions(rank=4))
    assert torch.equal(logits(model), before)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained and all("lora_" in name for name in trained)
    # q and o: 32 -> 32; k and v: 32 -> 16; gate, up and down: between 32 and 64; two layers.
    assert adaptation.trainable == 2 * 4 * (2 * 64 + 2 * 48 + 3 * 96)
    assert adaptation.kind == "lora"
    assert 0 < adaptation.share < 1


def test_named_targets_are_the_only_layers_adapted() -> None:
    model, _ = train_lora(tiny_model(), LoraOptions(targets=("q_proj", "0.mlp.up_proj")))
    names = {n.split(".lora_")[0] for n, p in model.named_parameters() if p.requires_grad}
    assert {name.removeprefix("base_model.model.") for name in names} == {
        "model.layers.0.self_attn.q_proj",
        "model.layers.1.self_attn.q_proj",
        "model.layers.0.mlp.up_proj",
    }


@pytest.mark.parametrize("wrong", ["q_prj", "proj", "embed_tokens", "norm"])
def test_one_target_without_a_layer_is_refused_even_beside_good_ones(wrong: str) -> None:
    with pytest.raises(InputError, match=f"'{wrong}' names no linear layer"):
        train_lora(tiny_model(), LoraOptions(targets=("k_proj", wrong)))


def test_a_head_tied_to_the_embedding_is_not_adapted() -> None:
    with pytest.raises(InputError, match="shares its weight with the embedding"):
        train_lora(tiny_model(tied=True), LoraOptions(targets=("lm_head",)))
    adapted, _ = train_lora(tiny_model(tied=False), LoraOptions(targets=("lm_head",)))
    trained = {name for name, p in adapted.named_parameters() if p.requires_grad}
    assert trained == {f"base_model.model.lm_head.lora_{side}.default.weight" for side in "AB"}


def test_without_the_adapter_the_model_is_the_base_and_training_goes_on_after() -> None:
    base = logits(tiny_model().eval())
    model = trained_lora()
    adapted = logits(model)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    with model.disable_adapter():
        assert torch.equal(logits(model), base)
    assert torch.equal(logits(model), adapted)
    assert not torch.allclose(adapted, base, atol=1e-3)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == trained


def test_frozen_names_get_no_gradient_and_all_others_do() -> None:
    model = tiny_model(tied=False)
    patterns = ("model.embed_tokens.*", "model.layers.0.*")
    _, adaptation = train_unfrozen(model, patterns)
    model(input_ids=IDS, labels=IDS).loss.backward()
    for name, parameter in model.named_parameters():
        frozen = name.startswith(("model.embed_tokens.", "model.layers.0."))
        assert (parameter.grad is None) == frozen, name
    frozen_count = 259 * 32 + sum(
        p.numel() for n, p in model.named_parameters() if n.startswith("model.layers.0.")
    )
    assert adaptation.total - adaptation.trainable == frozen_count


def test_either_name_of_a_tied_weight_freezes_it() -> None:
    model = tiny_model(tied=True)
    train_unfrozen(model, ("lm_head.*",))
    assert not model.get_input_embeddings().weight.requires_grad


def test_a_pattern_without_a_match_offers_the_nearest_and_freezes_nothing() -> None:
    model = tiny_model()
    with pytest.raises(InputError, match=r"did you mean 'model.norm.weight'"):
        train_unfrozen(model, ("model.layers.0.*", "model.norms.weight"))
    assert all(p.requires_grad for p in model.parameters())


def projections(model: PeftModel) -> list[PackedLora]:
    return [module for module in model.modules() if isinstance(module, PackedLora)]


@pytest.mark.parametrize(("rough", "near"), [(False, 1e-12), (True, 0.02)])
def test_packed_rows_go_through_an_adapter_as_pefts_own_way_takes_them(rough, near) -> None:
    dtype = torch.float32 if rough else torch.float64
    layer = projections(trained_lora())[0].to(dtype)
    rows = torch.randn(7, 32, dtype=dtype)
    found: list[list[Tensor]] = []
    for shape in ((7, 32), (1, 7, 32)):
        given = rows.clone().requires_grad_()
        layer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=rough):
            output = layer(given.view(shape))
        output.float().square().sum().backward()
        assert given.grad is not None
        found.append([output.detach().view(7, -1), given.grad, *own_gradients(layer)])
    assert len(found[0]) == 4
    for packed, batched in zip(*found, strict=True):
        assert packed.dtype == batched.dtype
        assert float((packed - batched).norm() / batched.norm()) < near


def own_gradients(layer: PackedLora) -> list[Tensor]:
    named = layer.named_parameters()
    return [p.grad for name, p in named if "lora_" in name and p.grad is not None]


def test_an_adapter_that_is_switched_off_or_merged_takes_pefts_way() -> None:
    layer = projections(trained_lora())[0]
    rows = torch.randn(7, 32)
    plain, adapted = layer.base_layer(rows), layer(rows)
    assert not torch.equal(plain, adapted)
    layer.enable_adapters(False)
    assert torch.equal(layer(rows), plain)
    layer.enable_adapters(True)
    layer.merge()
    torch.testing.assert_close(layer(rows), adapted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("family", "ends"),
    [
        pytest.param("nemotron_h", {"out_proj"}, marks=pytest.mark.slow),
        pytest.param("falcon_h1", {"out_proj"}, marks=pytest.mark.slow),
        ("mamba", {"out_proj", "x_proj", "dt_proj"}),
        ("bloom", set()),
        pytest.param("qwen3_next", set(), marks=pytest.mark.slow),
    ],
)
def test_all_linear_leaves_out_what_a_module_computes_without_calling_it(
    family: str, ends: set[str]
) -> None:
    model = tiny_family(family)
    out = {name for name, _ in model.named_modules() if name.rpartition(".")[2] in ends}
    adapted, adaptation = train_lora(model, LoraOptions(rank=2))
    assert set(adaptation.left_out) == out and not any(
        f"{n}.lora_" in name for n in out for name, _ in adapted.named_parameters()
    )
    assert all(end in adaptation.left for end in ends) and bool(adaptation.left) == bool(ends)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_()
    adapted(input_ids=torch.arange(40, 60)[None]).logits.std().backward()
    assert all(p.grad is not None for p in adapted.parameters() if p.requires_grad)
    for end in ends:
        with pytest.raises(InputError, match=f"'{end}' names .*would have no effect"):
            train_lora(tiny_family(family), LoraOptions(rank=2, targets=("in_proj", end)))


def test_what_peft_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lora, "left_out", lambda model: ())
    with pytest.raises(InputError) as refused:
        train_lora(tiny_family("nemotron_h"), LoraOptions(rank=2))
    said = str(refused.value)
    assert "\n" not in said and "out_proj" in said and "incompatible with Mamba" in said
