"""What a selector reads, and the selectors as modules, by kind.

`model = "selector:pointer"` is made by `MAKERS["pointer"]`. All give scores (N, S+1, K) of the K
candidates before each of S picks and after the last; picked candidates are masked by the policy.
Demonstrations are looked up in a table that contexts share, so that a context is small.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

from assay.data.episode import Context
from assay.errors import InputError
from assay.models.lora import KeyedDropout


@dataclass(frozen=True)
class FeatureTable:
    """Unit vectors of demonstrations; two tables are equal where their fingerprints are."""

    fingerprint: str
    """sha256 of the encoder and of everything that was encoded."""
    demonstrations_ND: Tensor = field(compare=False, repr=False)
    """One row for each demonstration, by its number."""

    @property
    def width(self) -> int:
        """D."""
        return self.demonstrations_ND.shape[1]


@dataclass(frozen=True, slots=True)
class SelectionContext:
    """The context of one selection: K candidates, of which `shots` are picked one by one."""

    query: str
    """The id of the row."""
    question: str
    """The sha256 of what the query's features are made of."""
    pool: tuple[int, ...]
    """Numbers of the K demonstrations; actions are such numbers, never places in the pool."""
    shots: int
    features: FeatureTable
    query_D: Tensor = field(compare=False, repr=False)
    """The query's unit vector."""


def choice_of(context: Context) -> SelectionContext:
    """The context as a selector's. Raises TypeError for another one."""
    if not isinstance(context, SelectionContext):
        raise TypeError(f"a choice among candidates, not {type(context).__name__}")
    return context


@dataclass(frozen=True, slots=True)
class ChoiceBatch:
    """B choices laid side by side; K is the largest pool, and smaller ones are filled up."""

    query_BD: Tensor
    pool_BKD: Tensor
    numbers_BK: Tensor
    """Numbers of the demonstrations; -1 where a pool is filled up."""

    @property
    def absent_BK(self) -> Tensor:
        """Bool: where a pool is filled up."""
        return self.numbers_BK < 0


def batch_of(choices: Sequence[SelectionContext]) -> ChoiceBatch:
    """The choices as tensors, in order."""
    pools = [torch.tensor(choice.pool, dtype=torch.long) for choice in choices]
    numbers_BK = torch.nn.utils.rnn.pad_sequence(pools, batch_first=True, padding_value=-1)
    tables = {choice.features: choice.features.demonstrations_ND for choice in choices}
    if len(tables) == 1:
        (table_ND,) = tables.values()
        pool_BKD = table_ND[numbers_BK.clamp(min=0)]
    else:
        pairs = zip(choices, numbers_BK.clamp(min=0), strict=True)
        pool_BKD = torch.stack([tables[choice.features][row_K] for choice, row_K in pairs])
    query_BD = torch.stack([choice.query_D for choice in choices])
    return ChoiceBatch(query_BD, pool_BKD, numbers_BK)


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
        context_BH = torch.einsum("bk,bkh->bh", shares_BK, values_BKH)
        return F.linear(context_BH, self.out_proj.weight, self.out_proj.bias)


class PointerSelector(nn.Module):
    """The pointer of Lever-Plus (yunsoft2019/Lever-Plus, `pointer_selector_v2.py`, with `gate` its
    version 4-1): the query attends to its candidates, then points at one after the other.

    Features (D) of query and candidates are projected (H) by one matrix; one head of attention adds
    to the query what it finds among the candidates; scores are cosines over a temperature, so that
    without a gate all picks are scored alike.
    """

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
        context_BH = self.cross_attn.attend(query_BH, pool_BKH, batch.absent_BK)
        query_BH = self.query_dropout(self.attn_norm(query_BH + context_BH))
        query_BH = self.query_proj(query_BH)
        pool_BKH = self.cand_proj(self.cand_dropout(pool_BKH))
        return F.normalize(query_BH, dim=-1), F.normalize(pool_BKH, dim=-1)

    def moved(self, query_NH: Tensor, picked_NH: Tensor) -> Tensor:
        """The query after a pick: g = sigmoid(W [q; c]), then g q + (1 - g) c at length 1."""
        assert self.gate is not None
        gate_NH = torch.sigmoid(self.gate(torch.cat([query_NH, picked_NH], dim=-1)))
        return F.normalize(gate_NH * query_NH + (1 - gate_NH) * picked_NH, dim=-1)


class UniformSelector(nn.Module):
    """Every candidate that is left is as likely as any other."""

    def forward(self, batch: ChoiceBatch, context_N: Tensor, picked_NS: Tensor) -> Tensor:
        """Scores (N, S+1, K), all 0."""
        return torch.zeros(len(context_N), picked_NS.shape[1] + 1, batch.numbers_BK.shape[1])


class SimilaritySelector(nn.Module):
    """The cosine of the features over a temperature: greedily, the most similar is picked first."""

    def __init__(self, temperature: float = 0.1):
        super().__init__()
        self.temperature = temperature

    def forward(self, batch: ChoiceBatch, context_N: Tensor, picked_NS: Tensor) -> Tensor:
        """Scores (N, S+1, K)."""
        scores_BK = torch.einsum("bd,bkd->bk", batch.query_BD, batch.pool_BKD) / self.temperature
        return scores_BK[context_N][:, None].expand(-1, picked_NS.shape[1] + 1, -1)


