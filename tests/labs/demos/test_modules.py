"""The selectors compute what their papers and PyTorch compute: sizes, attention, gate, words."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2LMHeadModel

from assay.errors import InputError
from assay.labs.demos.modules import (
    BACKBONE,
    MAKERS,
    LeverSelector,
    PointerSelector,
    SelectorSizes,
    batch_of,
    make_selector,
)
from assay.models.adapt import train_unfrozen
from tests.labs.demos.choices import WIDTH, choice, table

NONE = torch.zeros(1, 0, dtype=torch.long)
FIRST = torch.zeros(1, dtype=torch.long)
KINDS = [*MAKERS]


def sizes(width: int = WIDTH, gate: bool = False) -> SelectorSizes:
    return SelectorSizes(width, 16, 0.5, 0.1, gate, 12)


def made(kind: str, gate: bool = False) -> nn.Module:
    return make_selector(kind, sizes(gate=gate), 3).eval()


def pointer(width: int = WIDTH, gate: bool = False) -> PointerSelector:
    torch.manual_seed(0)
    return PointerSelector(width, hidden=16, gate=gate).eval()


@pytest.mark.parametrize(("gate", "expected"), [(False, 525_824), (True, 657_152)])
def test_the_pointer_has_the_reported_number_of_weights(gate, expected):
    module = make_selector("pointer", SelectorSizes(512, 256, 0.5, 0.1, gate, 1), 0)
    assert sum(p.numel() for p in module.parameters()) == expected


@pytest.mark.parametrize(("gate", "trained"), [(False, 263_680), (True, 395_008)])
def test_the_reported_share_is_trained_when_the_backbone_is_frozen(gate, trained):
    module = PointerSelector(512, gate=gate)
    _, found = train_unfrozen(module, BACKBONE)
    assert found.trainable == trained
    assert round(100 * found.share, 1) == (60.1 if gate else 50.1)
    assert {name for name, p in module.named_parameters() if not p.requires_grad} == {
        f"{layer}.weight" for layer in ("input_proj", "query_proj", "cand_proj")
    }


def test_attention_is_that_of_pytorch():
    attention = pointer().cross_attn
    query_BH, pool_BKH = torch.randn(3, 16), torch.randn(3, 5, 16)
    absent_BK = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    ours = attention.attend(query_BH, pool_BKH, absent_BK)
    theirs, _ = attention(query_BH[:, None], pool_BKH, pool_BKH, key_padding_mask=absent_BK)
    torch.testing.assert_close(ours, theirs[:, 0])


def test_the_pointer_s_scores_are_cosines_over_the_temperature():
    """Step by step, as `pointer_selector_v2.py` writes it."""
    module, batch = pointer(), batch_of([choice()])
    query = module.input_proj(batch.query_BD)[:, None]
    pool = module.input_proj(batch.pool_BKD)
    found, _ = module.cross_attn(query, pool, pool)
    asked = module.query_proj(module.attn_norm(found + query)[:, 0])
    expected = F.cosine_similarity(asked[:, None], module.cand_proj(pool), dim=-1) / 0.1
    torch.testing.assert_close(module(batch, FIRST, NONE)[:, 0], expected)


def test_the_gate_moves_the_query_as_its_formula_says():
    module, batch = pointer(gate=True), batch_of([choice()])
    query_BH, pool_BKH = module.encoded(batch)
    assert module.gate is not None
    weight, bias = module.gate.weight.detach().numpy(), module.gate.bias.detach().numpy()
    q, c = query_BH[0].detach().numpy(), pool_BKH[0, 3].detach().numpy()
    g = 1 / (1 + np.exp(-(weight @ np.concatenate([q, c]) + bias)))
    moved = g * q + (1 - g) * c
    moved /= np.linalg.norm(moved)
    scores = module(batch, FIRST, torch.tensor([[3]]))[0, 1].detach().numpy()
    np.testing.assert_allclose(scores, pool_BKH[0].detach().numpy() @ moved / 0.1, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gate", [False, True])
def test_the_order_of_a_pool_changes_nothing_but_the_order(kind, gate):
    pool, order = (7, 2, 11, 4, 9), [3, 0, 4, 2, 1]
    turned = tuple(pool[place] for place in order)
    module = made(kind, gate)
    with torch.no_grad():
        plain = module(batch_of([choice(pool=pool)]), FIRST, torch.tensor([[order[1]]]))
        other = module(batch_of([choice(pool=turned)]), FIRST, torch.tensor([[1]]))
    torch.testing.assert_close(plain[..., order], other)


def lever(width: int) -> LeverSelector:
    torch.manual_seed(0)
    return LeverSelector(width, vocabulary=12).eval()


def test_the_lever_lm_is_gpt2_over_the_words_of_the_pool():
    """Against GPT-2 of Transformers, fed with the sum of word and features."""
    module = lever(512)
    one = choice(features=table(512), pool=(7, 2, 11, 4, 9))
    theirs = GPT2LMHeadModel(module.transformer.config).eval()
    theirs.transformer.load_state_dict(module.transformer.state_dict())
    words = module.transformer.wte.weight
    features = one.features.demonstrations_ND
    sentence = torch.stack(
        [words[13], words[14] + one.query_D, words[11] + features[11], words[2] + features[2]]
    )
    expected = theirs(inputs_embeds=sentence[None]).logits[0, 1:, list(one.pool)]
    scores = module(batch_of([one]), FIRST, torch.tensor([[2, 1]]))[0]
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


def test_a_demonstration_without_a_word_is_refused_with_the_size_that_would_do():
    big = choice(pool=(3, 15), features=table(count=20))
    with pytest.raises(InputError, match=r"selector\.vocabulary: demonstration 15 .* \(16 or more"):
        lever(WIDTH)(batch_of([big]), FIRST, NONE)
