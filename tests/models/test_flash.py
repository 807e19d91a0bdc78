"""Parts of attention merge into the whole, and both ways to compute one agree."""

import pytest
import torch
from torch import Tensor

from assay.models.flash import UNSEEN, attend_by_products, attend_seen, merge, mix

QUERIES, KEYS = 3, 8


def heads(tokens: int, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, tokens, 16, generator=generator, dtype=torch.float64).to(dtype)


def given(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, float]:
    return heads(QUERIES, dtype, 0), heads(KEYS, dtype, 1), heads(KEYS, dtype, 2), 0.25


def hiding(visible: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Each batch sees so many of the keys."""
    unseen = torch.arange(KEYS) >= torch.tensor(visible)[:, None]
    return torch.zeros(unseen.shape, dtype=dtype).masked_fill(unseen, UNSEEN)[:, None, None]


@pytest.mark.parametrize("visible", [(8, 8), (8, 5), (1, 8)])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_the_kernel_and_the_products_agree(dtype, near, visible):
    parts = given(dtype)
    for mask in (None, hiding(visible, dtype)):
        by_kernel, by_products = attend_seen(*parts, mask), attend_by_products(*parts, mask)
        for one, other in zip(by_kernel, by_products, strict=True):
            torch.testing.assert_close(one, other, atol=near, rtol=near)


@pytest.mark.parametrize("attend", [attend_seen, attend_by_products])
def test_two_parts_are_the_whole_and_a_part_without_keys_weighs_nothing(attend):
    query, key, value, scale = given(torch.float64)
    whole = attend(query, key, value, scale, None)
    first = attend(query, key[:, :, :3], value[:, :, :3], scale, None)
    second = attend(query, key[:, :, 3:], value[:, :, 3:], scale, None)
    for one, other in zip(merge(first, second), whole, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)
    blind = attend(query, key, value, scale, hiding((0, 0), torch.float64))
    assert torch.equal(mix(whole, blind), whole[0])
    torch.testing.assert_close(mix(blind, whole), whole[0], atol=1e-12, rtol=1e-12)
