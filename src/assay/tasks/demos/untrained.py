"""Selectors without weights: all candidates alike, and those most like the query.

What trained selectors are compared with.
"""

import torch
from torch import Tensor, nn

from assay.tasks.demos.choice import ChoiceBatch


class UniformSelector(nn.Module):
    """Every candidate that is left is as likely as any other."""

    def forward(self, batch: ChoiceBatch, context_N: Tensor, picked_NS: Tensor) -> Tensor:
        """Scores (N, S+1, K), all 0; see `PointerSelector`."""
        return torch.zeros(len(context_N), picked_NS.shape[1] + 1, batch.numbers_BK.shape[1])


class SimilaritySelector(nn.Module):
    """The cosine of the features over a temperature: greedily, the most similar is picked first."""

    def __init__(self, temperature: float = 0.1):
        super().__init__()
        self.temperature = temperature

    def forward(self, batch: ChoiceBatch, context_N: Tensor, picked_NS: Tensor) -> Tensor:
        """Scores (N, S+1, K); see `PointerSelector`."""
        scores_BK = torch.einsum("bd,bkd->bk", batch.query_BD, batch.pool_BKD) / self.temperature
        return scores_BK[context_N][:, None].expand(-1, picked_NS.shape[1] + 1, -1)
