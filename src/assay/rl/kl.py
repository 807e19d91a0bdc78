"""Estimators of the divergence from the reference policy, per token, and their two places.

With d = logp_ref - logp on tokens that the policy sampled (Schulman, "Approximating KL
divergence", 2020). In the reward an estimator is a number; in the loss its gradient counts, and
that of k1 is 0 in expectation. Names and clamps are verl's; averaging is `aggregation`'s.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from assay.errors import InputError, look_up
from assay.rl.advantages import group_sum


def k1(logps_S: Tensor, reference_S: Tensor) -> Tensor:
    """-d: unbiased, of large variance, negative for some tokens."""
    return logps_S - reference_S


def k2(logps_S: Tensor, reference_S: Tensor) -> Tensor:
    """d^2 / 2: biased as a value, but on-policy its gradient is the divergence's."""
    return 0.5 * (logps_S - reference_S).square()


def k3(logps_S: Tensor, reference_S: Tensor) -> Tensor:
    """exp(d) - d - 1: unbiased and never negative. d held in [-20, 20], the value under 10."""
    d_S = (reference_S - logps_S).clamp(-20, 20)
    return (d_S.exp() - d_S - 1).clamp(-10, 10)


def absolute(logps_S: Tensor, reference_S: Tensor) -> Tensor:
    """|d|."""
    return (logps_S - reference_S).abs()


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "k1": k1,
    "kl": k1,
    "k2": k2,
    "mse": k2,
    "k3": k3,
    "low_var_kl": k3,
    "abs": absolute,
}

CORRECTED = "k3_corrected"
"""k3 times the ratio of new to old probability, with the gradient through both."""

SEQUENCE_KL: dict[str, float] = {"k3_sequence": 1.0, "k3_sequence_reverse": -1.0}
"""k3 of a whole completion, as loss terms, by the sign that d is taken with.

`k3_sequence` is exp(d) - d - 1 with d = log(reference / new): on samples of the new policy an
unbiased estimate of KL(new || reference). `k3_sequence_reverse` is rho - 1 - log(rho) with rho =
new / reference: on samples of the reference, one of KL(reference || new). The latter is Lever-Plus'
term (reports 002 and 004), which averages it over stored candidates, samples of neither."""


def kl_estimate(name: str, logps_S: Tensor, reference_S: Tensor) -> Tensor:
    """The estimate at every token, (S). Raises InputError."""
    return look_up(KL_ESTIMATORS, name, "KL estimator")(logps_S, reference_S)


def check_kl_loss(name: str) -> None:
    """Raises InputError for k1 and for names that are no estimator."""
    if name == CORRECTED or name in SEQUENCE_KL:
        return
    if look_up(KL_ESTIMATORS, name, "KL estimator") is k1:
        raise InputError(
            f"{name} as a loss does nothing: its gradient is zero in expectation",
            field="kl.estimator",
            fix="use k3 or k2, or set kl.where to 'reward'",
        )


def kl_loss(name: str, logps_S: Tensor, reference_S: Tensor, log_ratio_S: Tensor) -> Tensor:
    """The KL term of the loss at every token, (S), with gradient.

    `log_ratio_S` = logp - old with gradient (0 in value when on-policy); only "k3_corrected"
    reads it. That form, rho * k3, has the gradient of the divergence itself even after the policy
    moved (DeepSeek-V3.2, arXiv 2512.02556; TRL `use_bias_correction_kl`). Raises InputError,
    InputError.
    """
    check_kl_loss(name)
    if name == CORRECTED:
        return log_ratio_S.exp() * k3(logps_S, reference_S)
    return kl_estimate(name, logps_S, reference_S)


def sequence_kl(
    name: str, logps_S: Tensor, reference_S: Tensor, mask_S: Tensor, episode_S: Tensor
) -> Tensor:
    """A term of SEQUENCE_KL at every trained token, divided by the episode's |o| of them, (S), with
    gradient: with seq_mean_token_sum each episode counts once. d is held in [-20, 20]."""
    kept_S = torch.where(mask_S, reference_S - logps_S, 0.0)
    d_S = SEQUENCE_KL[name] * group_sum(kept_S, episode_S).clamp(-20, 20)
    tokens_S = group_sum(mask_S.float(), episode_S).clamp(min=1)
    return torch.where(mask_S, (d_S.exp() - d_S - 1) / tokens_S, 0.0)


def kl_rewards(name: str, logps_S: Tensor, reference_S: Tensor, coef: float) -> Tensor:
    """-coef * estimate: what each token loses of its reward, (S), detached.

    `logps_S` are those of the policy that is about to be updated. Raises InputError.
    """
    return -coef * kl_estimate(name, logps_S, reference_S).detach()
