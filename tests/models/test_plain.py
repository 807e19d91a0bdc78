"""The plain reference is the model's own forward, whatever attention the model was loaded for."""

import pytest
import torch

from assay.models.lora import merged
from assay.models.plain_forward import score_plainly
from assay.models.precision import choose_precision
from tests.models.adapters import adapted
from tests.tiny import FAMILIES, tiny_model

CONTEXTS = [(5, 6, 7, 8), (9,), (5, 6, 7, 8)]
ACTIONS_S = torch.tensor([1, 2, 3, 40, 50, 60, 70])
OFFSETS_N1 = torch.tensor([0, 3, 4, 7])


def by_hand(model, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Each word's probability as a quotient, from logits of the whole sequence."""
    logps, entropies = [], []
    for n, context in enumerate(CONTEXTS):
        actions = ACTIONS_S[OFFSETS_N1[n] : OFFSETS_N1[n + 1]].tolist()
        with torch.no_grad():
            logits_TV = model(torch.tensor([[*context, *actions]])).logits[0].double()
        for c, action in enumerate(actions):
            weight_V = (logits_TV[len(context) - 1 + c] / temperature).exp()
            share_V = weight_V / weight_V.sum()
            logps.append(share_V[action].log())
            entropies.append(-(share_V * share_V.log()).sum())
    return torch.stack(logps), torch.stack(entropies)


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_log_probs_and_entropies_are_those_of_the_models_own_logits(family, implementation):
    asked, plain = tiny_model(family, attention=implementation), tiny_model(family)
    for temperature in (1.0, 0.6):
        logps_S, entropy_S = score_plainly(
            asked,
            CONTEXTS,
            ACTIONS_S,
            OFFSETS_N1,
            temperature=temperature,
            entropy=True,
        )
        expected_S, expected_entropy_S = by_hand(plain, temperature)
        torch.testing.assert_close(logps_S.double(), expected_S, atol=1e-5, rtol=0)
        assert entropy_S is not None
        torch.testing.assert_close(entropy_S.double(), expected_entropy_S, atol=1e-4, rtol=0)


def test_an_adapter_counts_and_its_gradient_flows():
    module = adapted(tiny_model(), std=0.1, part="lora_B")
    logps_S, none = score_plainly(module, CONTEXTS, ACTIONS_S, OFFSETS_N1)
    assert none is None
    logps_S.sum().backward()
    trained = [p for p in module.parameters() if p.requires_grad]
    assert all(p.grad is not None and bool(p.grad.any()) for p in trained)
    merged_S, _ = score_plainly(merged(module), CONTEXTS, ACTIONS_S, OFFSETS_N1)
    torch.testing.assert_close(logps_S.detach(), merged_S.detach(), atol=1e-4, rtol=0)
    bare_S, _ = score_plainly(tiny_model(), CONTEXTS, ACTIONS_S, OFFSETS_N1)
    assert float((bare_S - merged_S).abs().max().detach()) > 0.01


def test_it_works_in_bf16_under_autocast_and_in_float64():
    exact_S, _ = by_hand(tiny_model(), 1.0)
    double_S, _ = score_plainly(tiny_model().double(), CONTEXTS, ACTIONS_S, OFFSETS_N1)
    assert double_S.dtype == torch.float64
    whole_S, _ = score_plainly(tiny_model().bfloat16(), CONTEXTS, ACTIONS_S, OFFSETS_N1)
    assert whole_S.dtype == torch.float32
    with choose_precision("bf16", "cpu").autocast():
        cast_S, _ = score_plainly(tiny_model(), CONTEXTS, ACTIONS_S, OFFSETS_N1)
    assert 1e-4 < float((cast_S.double() - exact_S).abs().max().detach()) < 0.1
    assert 1e-4 < float((whole_S.double() - exact_S).abs().max().detach()) < 0.2
