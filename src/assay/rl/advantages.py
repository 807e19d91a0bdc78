"""Advantage estimators and their register, `ADVANTAGES`.

An estimator is a function of a batch and its options that gives one advantage per action token (S),
float32, 0 where the token is not trained; group statistics are computed in float64. Episodes whose
reward abstained were removed by the caller. Adding one: write `fn(batch, options) -> advantage_S`
and enter an `Estimator` of it in `ADVANTAGES`.

A batch teaches where the rewards of a group are not all equal (`signal_stats`). Equality is tested
on the rewards themselves (largest minus smallest within a tolerance), never on a deviation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from assay.errors import InputError

EQUAL = 1e-6
"""Values of one group whose largest and smallest differ by no more than this count as equal:
above float32 rounding of rewards near 1, below any difference a reward function means."""


def compact(group_E: Tensor) -> tuple[Tensor, int]:
    """Group numbers renamed to 0, 1, ... and how many groups there are."""
    groups, index_E = torch.unique(group_E, return_inverse=True)
    return index_E, len(groups)


def group_sum(values_E: Tensor, group_E: Tensor) -> Tensor:
    """Sum over each member's group, differentiable. Shape (E) like both arguments."""
    index_E, groups = compact(group_E)
    return values_E.new_zeros(groups).index_add(0, index_E, values_E)[index_E]


def group_size(group_E: Tensor) -> Tensor:
    """Members in each member's group, as float64."""
    return group_sum(torch.ones_like(group_E, dtype=torch.float64), group_E)


def group_mean(values_E: Tensor, group_E: Tensor) -> Tensor:
    """Mean over each member's group."""
    return group_sum(values_E, group_E) / group_size(group_E).to(values_E.dtype)


def group_std(values_E: Tensor, group_E: Tensor, ddof: int) -> Tensor:
    """Standard deviation over each member's group; 1 for groups of at most `ddof` members."""
    squares_E = (values_E - group_mean(values_E, group_E)).square()
    freedom_E = group_size(group_E) - ddof
    variance_E = group_sum(squares_E, group_E) / freedom_E.clamp(min=1)
    return torch.where(freedom_E > 0, variance_E.sqrt(), 1.0)


def group_spread(values_E: Tensor, group_E: Tensor) -> Tensor:
    """Largest minus smallest value of each member's group."""
    index_E, groups = compact(group_E)
    empty = values_E.new_zeros(groups)
    high = empty.scatter_reduce(0, index_E, values_E, "amax", include_self=False)
    low = empty.scatter_reduce(0, index_E, values_E, "amin", include_self=False)
    return (high - low)[index_E]


def in_equal_group(values_E: Tensor, group_E: Tensor, tolerance: float = EQUAL) -> Tensor:
    """Whether all values of the member's group are equal within `tolerance`.

    The spread is what is tested: a standard deviation of equal values need not come out as 0.
    """
    return group_spread(values_E, group_E) <= tolerance


def masked_sum(values_S: Tensor, mask_S: Tensor) -> Tensor:
    """Sum of the kept values, a scalar."""
    return torch.where(mask_S, values_S, 0).sum()


def masked_mean(values_S: Tensor, mask_S: Tensor) -> Tensor:
    """Mean of the kept values, a scalar; 0 when none is kept."""
    return masked_sum(values_S, mask_S) / mask_S.sum().clamp(min=1)


def masked_variance(values_S: Tensor, mask_S: Tensor) -> Tensor:
    """Unbiased variance of the kept values, a scalar; 0 when fewer than two are kept."""
    squares_S = (values_S - masked_mean(values_S, mask_S)).square()
    return masked_sum(squares_S, mask_S) / (mask_S.sum() - 1).clamp(min=1)


def masked_whiten(values_S: Tensor, mask_S: Tensor, epsilon: float = 1e-8) -> Tensor:
    """All values, shifted and scaled so that the kept ones have mean 0 and variance 1.

    (x - mean) / sqrt(variance + epsilon), as verl's `masked_whiten`.
    """
    scale = (masked_variance(values_S, mask_S) + epsilon).rsqrt()
    return (values_S - masked_mean(values_S, mask_S)) * scale


FLAT = 1e-12
"""Rewards of a smaller standard deviation are left as they are."""
HELD = 3.0


