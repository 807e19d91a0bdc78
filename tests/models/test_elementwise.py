"""What lies between the products gives what its formulas give, however rows are cut into blocks."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck
from transformers.activations import ACT2FN

from assay.models import layers
from assay.models.layers import add_and_norm, gated, norm_for_products, rms_norm, rotate

TOKENS, HEADS, SIZE = 7, 3, 8
THREE_ROWS = 3 * 6 * 8
"""Bytes of three rows of six numbers; the last block of seven is shorter."""


@pytest.fixture(params=[1, THREE_ROWS, 1 << 20], ids=["a row", "some rows", "all"])
def block(request, monkeypatch) -> int:
    """Bytes of a block."""
    monkeypatch.setattr(layers, "BLOCK_BYTES", -(-request.param // torch.get_num_threads()))
    return request.param


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return values.to(dtype).requires_grad_()


def rotation() -> tuple[Tensor, Tensor]:
    angles = numbers(TOKENS, SIZE // 2).detach()
    sine = angles.sin()
    return angles.cos().repeat(1, 2), torch.cat([-sine, sine], dim=-1)


def test_every_gradient_is_that_of_its_formula(block):
    values, change, weight = numbers(TOKENS, 6), numbers(TOKENS, 6, seed=1), numbers(6, seed=2)
    assert gradcheck(lambda x, w: rms_norm(x, w, 1e-3), (values, weight))
    assert gradcheck(lambda x, c, w: add_and_norm(x, c, w, 1e-3), (values, change, weight))
    assert gradcheck(lambda x: rotate(x, rotation()), (numbers(TOKENS, HEADS, SIZE),))
    assert gradcheck(lambda g, u: gated(g, u, ACT2FN["silu"]), (values, change))


def test_norms_of_tokens_and_of_heads_are_torchs(block):
    for shape in ((TOKENS, SIZE), (TOKENS, HEADS, SIZE)):
        values, weight = numbers(*shape), numbers(SIZE, seed=2)
        torch.testing.assert_close(
            rms_norm(values, weight, 1e-3), F.rms_norm(values, (SIZE,), weight, 1e-3)
        )


def test_the_stream_goes_on_with_the_change_in_it(block):
    hidden, change, weight = numbers(TOKENS, 6), numbers(TOKENS, 6, seed=1), numbers(6, seed=2)
    total, rows = add_and_norm(hidden, change, weight, 1e-3)
    assert torch.equal(total, hidden + change)
    torch.testing.assert_close(rows, F.rms_norm(hidden + change, (6,), weight, 1e-3))


def test_turning_by_complex_numbers_gives_the_same_heads(block):
    heads = numbers(TOKENS, HEADS, SIZE).detach()
    cosine, sine = rotation()
    first, second = heads.chunk(2, dim=-1)
    turned = torch.complex(first, second) * torch.complex(cosine, sine)[:, None, SIZE // 2 :]
    torch.testing.assert_close(
        rotate(heads, (cosine, sine)), torch.cat([turned.real, turned.imag], dim=-1)
    )


def test_norms_that_feed_products_are_rounded_once_under_autocast():
    hidden, change = (numbers(TOKENS, 6, seed=n, dtype=torch.float32) for n in range(2))
    weight = numbers(6, seed=2, dtype=torch.float32)
    plain = F.rms_norm(hidden + change, (6,), weight, 1e-3)
    expected = torch.autograd.grad(plain.sum(), (hidden, change, weight))
    with torch.autocast("cpu", torch.bfloat16):
        total, rows = add_and_norm(hidden, change, weight, 1e-3)
        alone = norm_for_products(total, weight, 1e-3)
        wide = rms_norm(total, weight, 1e-3)
    assert (total.dtype, rows.dtype, alone.dtype) == (torch.float32, torch.bfloat16, torch.bfloat16)
    assert wide.dtype == torch.float32
    assert torch.equal(rows, wide.bfloat16()) and torch.equal(alone, rows)
    found = torch.autograd.grad(rows.float().sum(), (hidden, change, weight))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other)
