"""The names of the metrics that each method records, step by step.

Their meanings are given where they are computed. Names of reward parts depend on the reward.
"""

from collections.abc import Mapping

PART = "part/"
"""Begins the metric of a reward part."""
SOURCE_SHARE, SOURCE_REWARD = "source_share/", "source_reward/"
"""Begin the metrics of the data sets that a mixture is made of."""
ENGINE = "engine/"
"""Begins the metrics of the hand-over of weights to an engine (`engines.handover`)."""
LOOP = frozenset(
    {
        "learning_rate",
        "skipped_steps",
        "rollout_seconds",
        "update_seconds",
        "seconds",
        "cpu_seconds",
        "peak_memory_mb",
        "grad_norm",
        "validation_loss",
        "loss",
    }
)
REWARDS = frozenset({"format_share", "fallback_share", "api_error_share", "cost"})
"""Of every task, where its rewards have such parts or facts; see `tasks.reward_metrics`."""
COEFFICIENTS: Mapping[str, str] = {"kl_loss": "kl_coef", "entropy_bonus": "entropy_coef"}
"""Part of the loss -> the metric of its coefficient; the others enter the loss as they are. The
entropy bonus is subtracted."""
LIKELIHOOD = frozenset({"nll", "nll_loss"})
SAMPLING = frozenset(
    {
        "rows",
        "reward_mean",
        "reward_std",
        "length_mean",
        "truncated_share",
        "abstained_share",
        "repeated_share",
        "completions",
        "completion_tokens",
        "prompt_tokens",
    }
)
POLICY = frozenset(
    {
        "policy_loss",
        *COEFFICIENTS,
        *COEFFICIENTS.values(),
        "advantage_mean",
        "advantage_std",
        "advantage_min",
        "advantage_max",
        "clip_low_share",
        "clip_high_share",
        "clip_raised_share",
        "dual_clip_share",
        "policy_kl",
        "kl",
        "entropy",
        "rollout_gap_mean",
        "rollout_gap_k3",
        "importance_cut_share",
        "signal_share",
        "groups",
        "groups_dropped",
        "sampled_batches",
        "groups_replaced",
        "masked_share",
        "left_out_share",
        "entropy_cut_share",
    }
)
THOUGHT = frozenset(
    {
        "cot_tokens_mean",
        "share_without_cot",
        "share_cot_unclosed",
        "bonus_mean",
        "bonus_to_advantage",
        "share_capped",
    }
)
PREFERENCE = frozenset({"reward_margin", "reward_accuracy", "chosen_logp", "rejected_logp", "kl"})
"""Means over the pairs of a step, where it has any."""
OWN = frozenset({"own_divergence", "rollout_gap_mean"})
"""Of a distilled step, means over the tokens that the student sampled."""
DISTILLED = OWN | {
    "distill_loss",
    "divergence",
    "divergence_gap",
    "teacher_tail",
    "teacher_agreement",
    "entropy",
    "on_policy_share",
    "tokens",
}
PAIRS = frozenset({"pairs", "tokens", "score_gap", "signal_share", "preference_loss"})
SELF_CHECK = frozenset(
    {
        "self_check_logp",
        "self_check_loss",
        "self_check_gradient",
        "self_check_rollout",
        "self_check_seconds",
    }
)
SCHEDULED = frozenset({"temperature"})
SCHEDULED_GRPO = frozenset({"clip_low", "clip_high", "kl_reward_coef"})
"""Settings that are recorded where they have a schedule."""
METHODS: Mapping[str, frozenset[str]] = {
    "sft": LOOP | LIKELIHOOD | {"rows", "tokens"},
    "rft": LOOP | LIKELIHOOD | SAMPLING | REWARDS | SCHEDULED | {"kept_share", "tokens"},
    "rce": LOOP
    | LIKELIHOOD
    | SAMPLING
    | REWARDS
    | SCHEDULED
    | {"tau", "groups", "signal_share", "left_out_share"},
    "dpo": LOOP | PREFERENCE | PAIRS,
    "distill": LOOP | SAMPLING | REWARDS | SCHEDULED | DISTILLED,
    "grpo": LOOP | SAMPLING | REWARDS | POLICY | THOUGHT | SELF_CHECK | SCHEDULED | SCHEDULED_GRPO,
}
"""By the name of the method."""


def is_written(metric: str, method: str) -> bool:
    """Whether a method may write a metric of this name."""
    if metric.startswith((PART, SOURCE_REWARD, ENGINE)):
        return method not in ("sft", "dpo")
    return metric in METHODS[method] or metric.startswith(SOURCE_SHARE)