def normalised_rewards(rewards_E: Tensor, group_E: Tensor) -> Tensor:
    """(r - mean) / std inside each group, held in [-3, 3], (E), float64 (Lever-Plus, unbiased std).

    A group of rewards whose deviation is at most FLAT keeps them.
    """
    values_E = rewards_E.double()
    std_E = group_std(values_E, group_E, ddof=1)
    centred_E = values_E - group_mean(values_E, group_E)
    return torch.where(std_E > FLAT, (centred_E / std_E).clamp(-HELD, HELD), values_E)


@dataclass(frozen=True)
class AdvantageInput:
    """E episodes and their S action tokens laid end to end."""

    rewards_E: Tensor
    """One finite reward per episode."""
    group_E: Tensor
    """Group number of each episode (long, any numbering)."""
    episode_S: Tensor
    """Row of `rewards_E` that each token belongs to (long)."""
    mask_S: Tensor
    """Bool: tokens that are trained."""
    token_rewards_S: Tensor | None = None
    """Rewards earned at single tokens (a KL penalty in the reward), 0 where not trained."""
    entropy_S: Tensor | None = None
    """Full-vocabulary entropy of the policy at each token, in nats."""
    cot_mask_S: Tensor | None = None
    """Bool: tokens of the chain of thought."""
    parts_EK: Tensor | None = None
    """The K parts of each reward, before they are weighted."""
    part_weights_K: Tensor | None = None
    """Weight of each part in the reward."""


@dataclass(frozen=True)
class AdvantageOptions:
    """Every number an estimator may be given; each estimator reads the ones it names."""

    ddof: int = 1
    """1: unbiased standard deviation (torch, TRL, verl); 0: biased. Where std is used."""
    epsilon: float = 1e-6
    """Added to the standard deviation. Where std is used."""
    least_std: float = 0.0
    """A smaller standard deviation counts as this. Where std is used."""
    limit: float = math.inf
    """Standardised advantages are held in [-limit, limit]."""
    lone: Literal["zero", "reward"] = "zero"
    """Advantage of an episode alone in its group: nothing, or its raw reward as in verl."""
    equal: float = EQUAL
    """Rewards of a group that differ by no more than this are equal and carry no signal."""
    scale_by_std: bool = True
    """pass_at_k: divide by the group's standard deviation."""
    gamma: float = 1.0
    """reinforce_pp: discount per token."""
    f_norm: float = 1.0
    """gpg: divides the advantage."""
    egpo_lambda: float = 0.4
    """egpo: nats to advantage."""
    egpo_alpha: float = 2.0
    """egpo: the entropy bonus is held under |advantage| / alpha (paper form)."""


AdvantageFunction = Callable[[AdvantageInput, AdvantageOptions], Tensor]


def sum_by_episode(batch: AdvantageInput, values_S: Tensor, mask_S: Tensor) -> Tensor:
    """Sum of `values_S` over each episode's tokens that `mask_S` keeps: (E), float64."""
    kept_S = torch.where(mask_S, values_S.double(), 0.0)
    return torch.zeros_like(batch.rewards_E, dtype=torch.float64).index_add(
        0, batch.episode_S, kept_S
    )


def outcomes_E(batch: AdvantageInput) -> Tensor:
    """What each episode earned in all: its reward and its token rewards, (E), float64."""
    rewards_E = batch.rewards_E.double()
    if batch.token_rewards_S is None:
        return rewards_E
    return rewards_E + sum_by_episode(batch, batch.token_rewards_S, batch.mask_S)


def to_tokens(batch: AdvantageInput, values_E: Tensor) -> Tensor:
    """Each episode's value at every trained token of it, 0 elsewhere: (S), float32."""
    return torch.where(batch.mask_S, values_E[batch.episode_S], 0.0).float()


def minus_baseline(
    batch: AdvantageInput, values_E: Tensor, baseline_E: Tensor, options: AdvantageOptions
) -> Tensor:
    """`values_E - baseline_E`, exactly 0 in groups of equal values; lone episodes by option."""
    silent_E = in_equal_group(values_E, batch.group_E, options.equal)
    centred_E = torch.where(silent_E, 0.0, values_E - baseline_E)
    if options.lone == "reward":
        return torch.where(group_size(batch.group_E) == 1, values_E, centred_E)
    return centred_E


