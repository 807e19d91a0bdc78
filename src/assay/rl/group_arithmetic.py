"""Arithmetic over subsets: statistics inside groups, and over the tokens that a mask keeps.

Group functions take one value per member and the member's group, and give one value per member.
Nothing here knows of rewards, tokens or advantages.
"""

import torch
from torch import Tensor

EQUAL = 1e-6
"""Values of one group whose largest and smallest differ by no more than this count as equal:
above float32 rounding of rewards near 1, below any difference a reward function means."""


def compact(group_E: Tensor) -> tuple[Tensor, int]:
    """Group numbers renamed to 0, 1, ... and how many groups there are."""
    groups, index_E = torch.unique(group_E, return_inverse=True)
    return index_E, len(groups)


def group_sum(values_E: Tensor, group_E: Tensor) -> Tensor:
    """Sum over each member's group, differentiable. Shape (E) like both arguments."""
    index_E, groups = compact(group_E)
    return values_E.new_zeros(groups).index_add(0, index_E, values_E)[index_E]


def group_size(group_E: Tensor) -> Tensor:
    """Members in each member's group, as float64."""
    return group_sum(torch.ones_like(group_E, dtype=torch.float64), group_E)


def group_mean(values_E: Tensor, group_E: Tensor) -> Tensor:
    """Mean over each member's group."""
    return group_sum(values_E, group_E) / group_size(group_E).to(values_E.dtype)


def group_std(values_E: Tensor, group_E: Tensor, ddof: int) -> Tensor:
    """Standard deviation over each member's group; 1 for groups of at most `ddof` members."""
    squares_E = (values_E - group_mean(values_E, group_E)).square()
    freedom_E = group_size(group_E) - ddof
    variance_E = group_sum(squares_E, group_E) / freedom_E.clamp(min=1)
    return torch.where(freedom_E > 0, variance_E.sqrt(), 1.0)


def group_spread(values_E: Tensor, group_E: Tensor) -> Tensor:
    """Largest minus smallest value of each member's group."""
    index_E, groups = compact(group_E)
    empty = values_E.new_zeros(groups)
    high = empty.scatter_reduce(0, index_E, values_E, "amax", include_self=False)
    low = empty.scatter_reduce(0, index_E, values_E, "amin", include_self=False)
    return (high - low)[index_E]


def in_equal_group(values_E: Tensor, group_E: Tensor, tolerance: float = EQUAL) -> Tensor:
    """Whether all values of the member's group are equal within `tolerance`.

    The spread is what is tested: a standard deviation of equal values need not come out as 0.
    """
    return group_spread(values_E, group_E) <= tolerance


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
