"""Estimators whose baseline is the episode's own group, without a look at other groups.

A group of equal rewards gets exactly 0 from each of them.
"""

import torch
from torch import Tensor

from assay.rl.estimators.advantage_batch import (
    AdvantageInput,
    AdvantageOptions,
    centred_E,
    minus_baseline,
    outcomes_E,
    sum_by_episode,
    to_tokens,
)
from assay.rl.group_arithmetic import group_size, group_std, group_sum


def standardised_E(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """(r - mean) / (std + epsilon) inside each group, (E), float64."""
    return _over_std(batch, centred_E(batch, options), options)


def _over_std(batch: AdvantageInput, values_E: Tensor, options: AdvantageOptions) -> Tensor:
    """values / (std + epsilon); a value of 0 stays 0, whatever it is divided by."""
    std_E = group_std(outcomes_E(batch), batch.group_E, options.ddof)
    return torch.where(values_E == 0, 0.0, values_E / (std_E + options.epsilon))


def grpo(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """(r - mean) / (std + epsilon) (DeepSeekMath, arXiv 2402.03300, outcome supervision).

    Reads `ddof`, `epsilon`, `lone`. The paper leaves the deviation's kind open; unbiased is what
    TRL and verl compute.
    """
    return to_tokens(batch, standardised_E(batch, options))


def mean_only(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """r - mean, not divided by the deviation (Dr. GRPO, arXiv 2503.20783). Reads `lone`."""
    return to_tokens(batch, centred_E(batch, options))


def rloo(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """r - mean of the others = G / (G - 1) * (r - mean) (RLOO, arXiv 2402.14740). Reads `lone`."""
    size_E = group_size(batch.group_E)
    factor_E = torch.where(size_E > 1, size_E / (size_E - 1).clamp(min=1), 1.0)
    return to_tokens(batch, factor_E * centred_E(batch, options))


def opo(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """r - length-weighted mean of the group (OPO, arXiv 2505.23585). Reads `lone`.

    Lengths count trained tokens: long completions have gradients of larger variance, and the
    baseline that minimises the variance weighs them more.
    """
    values_E = outcomes_E(batch)
    lengths_E = sum_by_episode(batch, torch.ones_like(batch.mask_S), batch.mask_S)
    total_E = group_sum(lengths_E * values_E, batch.group_E)
    baseline_E = total_E / group_sum(lengths_E, batch.group_E)
    return to_tokens(batch, minus_baseline(batch, values_E, baseline_E, options))


def gpg(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """alpha * (r - mean) / f_norm, alpha = E / non-zero rewards (GPG, arXiv 2504.02546).

    Reads `f_norm`, `lone`. alpha makes up for episodes that earned nothing; verl's rule.
    """
    alpha = len(batch.rewards_E) / outcomes_E(batch).count_nonzero().clamp(min=1)
    return to_tokens(batch, alpha * centred_E(batch, options) / options.f_norm)


def pass_at_k(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """Best minus second best reward, for the best episode of a group; 0 for the rest.

    Divided by (std + epsilon) when `scale_by_std` (pass@k policy optimisation as verl's
    `grpo_passk`, arXiv 2503.19595). Reads `ddof`, `epsilon`, `scale_by_std`. A tie for the best
    and an episode alone in its group earn 0.
    """
    values_E = outcomes_E(batch)
    margin_E = torch.zeros_like(values_E)
    for group in batch.group_E.unique():
        members = (batch.group_E == group).nonzero().flatten()
        if len(members) > 1:
            best = values_E[members].topk(2)
            margin_E[members[best.indices[0]]] = best.values[0] - best.values[1]
    margin_E = torch.where(margin_E > options.equal, margin_E, 0.0)
    if options.scale_by_std:
        margin_E = _over_std(batch, margin_E, options)
    return to_tokens(batch, margin_E)