def centred_E(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """Outcomes minus their group's mean, (E), float64."""
    values_E = outcomes_E(batch)
    return minus_baseline(batch, values_E, group_mean(values_E, batch.group_E), options)


# Estimators whose baseline is the episode's own group; they do not read other groups. A group of
# equal rewards gets exactly 0 from each of them.


def standardised_E(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """(r - mean) / (max(std, least_std) + epsilon) inside each group, held in [-limit, limit], (E),
    float64."""
    scaled_E = _over_std(batch, centred_E(batch, options), options)
    return scaled_E.clamp(-options.limit, options.limit)


def _over_std(batch: AdvantageInput, values_E: Tensor, options: AdvantageOptions) -> Tensor:
    """values / (std + epsilon); a value of 0 stays 0, whatever it is divided by."""
    std_E = group_std(outcomes_E(batch), batch.group_E, options.ddof).clamp(min=options.least_std)
    return torch.where(values_E == 0, 0.0, values_E / (std_E + options.epsilon))


def grpo(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """(r - mean) / (std + epsilon) (DeepSeekMath, arXiv 2402.03300, outcome supervision).

    Reads `ddof`, `epsilon`, `least_std`, `limit`, `lone`. The paper leaves the deviation's kind
    open; unbiased is what TRL and verl compute.
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
    `grpo_passk`, arXiv 2503.19595). Reads `ddof`, `epsilon`, `least_std`, `scale_by_std`. A tie
    for the best and an episode alone in its group earn 0.
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


def gdpo(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """Each reward part standardised inside its group, weighted and summed over the parts, then
    standardised over the batch's episodes (GDPO, arXiv 2601.05242).

    TRL's `multi_objective_aggregation="normalize_then_sum"`. Reads `ddof`, `epsilon`. Token rewards
    are not read. Raises InputError.
    """
    if batch.parts_EK is None or batch.part_weights_K is None:
        raise InputError(
            "gdpo standardises each part of a reward by itself",
            fix="give the stage a table of rewards, or choose another estimator",
        )
    values_E = torch.zeros(len(batch.rewards_E), dtype=torch.float64)
    for part_E, weight in zip(batch.parts_EK.double().T, batch.part_weights_K, strict=True):
        values_E += weight * _standardised(part_E, batch.group_E, options)
    one_group_E = torch.zeros_like(batch.group_E)
    return to_tokens(batch, _standardised(values_E, one_group_E, options))


def _standardised(values_E: Tensor, group_E: Tensor, options: AdvantageOptions) -> Tensor:
    """(x - mean) / (std + epsilon) inside each group; exactly 0 where its values are equal."""
    centred_E = values_E - group_mean(values_E, group_E)
    scaled_E = centred_E / (group_std(values_E, group_E, options.ddof) + options.epsilon)
    return torch.where(in_equal_group(values_E, group_E, options.equal), 0.0, scaled_E)


# Whitened estimators shift every token by the batch mean, so a group of equal rewards does carry a
# gradient here; such groups must not be dropped beforehand (`signal.may_drop`).


def returns_to_go(batch: AdvantageInput, gamma: float) -> Tensor:
    """Discounted sum of the rewards from each trained token to its episode's end.

    The episode's reward is earned at its last trained token; untrained tokens are passed over
    without a discount. (S), float64, 0 where not trained.
    """
    episodes, rewards = batch.episode_S.tolist(), batch.rewards_E.tolist()
    trained = batch.mask_S.tolist()
    immediate = [0.0] * len(episodes)
    if batch.token_rewards_S is not None:
        immediate = batch.token_rewards_S.tolist()
    returns = [0.0] * len(episodes)
    following: dict[int, float] = {}
    for s in reversed(range(len(episodes))):
        if trained[s]:
            episode = episodes[s]
            later = gamma * following[episode] if episode in following else rewards[episode]
            returns[s] = following[episode] = immediate[s] + later
    return torch.tensor(returns, dtype=torch.float64, device=batch.mask_S.device)


def reinforce_pp(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """Return-to-go, whitened over the batch's trained tokens (REINFORCE++, arXiv 2501.03262).

    Reads `gamma`, `equal`; exactly 0 where all returns of the batch are equal.
    """
    return _whitened(batch, returns_to_go(batch, options.gamma), options)


def reinforce_pp_baseline(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """r - mean of the group, whitened over the batch's trained tokens (arXiv 2501.03262).

    Reads `lone`, `equal`.
    """
    values_S = to_tokens(batch, centred_E(batch, options)).double()
    return _whitened(batch, values_S, options)


def _whitened(batch: AdvantageInput, values_S: Tensor, options: AdvantageOptions) -> Tensor:
    kept = values_S[batch.mask_S]
    if len(kept) == 0 or kept.max() - kept.min() <= options.equal:
        return torch.zeros_like(values_S, dtype=torch.float32)
    # In float32 as verl, whose published numbers include its rounding where rewards are large.
    whitened_S = masked_whiten(values_S.float(), batch.mask_S)
    return torch.where(batch.mask_S, whitened_S, 0.0)


# EGPO: GRPO's advantage plus a bonus for entropy in the chain of thought, in two forms. With A the
# GRPO advantage and E the mean entropy of an episode's chain-of-thought tokens (nats):
#   egpo              A + min(lambda * E, |A| / alpha)       arXiv 2508.05118 v4, eq. 5
#   egpo_scaled_clip  A + lambda * clip(E, -|A|/alpha, |A|/alpha)   zhangdw156/verl 0350dd9c
# The bonus is never negative and smaller than |A| (alpha > 1), so no sign flips, and A = 0 gets
# none. The tokens of the chain of thought are found by `rl.thought`.


def egpo(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """A + min(lambda * E, |A| / alpha) (arXiv 2508.05118 v4, eq. 5).

    Reads what `grpo` reads, `egpo_lambda` (lambda), `egpo_alpha` (alpha). Raises InputError.
    """
    return _with_bonus(batch, options, options.egpo_lambda)


def egpo_scaled_clip(batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
    """A + lambda * clip(E, -|A| / alpha, |A| / alpha) (zhangdw156/verl 0350dd9c).

    The cap lies at lambda * |A| / alpha, below the paper's. Reads what `egpo` reads. Raises
    InputError.
    """
    return _with_bonus(batch, options, 1.0)


def _with_bonus(batch: AdvantageInput, options: AdvantageOptions, inner: float) -> Tensor:
    advantage_E = standardised_E(batch, options)
    return to_tokens(batch, advantage_E + _bonus_E(batch, advantage_E, options, inner))


def _bonus_E(
    batch: AdvantageInput, advantage_E: Tensor, options: AdvantageOptions, inner: float
) -> Tensor:
    """Both forms are (lambda / inner) * min(inner * E, |A| / alpha), inner = lambda or 1."""
    capped_E = torch.minimum(
        inner * _thought_entropy_E(batch), advantage_E.abs() / options.egpo_alpha
    )
    return options.egpo_lambda / inner * capped_E


def _thought_mask(batch: AdvantageInput) -> Tensor:
    if batch.cot_mask_S is None:
        raise InputError(
            "egpo needs to know which tokens are chain of thought",
            fix="name the model's thinking tags, or choose another algorithm",
        )
    return batch.cot_mask_S & batch.mask_S


def _thought_entropy_E(batch: AdvantageInput) -> Tensor:
    """Mean entropy over each episode's chain of thought, detached; 0 where there is none."""
    mask_S = _thought_mask(batch)
    if batch.entropy_S is None:
        raise InputError("egpo needs the policy's entropy at every token")
    tokens_E = sum_by_episode(batch, torch.ones_like(mask_S), mask_S)
    total_E = sum_by_episode(batch, batch.entropy_S.detach(), mask_S)
    # Entropy summed in float32 may come out a hair below 0, and the bonus may not.
    return (total_E / tokens_E.clamp(min=1)).clamp(min=0)


def _diagnostics(
    batch: AdvantageInput, options: AdvantageOptions, inner: float
) -> dict[str, float]:
    """cot_tokens_mean, share_without_cot and bonus_mean over episodes; share_capped over the
    episodes with an advantage other than 0: those whose entropy reached beyond the cap; and
    bonus_to_advantage, the sum of all bonuses over that of all |advantages| without them.
    """
    mask_S = _thought_mask(batch)
    tokens_E = sum_by_episode(batch, torch.ones_like(mask_S), mask_S)
    advantage_E = standardised_E(batch, options)
    beyond_E = inner * _thought_entropy_E(batch) > advantage_E.abs() / options.egpo_alpha
    heard_E = advantage_E != 0
    capped = (beyond_E & heard_E).sum() / heard_E.sum().clamp(min=1)
    bonus_E = _bonus_E(batch, advantage_E, options, inner)
    size = advantage_E.abs().sum()
    return {
        "cot_tokens_mean": tokens_E.mean().item(),
        "share_without_cot": (tokens_E == 0).double().mean().item(),
        "bonus_mean": bonus_E.mean().item(),
        "bonus_to_advantage": (bonus_E.sum() / size).item() if size else 0.0,
        "share_capped": capped.item(),
    }


@dataclass(frozen=True)
class Estimator:
    """An advantage estimator, and what else there is to know of it."""

    function: AdvantageFunction
    reads: frozenset[str] = frozenset({"lone"})
    """The options that it reads, `equal` apart."""
    whitened: bool = False
    """It shifts every token by a statistic of the whole batch."""
    groupless: bool = False
    """It compares a completion with no group, so that a prompt may have one only."""
    parts: bool = False
    """It reads `parts_EK`."""
    thought: bool = False
    """It reads `entropy_S` and `cot_mask_S`."""
    closed: bool = False
    """It gives no bonus for a thought that never closes: zhangdw156/verl 0350dd9c marks the tokens
    from `<think>` to `</think>` and none where either is missing."""
    diagnose: Callable[[AdvantageInput, AdvantageOptions], dict[str, float]] = lambda *_: {}
    """Numbers worth recording at every step."""

    def __call__(self, batch: AdvantageInput, options: AdvantageOptions) -> Tensor:
        """The advantages (S)."""
        return self.function(batch, options)


_STANDARDISED = frozenset({"ddof", "epsilon", "least_std", "limit", "lone"})
_EGPO = _STANDARDISED | {"egpo_lambda", "egpo_alpha"}
ADVANTAGES: dict[str, Estimator] = {
    "grpo": Estimator(grpo, _STANDARDISED),
    "mean_only": Estimator(mean_only),
    "rloo": Estimator(rloo),
    "reinforce_pp": Estimator(reinforce_pp, frozenset({"gamma"}), whitened=True, groupless=True),
    "reinforce_pp_baseline": Estimator(reinforce_pp_baseline, whitened=True),
    "opo": Estimator(opo),
    "gpg": Estimator(gpg, frozenset({"lone", "f_norm"})),
    "pass_at_k": Estimator(pass_at_k, frozenset({"ddof", "epsilon", "least_std", "scale_by_std"})),
    "egpo": Estimator(
        egpo,
        _EGPO,
        thought=True,
        diagnose=lambda batch, options: _diagnostics(batch, options, options.egpo_lambda),
    ),
    "egpo_scaled_clip": Estimator(
        egpo_scaled_clip,
        _EGPO,
        thought=True,
        closed=True,
        diagnose=lambda batch, options: _diagnostics(batch, options, 1.0),
    ),
    "gdpo": Estimator(gdpo, frozenset({"ddof", "epsilon"}), whitened=True, parts=True),
}


@dataclass(frozen=True)
class SignalStats:
    """Counts over one batch of rewards. Shares are 0 for an empty batch."""

    groups: int
    episodes: int
    signal_groups: int
    """Groups whose rewards differ; a group of one is not among them, unless all are: then every
    group is, if any two rewards of the batch differ."""
    positive_groups: int
    """Groups with at least one reward above 0."""
    positive_episodes: int
    """Episodes with a reward above 0."""
    distinct_rewards: int
    """Values that differ by more than the tolerance, over the batch."""

    @property
    def signal_share(self) -> float:
        """Share of groups with signal."""
        return self.signal_groups / max(self.groups, 1)


def signal_stats(rewards_E: Tensor, group_E: Tensor, tolerance: float = EQUAL) -> SignalStats:
    """Counts groups with signal and positives, at group and at episode level."""
    _, groups = compact(group_E)
    gaps = rewards_E.sort().values.diff()
    positive_E = rewards_E > 0
    alone = groups == len(rewards_E)
    differ = groups if len(gaps) and float(gaps.sum()) > tolerance else 0
    heard = differ if alone else len(groups_with_signal(rewards_E, group_E, tolerance))
    return SignalStats(
        groups=groups,
        episodes=len(rewards_E),
        signal_groups=heard,
        positive_groups=len(group_E[positive_E].unique()),
        positive_episodes=int(positive_E.sum()),
        distinct_rewards=min(len(rewards_E), 1) + int((gaps > tolerance).sum()),
    )


def groups_with_signal(rewards_E: Tensor, group_E: Tensor, tolerance: float = EQUAL) -> Tensor:
    """Numbers of the groups whose rewards are not all equal, ascending (long)."""
    return group_E[~in_equal_group(rewards_E, group_E, tolerance)].unique()


def may_drop(
    *, advantage: str, kl_coef: float = 0.0, entropy_coef: float = 0.0, lone: str | None = None
) -> bool:
    """Whether a group of equal rewards may be left out before any forward pass.

    Only if nothing acts on it: no KL (in the loss or in the reward), no entropy bonus, no whitening
    over the batch, and no raw reward of a completion that is alone. `advantage` is the estimator's
    name, `lone` its option.
    """
    silent = kl_coef == 0 and entropy_coef == 0 and lone != "reward"
    return silent and not ADVANTAGES[advantage].whitened
