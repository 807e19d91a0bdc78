"""The pointer selector of Lever-Plus: the query attends to its candidates, then points at one after
the other.

Version 2 of yunsoft2019/Lever-Plus (`pointer_selector_v2.py`), and with `gate` its version 4-1.
Features (D) of query and candidates are projected (H) by one matrix; one head of attention adds to
the query what it finds among the candidates; scores are cosines over a temperature, so that without
a gate all picks are scored alike. Picked candidates are masked by the policy, not here.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.models.lora import KeyedDropout
from assay.tasks.demos.choice import ChoiceBatch

HIDDEN = 256
"""H, as reported."""
NOISE = 0.01
"""Deviation around the identity at which the last projections begin."""
BACKBONE = ("input_proj.*", "query_proj.*", "cand_proj.*")
"""What the reports freeze as the backbone, for `adapt = { kind = "freeze", patterns = ... }`; the
attention and its norm are trained."""


class CrossAttention(nn.MultiheadAttention):
    """One head; PyTorch's weights and names, written out so that it runs without its dropout."""

    def __init__(self, width: int):
        super().__init__(width, 1, batch_first=True)

    def attend(self, query_BH: Tensor, pool_BKH: Tensor, absent_BK: Tensor) -> Tensor:
        """What each query finds in its own pool (B, H)."""
        weights, biases = self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3)
        asking_BH = F.linear(query_BH, weights[0], biases[0])
        keys_BKH = F.linear(pool_BKH, weights[1], biases[1])
        values_BKH = F.linear(pool_BKH, weights[2], biases[2])
        scores_BK = torch.einsum("bh,bkh->bk", asking_BH, keys_BKH) / math.sqrt(self.embed_dim)
        shares_BK = scores_BK.masked_fill(absent_BK, float("-inf")).softmax(-1)
        found_BH = torch.einsum("bk,bkh->bh", shares_BK, values_BKH)
        return F.linear(found_BH, self.out_proj.weight, self.out_proj.bias)


class PointerSelector(nn.Module):
    """See the module's docstring."""

    def __init__(
        self,
        width: int,
        *,
        hidden: int = HIDDEN,
        dropout: float = 0.5,
        temperature: float = 0.1,
        gate: bool = False,
    ):
        """`width` is that of the features. Weights are drawn from torch's global generator."""
        super().__init__()
        self.temperature = temperature
        self.input_proj = nn.Linear(width, hidden, bias=False)
        self.cross_attn = CrossAttention(hidden)
        self.attn_norm = nn.LayerNorm(hidden)
        self.query_proj = nn.Linear(hidden, hidden, bias=False)
        self.cand_proj = nn.Linear(hidden, hidden, bias=False)
        self.gate = nn.Linear(2 * hidden, hidden) if gate else None
        self.query_dropout = KeyedDropout(dropout, "query_dropout")
        self.cand_dropout = KeyedDropout(dropout, "cand_dropout")
        nn.init.xavier_uniform_(self.input_proj.weight)
        for layer in (self.query_proj, self.cand_proj):
            nn.init.eye_(layer.weight)
            with torch.no_grad():
                layer.weight.add_(torch.randn_like(layer.weight) * NOISE)

    def forward(self, batch: ChoiceBatch, context_N: Tensor, picked_NS: Tensor) -> Tensor:
        """Scores (N, S+1, K) of all candidates before each of S picks, places in the pool, and
        after the last; turn n is about choice `context_N[n]`."""
        query_BH, pool_BKH = self.encoded(batch)
        state_NH, pool_NKH = query_BH[context_N], pool_BKH[context_N]
        if self.gate is None:
            scores_BK = torch.einsum("bh,bkh->bk", query_BH, pool_BKH) / self.temperature
            return scores_BK[context_N][:, None].expand(-1, picked_NS.shape[1] + 1, -1)
        states = [state_NH]
        for place_N in picked_NS.unbind(1):
            picked_NH = pool_NKH[torch.arange(len(place_N)), place_N]
            states.append(self.moved(states[-1], picked_NH))
        states_NSH = torch.stack(states, dim=1)
        return torch.einsum("nsh,nkh->nsk", states_NSH, pool_NKH) / self.temperature

    def encoded(self, batch: ChoiceBatch) -> tuple[Tensor, Tensor]:
        """Unit vectors of queries (B, H) and candidates (B, K, H)."""
        query_BH, pool_BKH = self.input_proj(batch.query_BD), self.input_proj(batch.pool_BKD)
        found_BH = self.cross_attn.attend(query_BH, pool_BKH, batch.absent_BK)
        query_BH = self.query_dropout(self.attn_norm(query_BH + found_BH))
        query_BH = self.query_proj(query_BH)
        pool_BKH = self.cand_proj(self.cand_dropout(pool_BKH))
        return F.normalize(query_BH, dim=-1), F.normalize(pool_BKH, dim=-1)

    def moved(self, query_NH: Tensor, picked_NH: Tensor) -> Tensor:
        """The query after a pick: g = sigmoid(W [q; c]), then g q + (1 - g) c at length 1."""
        assert self.gate is not None
        gate_NH = torch.sigmoid(self.gate(torch.cat([query_NH, picked_NH], dim=-1)))
        return F.normalize(gate_NH * query_NH + (1 - gate_NH) * picked_NH, dim=-1)
