"""What is made again for the backward pass is what was read, made once, and not kept till then."""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers import made_again
from assay.models.matmul import project


class Maker:
    """Makes cosines, and counts how often."""

    def __init__(self, angles: Tensor):
        self.angles = angles
        self.made = 0

    def __call__(self) -> Tensor:
        assert not torch.is_grad_enabled()
        self.made += 1
        return self.angles.cos()


def read_by_two(again: bool, maker: Maker, angles: Tensor, layers: nn.ModuleList) -> Tensor:
    rows = angles.cos()
    if not again:
        return torch.cat([project(layer, rows) for layer in layers], dim=1)
    with made_again(rows, maker):
        return torch.cat([project(layer, rows) for layer in layers], dim=1)


@pytest.fixture
def layers() -> nn.ModuleList:
    torch.manual_seed(0)
    return nn.ModuleList([nn.Linear(6, 4), nn.Linear(6, 5, bias=False)])


def gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_bit_for_bit_those_of_what_was_kept(
    layers: nn.ModuleList, dtype: torch.dtype
) -> None:
    layers.to(dtype)
    angles = torch.randn(7, 6, dtype=dtype, requires_grad=True)
    inputs = [angles, *layers.parameters()]
    found = []
    for again in (False, True):
        output = read_by_two(again, Maker(angles.detach()), angles, layers)
        found.append(torch.autograd.grad(output.square().sum(), inputs))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_it_is_made_once_for_all_readers_and_again_for_the_next_backward_pass(
    layers: nn.ModuleList,
) -> None:
    angles = torch.randn(7, 6, requires_grad=True)
    maker = Maker(angles.detach())
    loss = read_by_two(True, maker, angles, layers).sum()
    assert maker.made == 0
    loss.backward(retain_graph=True)
    assert maker.made == 1
    loss.backward()
    assert maker.made == 2


def test_the_gradient_really_comes_from_what_is_made(layers: nn.ModuleList) -> None:
    angles = torch.randn(7, 6, requires_grad=True)
    read_by_two(True, Maker(torch.full((7, 6), torch.pi / 2)), angles, layers).sum().backward()
    weight, bias = layers[0].parameters()
    assert gradient(weight).abs().max() < 1e-5
    assert gradient(bias).abs().max() == 7


def test_nothing_keeps_the_values_after_the_products(layers: nn.ModuleList) -> None:
    angles = torch.randn(7, 6, requires_grad=True)
    rows = angles.cos()
    alive = weakref.ref(rows.untyped_storage())
    with made_again(rows, Maker(angles.detach())):
        outputs = [project(layer, rows) for layer in layers]
    del rows
    gc.collect()
    assert alive() is None
    assert outputs[0].requires_grad
