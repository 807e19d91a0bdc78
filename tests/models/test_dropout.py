"""An adapter's dropout is peft's with a mask of its own place, in every way of computing."""

import copy

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora.layer import Linear
from torch import Tensor
from torch.autograd import gradcheck

from assay.models.adapt import save_activations, train_lora
from assay.models.lora import AddLowRank, LoraOptions, Mask, PackedLora, begin_masks, next_masks
from assay.models.scoring import score_actions
from tests.models.adapters import adapted
from tests.models.folders import tiny_model

CONTEXTS = [(5, 6, 7), (5, 6, 7, 8, 9)]
ACTIONS = torch.tensor([8, 9, 10, 11, 12])
OFFSETS = torch.tensor([0, 2, 5])


def dropping() -> PeftModel:
    """A LoRA model in training whose adapter does something."""
    return adapted(tiny_model(), LoraOptions(rank=4, dropout=0.5)).train()


def layers(model: PeftModel) -> list[PackedLora]:
    return [part for part in model.modules() if isinstance(part, PackedLora)]


def logps(model: PeftModel) -> Tensor:
    return score_actions(model, CONTEXTS, ACTIONS, OFFSETS)[0]  # type: ignore[arg-type]


def gradients(model: PeftModel) -> dict[str, Tensor]:
    model.zero_grad()
    logps(model).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_gives_what_peft_gives_with_the_same_mask(dtype: torch.dtype) -> None:
    layer = layers(dropping())[0]
    rows = torch.randn(7, 32, requires_grad=True)
    found, expected = [], []
    for way, into in ((layer, found), (lambda x: Linear.forward(layer, x), expected)):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            output = way(rows)
        layer.zero_grad()
        (pull,) = torch.autograd.grad(output.sum(), rows, retain_graph=True)
        output.sum().backward()
        down, up = layer.lora_A["default"].weight.grad, layer.lora_B["default"].weight.grad
        into += [output.detach(), pull, down, up]
    near = 1e-5 if dtype == torch.float32 else 3e-2
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < near


def test_gradients_of_a_dropped_input_are_those_of_the_formula() -> None:
    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    def low(base: Tensor, rows: Tensor, down: Tensor, up: Tensor) -> Tensor:
        return AddLowRank.apply(base * 1, rows, down, up, 0.5, Mask(1, 0.4))  # type: ignore[return-value]

    assert gradcheck(low, (numbers(5, 6), numbers(5, 4), numbers(2, 4), numbers(6, 2)))


def test_masks_are_of_seed_step_micro_batch_and_layer_and_of_nothing_else() -> None:
    model = dropping()
    begin_masks(model, 7, 3)
    first = logps(model)
    torch.rand(3)
    assert torch.equal(logps(copy.deepcopy(model)), first)
    next_masks(model)
    second = logps(model)
    begin_masks(model, 7, 4)
    third = logps(model)
    begin_masks(model, 8, 3)
    others = [second, third, logps(model)]
    assert not any(torch.equal(first, other) for other in others)
    begin_masks(model, 7, 3)
    assert torch.equal(logps(model), first)
    names = [layer.lora_dropout["default"].mask for layer in layers(model)]
    assert len(set(names)) == len(names) == 14


def test_a_forward_pass_run_again_for_the_backward_one_drops_the_same() -> None:
    kept, again = dropping(), dropping()
    save_activations(again)
    again.train()
    expected, found = gradients(kept), gradients(again)
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, msg=name)


def test_what_answers_drops_nothing() -> None:
    model = dropping().eval()
    plain, _ = train_lora(tiny_model(), LoraOptions(rank=4))
    plain.load_state_dict(model.state_dict())
    assert torch.equal(logps(model), logps(plain.eval()))
    assert not torch.equal(logps(model.train()), logps(plain))
