"""KL estimators: worked numbers, expectations over a small vocabulary, and what is refused."""

import pytest
import torch

from assay.errors import InputError
from assay.rl.kl import CORRECTED, KL_ESTIMATORS, kl_estimate, kl_loss, kl_rewards


def vocabulary():
    """Parameters and two distributions over V = 6 tokens, with the policy's gradient."""
    generator = torch.Generator().manual_seed(0)
    logits_V = torch.randn(6, generator=generator, dtype=torch.float64).requires_grad_()
    reference_V = torch.randn(6, generator=generator, dtype=torch.float64).log_softmax(-1)
    return logits_V, logits_V.log_softmax(-1), reference_V


def divergence_gradient(logits_V, logps_V, reference_V):
    divergence = (logps_V.exp() * (logps_V - reference_V)).sum()
    return torch.autograd.grad(divergence, logits_V, retain_graph=True)[0], divergence.detach()


@pytest.mark.parametrize("name", ["k1", "k3"])
def test_k1_and_k3_are_unbiased_values(name):
    logits_V, logps_V, reference_V = vocabulary()
    _, divergence = divergence_gradient(logits_V, logps_V, reference_V)
    mean = (logps_V.exp() * kl_estimate(name, logps_V, reference_V)).sum()
    torch.testing.assert_close(mean.detach(), divergence)


def expected_gradient(name, logits_V, logps_V, reference_V, old_V):
    """Expectation over tokens sampled from `old` of the gradient of the loss term."""
    loss_V = kl_loss(name, logps_V, reference_V, logps_V - old_V)
    return torch.autograd.grad((old_V.exp() * loss_V).sum(), logits_V, retain_graph=True)[0]


def test_gradients_in_expectation():
    logits_V, logps_V, reference_V = vocabulary()
    truth, _ = divergence_gradient(logits_V, logps_V, reference_V)
    on_policy = (logits_V, logps_V, reference_V, logps_V.detach())
    torch.testing.assert_close(expected_gradient("k2", *on_policy), truth)
    torch.testing.assert_close(expected_gradient(CORRECTED, *on_policy), truth)
    assert not torch.allclose(expected_gradient("k3", *on_policy), truth)
    # What the refusal of k1 rests on.
    k1 = (logps_V.detach().exp() * kl_estimate("k1", logps_V, reference_V)).sum()
    zero = torch.autograd.grad(k1, logits_V, retain_graph=True)[0]
    torch.testing.assert_close(zero, torch.zeros_like(zero))


def test_corrected_k3_keeps_the_gradient_after_the_policy_moved():
    logits_V, logps_V, reference_V = vocabulary()
    truth, _ = divergence_gradient(logits_V, logps_V, reference_V)
    old_V = torch.linspace(-1, 1, 6, dtype=torch.float64).log_softmax(-1)
    moved = (logits_V, logps_V, reference_V, old_V)
    torch.testing.assert_close(expected_gradient(CORRECTED, *moved), truth)
    assert not torch.allclose(expected_gradient("k2", *moved), truth)


@pytest.mark.parametrize("name", ["k1", "kl"])
def test_k1_as_a_loss_is_refused(name):
    with pytest.raises(InputError, match="zero in expectation"):
        kl_loss(name, torch.zeros(1), torch.zeros(1), torch.zeros(1))


@pytest.mark.parametrize("name", sorted(KL_ESTIMATORS))
def test_the_penalty_in_the_reward_is_minus_coef_times_the_estimate(name):
    logps_S = torch.tensor([-1.0, -2.0], requires_grad=True)
    reference_S = torch.tensor([-1.3, -0.5])
    penalty_S = kl_rewards(name, logps_S, reference_S, 0.1)
    torch.testing.assert_close(penalty_S, -0.1 * kl_estimate(name, logps_S, reference_S).detach())
    assert not penalty_S.requires_grad
