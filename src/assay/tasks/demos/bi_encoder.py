"""The bi-encoder of Lever-Plus: query and candidates pass through towers of their own, and scores
are cosines over a temperature.

Version 1 of yunsoft2019/Lever-Plus (`pointer_selector_v1_backup_biencoder.py`). The candidates know
nothing of each other and all picks are scored alike.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.models.lora import KeyedDropout
from assay.tasks.demos.choice import ChoiceBatch


def tower(width: int, dropout: float, name: str) -> nn.Sequential:
    """Two layers (D -> D), each with its norm; `name` is unlike every other tower's."""
    return nn.Sequential(
        nn.Linear(width, width),
        nn.LayerNorm(width),
        nn.ReLU(),
        KeyedDropout(dropout, name),
        nn.Linear(width, width),
        nn.LayerNorm(width),
    )


class BiEncoderSelector(nn.Module):
    """See the module's docstring."""

    def __init__(self, width: int, *, dropout: float = 0.5, temperature: float = 0.1):
        """`width` is that of the features. Weights are drawn from torch's global generator."""
        super().__init__()
        self.temperature = temperature
        self.query_proj = tower(width, dropout, "query_proj")
        self.cand_proj = tower(width, dropout, "cand_proj")

    def forward(self, batch: ChoiceBatch, context_N: Tensor, picked_NS: Tensor) -> Tensor:
        """Scores (N, S+1, K); see `PointerSelector`."""
        query_BD = F.normalize(self.query_proj(batch.query_BD), dim=-1)
        pool_BKD = F.normalize(self.cand_proj(batch.pool_BKD), dim=-1)
        scores_BK = torch.einsum("bd,bkd->bk", query_BD, pool_BKD) / self.temperature
        return scores_BK[context_N][:, None].expand(-1, picked_NS.shape[1] + 1, -1)
