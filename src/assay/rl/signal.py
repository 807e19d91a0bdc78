"""How much of a batch of rewards can teach anything: groups whose rewards are not all equal.

Equality is tested on the rewards themselves (largest minus smallest within a tolerance), never on
a standard deviation. Pure statistics of one batch; nothing here drops anything.
"""

from dataclasses import dataclass

from torch import Tensor

from assay.rl.advantages import ADVANTAGES, EQUAL, compact, in_equal_group


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
