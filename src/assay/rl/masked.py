"""Statistics over the tokens that a mask keeps. Values under the mask may be anything, NaN too."""

import torch
from torch import Tensor


def masked_sum(values_S: Tensor, mask_S: Tensor) -> Tensor:
    """Sum of the kept values, a scalar."""
    return torch.where(mask_S, values_S, 0).sum()


def masked_mean(values_S: Tensor, mask_S: Tensor) -> Tensor:
    """Mean of the kept values, a scalar; 0 when none is kept."""
    return masked_sum(values_S, mask_S) / mask_S.sum().clamp(min=1)


def masked_variance(values_S: Tensor, mask_S: Tensor) -> Tensor:
    """Unbiased variance of the kept values, a scalar; 0 when fewer than two are kept."""
    squares_S = (values_S - masked_mean(values_S, mask_S)).square()
    return masked_sum(squares_S, mask_S) / (mask_S.sum() - 1).clamp(min=1)


def masked_whiten(values_S: Tensor, mask_S: Tensor, epsilon: float = 1e-8) -> Tensor:
    """All values, shifted and scaled so that the kept ones have mean 0 and variance 1.

    (x - mean) / sqrt(variance + epsilon), as verl's `masked_whiten`.
    """
    scale = (masked_variance(values_S, mask_S) + epsilon).rsqrt()
    return (values_S - masked_mean(values_S, mask_S)) * scale
