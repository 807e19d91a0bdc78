"""Lever-LM: a small GPT-2 whose words are demonstrations, which writes a selection as a sentence.

ForJadeForest/Lever-LM (11d61e4): two layers of 512, eight heads; the words are the demonstrations
by number and three specials. A sentence is [BOS, QUERY, picks ...]; to a word's own embedding the
features of what it stands for are added, those of the query at QUERY. Features of another width
than the layers pass through two layers first. Scores are those of the words of the query's own
pool. Unlike the original it never ends early and is not trained to write QUERY and EOS: a selection
has as many picks as are asked for.
"""

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

from assay.errors import InputError
from assay.models.lora import KeyedDropout
from assay.tasks.demos.choice import ChoiceBatch

WIDTH, LAYERS, HEADS = 512, 2, 8
"""As reported."""
SPECIALS = 3
"""EOS, BOS and QUERY, behind the demonstrations."""
POSITIONS = 64
"""Picks, and two more, that a sentence has at most."""


class NoWord(InputError):
    """A demonstration that the Lever-LM has no word for."""


class LeverSelector(nn.Module):
    """See the module's docstring."""

    def __init__(self, width: int, *, vocabulary: int, dropout: float = 0.1):
        """`width` is that of the features, `vocabulary` how many demonstrations have words. Weights
        are drawn from torch's global generator."""
        super().__init__()
        self.vocabulary = vocabulary
        # Eager attention has its dropout in a module, which can be replaced.
        config = GPT2Config(
            vocab_size=vocabulary + SPECIALS,
            n_positions=POSITIONS,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            attn_pdrop=dropout,
            embd_pdrop=dropout,
            resid_pdrop=dropout,
            eos_token_id=vocabulary,
            bos_token_id=vocabulary + 1,
        )
        config._attn_implementation = "eager"
        self.transformer = GPT2Model(config)
        follow_keys(self.transformer)
        self.adapter = None if width == WIDTH else adapter(width)

    def forward(self, batch: ChoiceBatch, context_N: Tensor, picked_NS: Tensor) -> Tensor:
        """Scores (N, S+1, K); see `PointerSelector`. Raises NoWord."""
        self.refuse_unknown(batch)
        query_BE, pool_BKE = self.seen(batch.query_BD), self.seen(batch.pool_BKD)
        words = self.transformer.wte
        # Where a pool is filled up, any word will do: the policy masks it.
        pool_words_BKE = words(batch.numbers_BK.clamp(min=0))
        turns_N1 = torch.arange(len(context_N))[:, None]
        picked_NSE = (pool_words_BKE + pool_BKE)[context_N][turns_N1, picked_NS]
        begin_N1 = torch.full((len(context_N), 1), self.vocabulary + 1)
        asked_NE = words(begin_N1 + 1)[:, 0] + query_BE[context_N]
        sentence_NTE = torch.cat([words(begin_N1), asked_NE[:, None], picked_NSE], dim=1)
        states_NTE = self.transformer(inputs_embeds=sentence_NTE, use_cache=False).last_hidden_state
        return torch.einsum("nse,nke->nsk", states_NTE[:, 1:], pool_words_BKE[context_N])

    def seen(self, features: Tensor) -> Tensor:
        """Features as wide as the layers."""
        return features if self.adapter is None else self.adapter(features)

    def refuse_unknown(self, batch: ChoiceBatch) -> None:
        """Raise NoWord for a demonstration beyond the vocabulary."""
        most = int(batch.numbers_BK.max()) if batch.numbers_BK.numel() else -1
        if most >= self.vocabulary:
            problem = f"demonstration {most} has no word among {self.vocabulary}"
            fix = f"{most + 1} or more"
            raise NoWord(problem, field="selector.vocabulary", fix=fix)


def adapter(width: int) -> nn.Sequential:
    """Two layers (D -> 512)."""
    return nn.Sequential(nn.Linear(width, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def follow_keys(model: nn.Module) -> None:
    """Put dropout whose masks are known by their key in the place of PyTorch's, which draws from
    the global generator."""
    for name, part in [*model.named_modules()]:
        if isinstance(part, nn.Dropout) and not isinstance(part, KeyedDropout):
            above, _, own = name.rpartition(".")
            setattr(model.get_submodule(above), own, KeyedDropout(part.p, name))
