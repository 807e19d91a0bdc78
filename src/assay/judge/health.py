"""Rules over the metrics of one training stage: what went wrong, with evidence and advice.

Each rule reads the recorded steps and returns a finding or None. Rules look at the last steps, so
that they say what is wrong now. Stopping a run is a guard's part, not theirs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from assay.judge.findings import Finding, worst_first
from assay.judge.identity import IDENTITY_RULES
from assay.judge.paired import compare
from assay.judge.scores import ItemScores

Metrics = Sequence[Mapping[str, Any]]
Rule = Callable[[Metrics], Finding | None]

WINDOW = 10
"""Steps that a rule calls recent."""
SIGNAL_WARNING = 0.1
TRUNCATED_WARNING, TRUNCATED_ERROR = 0.3, 0.95
ABSTAINED_WARNING, ABSTAINED_ERROR = 0.02, 0.2
GAP_WARNING, GAP_ERROR = 0.1, 0.5
"""Mean absolute log-prob gap; bf16 rollout against fp32 training measures 0.044."""
ENTROPY_SHARE = 0.1
"""Entropy below this share of its start has collapsed."""


def no_signal(metrics: Metrics) -> Finding | None:
    """Groups whose rewards are all equal teach nothing."""
    share = _recent(metrics, "signal_share")
    if share is None or share >= SIGNAL_WARNING:
        return None
    return Finding(
        "error" if share == 0 else "warning",
        "almost no group carries signal" if share else "no group carries signal",
        f"{share:.1%} of groups had unequal rewards in the last {_span(metrics, 'signal_share')}",
        "raise the temperature or the group size, choose prompts that the model solves sometimes, "
        "or train with SFT first",
    )


def truncated(metrics: Metrics) -> Finding | None:
    """Completions cut at the token limit."""
    share = _recent(metrics, "truncated_share")
    if share is None or share < TRUNCATED_WARNING:
        return None
    return Finding(
        "error" if share >= TRUNCATED_ERROR else "warning",
        "completions are cut at the token limit",
        f"{share:.1%} truncated in the last {_span(metrics, 'truncated_share')}",
        "raise sampling.max_tokens, or teach the model to end its answers first",
    )


def abstentions(metrics: Metrics) -> Finding | None:
    """Rewards that could not be computed."""
    share = _recent(metrics, "abstained_share")
    if share is None or share < ABSTAINED_WARNING:
        return None
    return Finding(
        "error" if share >= ABSTAINED_ERROR else "warning",
        "rewards abstain",
        f"{share:.1%} without a reward in the last {_span(metrics, 'abstained_share')}",
        "read the reasons in the samples; mend the reward or raise its deadline",
    )


def zero_gradient(metrics: Metrics) -> Finding | None:
    """A gradient of exactly zero in every recent step."""
    norms = _values(metrics, "grad_norm")[-WINDOW:]
    if not norms or any(norm != 0 for norm in norms):
        return None
    return Finding(
        "error",
        "nothing is being learned",
        f"the gradient norm was 0 in each of the last {_span(metrics, 'grad_norm')}",
        "look for groups without signal, masked-out tokens or frozen parameters",
    )


def non_finite_gradient(metrics: Metrics) -> Finding | None:
    """Gradients that were infinite or not a number, and the steps skipped because of them."""
    norms = _values(metrics, "grad_norm")
    broken = sum(not math.isfinite(norm) for norm in norms)
    skipped = int(max(_values(metrics, "skipped_steps"), default=0))
    if not broken and not skipped:
        return None
    recent = any(not math.isfinite(norm) for norm in norms[-WINDOW:])
    return Finding(
        "error" if recent else "warning",
        "gradients were not finite",
        f"{broken} of {len(norms)} steps, {skipped} skipped",
        "lower the learning rate, or train in fp32",
    )


def rollout_gap(metrics: Metrics) -> Finding | None:
    """Log-probs of the rollout that differ from those of the training forward."""
    gap = _recent(metrics, "rollout_gap_mean")
    if gap is None or gap < GAP_WARNING:
        return None
    k3 = _recent(metrics, "rollout_gap_k3")
    return Finding(
        "error" if gap >= GAP_ERROR else "warning",
        "rollout and training disagree about log-probs",
        f"mean absolute gap {gap:.3f}" + ("" if k3 is None else f", k3 {k3:.4f}"),
        "use one precision for both, and check that both render prompts and apply the temperature "
        "alike",
    )


def entropy_collapse(metrics: Metrics) -> Finding | None:
    """A policy that no longer explores."""
    values = _values(metrics, "entropy")
    if len(values) < 2:
        return None
    start, now = values[0], float(np.mean(values[-min(WINDOW, len(values) // 2) :]))
    if start <= 0 or now >= ENTROPY_SHARE * start:
        return None
    return Finding(
        "warning",
        "entropy has collapsed",
        f"from {start:.3f} at the first step to {now:.3f}",
        "raise clip_high or the temperature, add an entropy or KL term, or stop here",
    )


def reward_without_gain(metrics: Metrics, dev: Sequence[tuple[int, ItemScores]]) -> Finding | None:
    """Training reward that rises while the score on dev items falls.

    `dev` holds (step, scores) in order of steps. A fall counts when the paired comparison of the
    last with the first calls it worse; a rise, when the reward's slope is above 0 by two standard
    errors. Raises what `compare` raises.
    """
    rewards = _values(metrics, "reward_mean")
    if len(dev) < 2 or len(rewards) < 4 or not _rises(rewards):
        return None
    comparison = compare(dev[0][1], dev[-1][1])
    if comparison.verdict != "worse":
        return None
    return Finding(
        "error",
        "the reward rises while the dev score falls",
        f"reward {rewards[0]:.3f} to {rewards[-1]:.3f}; dev {comparison.control_score:.3f} at step "
        f"{dev[0][0]} to {comparison.score:.3f} at step {dev[-1][0]}, p = {comparison.p_value:.2g}",
        "read the best rewarded samples: the reward can be earned without the skill",
    )


HEALTH_RULES: dict[str, Rule] = {
    "no_signal": no_signal,
    "truncated": truncated,
    "abstentions": abstentions,
    "zero_gradient": zero_gradient,
    "non_finite_gradient": non_finite_gradient,
    "rollout_gap": rollout_gap,
    "entropy_collapse": entropy_collapse,
}


def health(metrics: Metrics, dev: Sequence[tuple[int, ItemScores]] = ()) -> list[Finding]:
    """The findings of every rule over the metrics of one stage, worst first.

    The rules of `identity`, on numbers that contradict each other, are among them.
    """
    found = [rule(metrics) for rule in (*HEALTH_RULES.values(), *IDENTITY_RULES.values())]
    found.append(reward_without_gain(metrics, dev))
    return worst_first([finding for finding in found if finding is not None])


def _values(metrics: Metrics, key: str) -> list[float]:
    """The recorded values of one metric; a recorded null is a number that was not finite."""
    present = [step[key] for step in metrics if key in step]
    return [math.nan if value is None else float(value) for value in present]


def _recent(metrics: Metrics, key: str) -> float | None:
    """Mean of a metric over the recent steps; None when it was never recorded."""
    values = _values(metrics, key)[-WINDOW:]
    return float(np.mean(values)) if values else None


def _span(metrics: Metrics, key: str) -> str:
    """The number of recent steps that have the metric, in words."""
    count = len(_values(metrics, key)[-WINDOW:])
    return "step" if count == 1 else f"{count} steps"


def _rises(values: list[float]) -> bool:
    """Whether a straight line through the values has a slope above 0 by two standard errors."""
    steps = np.arange(len(values), dtype=np.float64)
    steps -= steps.mean()
    slope = steps @ values / (steps @ steps)
    residuals = np.asarray(values) - np.mean(values) - slope * steps
    error = np.sqrt(residuals @ residuals / (len(values) - 2) / (steps @ steps))
    return bool(slope > 2 * error)
