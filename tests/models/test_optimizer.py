"""Matrices decay, vectors do not, frozen weights are left out, 8 bits only where they run."""

import importlib.util
import sys

import pytest
import torch
from torch import nn

from assay.errors import InputError
from assay.train.update import make_optimizer
from tests.models.folders import tiny_model


def test_norms_and_biases_do_not_decay_and_frozen_weights_are_left_out() -> None:
    model = tiny_model("qwen2")
    model.get_parameter("model.layers.0.mlp.up_proj.weight").requires_grad_(False)
    names = {id(p): n for n, p in model.named_parameters()}
    optimizer = make_optimizer(model.parameters(), lr=0.1, weight_decay=0.5)
    decays = {names[id(p)]: g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    expected = {
        n: 0.0 if n.endswith("bias") or "norm" in n else 0.5
        for n, p in model.named_parameters()
        if p.requires_grad
    }
    assert decays == expected


def test_a_step_follows_the_published_update() -> None:
    matrix, vector = nn.Parameter(torch.full((2, 2), 2.0)), nn.Parameter(torch.full((2,), 2.0))
    optimizer = make_optimizer([matrix, vector], lr=0.1, weight_decay=0.5, betas=(0.8, 0.9))
    (3 * matrix.sum() + 3 * vector.sum()).backward()
    optimizer.step()
    # After one step both debiased moments are the gradient's own, so it moves by lr whatever g is.
    torch.testing.assert_close(matrix.detach(), torch.full((2, 2), 2.0 * (1 - 0.05) - 0.1))
    torch.testing.assert_close(vector.detach(), torch.full((2,), 2.0 - 0.1))
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)


def test_8_bit_moments_without_bitsandbytes_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(InputError, match="pip install bitsandbytes"):
        make_optimizer([nn.Parameter(torch.ones(2, 2))], name="adamw8bit", lr=0.1)


@pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed"
)
def test_8_bit_moments_step_close_to_fp32_and_are_bytes() -> None:
    torch.manual_seed(0)
    start, gradient = torch.randn(64, 128), torch.randn(64, 128)
    results = []
    for name in ("adamw", "adamw8bit"):
        weight = nn.Parameter(start.clone())
        optimizer = make_optimizer([weight], name=name, lr=0.01)
        for _ in range(3):
            weight.grad = gradient.clone()
            optimizer.step()
        results.append(weight.detach())
        dtypes = {v.dtype for v in optimizer.state[weight].values() if torch.is_tensor(v)}
    assert torch.uint8 in dtypes
    # Moments of gradients far below their block's largest are rounded to zero: single weights may
    # lag by a whole step, the mean of what three steps moved may not.
    moved, lag = (results[0] - start).abs().mean(), (results[0] - results[1]).abs().mean()
    assert 0 < lag < 0.02 * moved