WIDTH, LAYERS, HEADS = 512, 2, 8
"""As reported."""
SPECIALS = 3
"""EOS, BOS and QUERY, behind the demonstrations."""
POSITIONS = 64
"""Picks, and two more, that a sentence has at most."""


class LeverSelector(nn.Module):
    """Lever-LM (ForJadeForest/Lever-LM 11d61e4): a small GPT-2 whose words are demonstrations.

    Two layers of 512, eight heads; words are the demonstrations by number and three specials. A
    sentence is [BOS, QUERY, picks ...]; to a word's own embedding the features of what it stands
    for are added, those of the query at QUERY. Features of another width pass through two layers
    first. Scores are those of the words of the query's own pool. Unlike the original it never ends
    early and is not trained to write QUERY and EOS.
    """

    def __init__(self, width: int, *, vocabulary: int, dropout: float = 0.1):
        """`width` is that of the features, `vocabulary` how many demonstrations have words. Weights
        are drawn from torch's global generator."""
        super().__init__()
        self.vocabulary = vocabulary
        # This attention alone has its dropout in a module, which can be replaced.
        config = GPT2Config(
            vocab_size=vocabulary + SPECIALS,
            n_positions=POSITIONS,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            attn_pdrop=dropout,
            embd_pdrop=dropout,
            resid_pdrop=dropout,
            reorder_and_upcast_attn=True,
            eos_token_id=vocabulary,
            bos_token_id=vocabulary + 1,
        )
        config._attn_implementation = "eager"
        self.transformer = GPT2Model(config)
        for name, part in [*self.transformer.named_modules()]:
            if isinstance(part, nn.Dropout) and not isinstance(part, KeyedDropout):
                above, _, own = name.rpartition(".")
                setattr(self.transformer.get_submodule(above), own, KeyedDropout(part.p, name))
        self.adapter = None
        if width != WIDTH:
            layers = nn.Linear(width, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
            self.adapter = nn.Sequential(*layers)

    def forward(self, batch: ChoiceBatch, context_N: Tensor, picked_NS: Tensor) -> Tensor:
        """Scores (N, S+1, K). Raises InputError for a demonstration beyond the vocabulary."""
        most = int(batch.numbers_BK.max()) if batch.numbers_BK.numel() else -1
        if most >= self.vocabulary:
            problem = f"demonstration {most} has no word among {self.vocabulary}"
            raise InputError(problem, field="selector.vocabulary", fix=f"{most + 1} or more")
        query_BE, pool_BKE = self.seen(batch.query_BD), self.seen(batch.pool_BKD)
        words = self.transformer.wte
        # Where a pool is filled up, any word will do: the policy masks it.
        pool_words_BKE = words(batch.numbers_BK.clamp(min=0))
        turns_N1 = torch.arange(len(context_N))[:, None]
        picked_NSE = (pool_words_BKE + pool_BKE)[context_N][turns_N1, picked_NS]
        begin_N1 = torch.full((len(context_N), 1), self.vocabulary + 1)
        question_NE = words(begin_N1 + 1)[:, 0] + query_BE[context_N]
        sentence_NTE = torch.cat([words(begin_N1), question_NE[:, None], picked_NSE], dim=1)
        states_NTE = self.transformer(inputs_embeds=sentence_NTE, use_cache=False).last_hidden_state
        return torch.einsum("nse,nke->nsk", states_NTE[:, 1:], pool_words_BKE[context_N])

    def seen(self, features: Tensor) -> Tensor:
        """Features as wide as the layers."""
        return features if self.adapter is None else self.adapter(features)


@dataclass(frozen=True, slots=True)
class SelectorSizes:
    """What a selector is made from."""

    width: int
    """Of the features."""
    hidden: int
    dropout: float
    temperature: float
    gate: bool
    vocabulary: int
    """Demonstrations that a Lever-LM has words for."""


MAKERS: Mapping[str, Callable[[SelectorSizes], nn.Module]] = {
    "pointer": lambda s: PointerSelector(
        s.width, hidden=s.hidden, dropout=s.dropout, temperature=s.temperature, gate=s.gate
    ),
    "lever": lambda s: LeverSelector(s.width, vocabulary=s.vocabulary, dropout=s.dropout),
    "random": lambda s: UniformSelector(),
    "similarity": lambda s: SimilaritySelector(s.temperature),
}
DROPOUT: Mapping[str, float] = {"lever": 0.1}
"""The dropout of a kind where none is set."""
USUAL_DROPOUT = 0.5
"""That of the others."""
NAMED_PATTERNS: Mapping[str, Mapping[str, tuple[str, ...]]] = {"pointer": {"backbone": BACKBONE}}
"""Names for lists of patterns of weights to freeze, by kind of selector."""


def make_selector(kind: str, sizes: SelectorSizes, seed: int) -> nn.Module:
    """A selector with fresh weights: the same for the same seed. The caller's random state stays
    as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MAKERS[kind](sizes)
