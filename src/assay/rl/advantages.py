"""The register of advantage estimators. Each is a function of a batch and its options.

Adding one: write `fn(batch, options) -> advantage_S` in `estimators/` and enter it here.
"""

from collections.abc import Callable

from assay.rl.estimators.advantage_batch import AdvantageFunction, AdvantageInput, AdvantageOptions
from assay.rl.estimators.egpo import (
    egpo,
    egpo_diagnostics,
    egpo_scaled_clip,
    egpo_scaled_clip_diagnostics,
)
from assay.rl.estimators.group import gpg, grpo, mean_only, opo, pass_at_k, rloo
from assay.rl.estimators.whitened import reinforce_pp, reinforce_pp_baseline

__all__ = [
    "ADVANTAGES",
    "CLOSED_THOUGHT",
    "DIAGNOSTICS",
    "ENTROPY_ESTIMATORS",
    "WHITENED_ESTIMATORS",
    "AdvantageFunction",
    "AdvantageInput",
    "AdvantageOptions",
]

ADVANTAGES: dict[str, AdvantageFunction] = {
    "grpo": grpo,
    "mean_only": mean_only,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "opo": opo,
    "gpg": gpg,
    "pass_at_k": pass_at_k,
    "egpo": egpo,
    "egpo_scaled_clip": egpo_scaled_clip,
}

DIAGNOSTICS: dict[str, Callable[[AdvantageInput, AdvantageOptions], dict[str, float]]] = {
    "egpo": egpo_diagnostics,
    "egpo_scaled_clip": egpo_scaled_clip_diagnostics,
}
"""Numbers worth logging every step, for the estimators that have some."""

ENTROPY_ESTIMATORS = frozenset({"egpo", "egpo_scaled_clip"})
"""Estimators that read `entropy_S` and `cot_mask_S`."""

CLOSED_THOUGHT = frozenset({"egpo_scaled_clip"})
"""Estimators that give no bonus for a thought that never closes: zhangdw156/verl 0350dd9c marks
the tokens from `<think>` to `</think>` and none where either is missing."""

WHITENED_ESTIMATORS = frozenset({"reinforce_pp", "reinforce_pp_baseline"})
"""Estimators that shift every token by a statistic of the whole batch."""
