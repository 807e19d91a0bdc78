"""Log-probs and entropies straight from hidden states equal those of whole logits."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from assay.models import scoring
from assay.models.scoring import Reads, head_logps


def plain(leaves, reads):
    hidden_KD, weight_VD, bias_V = leaves
    logits_KV = torch.nn.functional.linear(hidden_KD, weight_VD, bias_V) / reads.temperature
    logps_KV = logits_KV.log_softmax(-1)
    entropy_K = -(logps_KV.exp() * logps_KV).sum(-1)
    return logps_KV[reads.kept_S, reads.targets_S], entropy_K[reads.kept_S]


@given(
    rows=st.integers(1, 40),
    reads_each=st.integers(1, 3),
    chunk_rows=st.integers(1, 50),
    temperature=st.sampled_from([1.0, 0.6]),
    biased=st.booleans(),
    entropy=st.booleans(),
    seed=st.integers(0, 9),
)
def test_any_chunking_gives_the_plain_values_and_gradients(
    rows, reads_each, chunk_rows, temperature, biased, entropy, seed
):
    torch.manual_seed(seed)
    leaves = [torch.randn(rows, 6), torch.randn(31, 6), torch.randn(31) if biased else None]
    leaves: list[Any] = [None if x is None else x.double().requires_grad_() for x in leaves]
    kept_S = torch.randint(rows, (rows * reads_each,))
    reads = Reads(kept_S, torch.randint(31, kept_S.shape), temperature, entropy)
    slopes = torch.randn(2, len(kept_S), dtype=torch.float64)
    expected = plain(leaves, reads)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("KEPT_BYTES", "CHUNK_BYTES"):
            patch.setattr(scoring, name, chunk_rows * 31 * 8)
        found: Any = head_logps(leaves[0], leaves[1], leaves[2], reads)
        assert (found[1] is not None) == entropy
        outputs = 2 if entropy else 1
        wanted = [x for x in leaves if x is not None]
        pairs = zip(
            torch.autograd.grad(found[:outputs], wanted, list(slopes[:outputs])),
            torch.autograd.grad(expected[:outputs], wanted, list(slopes[:outputs])),
            strict=True,
        )
        for one, other in zip(found[:outputs], expected[:outputs], strict=True):
            torch.testing.assert_close(one, other)
        for one, other in pairs:
            torch.testing.assert_close(one, other)


def test_autocast_scores_words_in_bf16_and_sums_them_in_fp32():
    torch.manual_seed(0)
    hidden, weight = torch.randn(5, 64), torch.randn(99, 64, requires_grad=True)
    reads = Reads(torch.arange(5), torch.arange(5), 1.0, False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logps_S, _ = head_logps(hidden, weight, None, reads)
    scores = (hidden.bfloat16() @ weight.bfloat16().t()).float()
    expected = scores.log_softmax(-1)[torch.arange(5), torch.arange(5)]
    torch.testing.assert_close(logps_S, expected)
    logps_S.sum().backward()
    assert weight.grad is not None and weight.grad.dtype == torch.float32


def test_the_gradient_of_a_nearly_certain_word_is_no_rounding_error():
    """Of the gradient of its score, 1 - p is left; p itself has eight bits in bf16."""
    torch.manual_seed(0)
    weight_VD = torch.randn(50, 16).bfloat16().float()
    known_KD = weight_VD[:4]
    hidden_KD = (12 * known_KD / known_KD.square().sum(dim=1, keepdim=True)).requires_grad_()
    words_K = torch.arange(4)
    with torch.autocast("cpu", torch.bfloat16):
        logps, _ = head_logps(hidden_KD, weight_VD, None, Reads(words_K, words_K, 1.0, False))
        scores_KV = F.linear(hidden_KD, weight_VD)
    plain = scores_KV.float().log_softmax(dim=-1)[words_K, words_K]
    assert all(0.95 < p < 0.999 for p in plain.exp().tolist())
    (found,) = torch.autograd.grad(logps.sum(), hidden_KD)
    (expected,) = torch.autograd.grad(plain.sum(), hidden_KD)
    assert ((found - expected).norm() / expected.norm()).item() < 0.01
