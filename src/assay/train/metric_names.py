"""The names of the metrics that each method records, step by step: metrics.toml has them.

Their meanings are given where they are computed. Names of reward parts depend on the reward.
"""

import tomllib
from collections.abc import Mapping
from importlib.resources import files

PART = "part/"
"""Begins the metric of a reward part."""
SOURCE_SHARE, SOURCE_REWARD = "source_share/", "source_reward/"
"""Begin the metrics of the data sets that a mixture is made of."""
ENGINE = "engine/"
"""Begins the metrics of the hand-over of weights to an engine (`engines.handover`)."""
COEFFICIENTS: Mapping[str, str] = {"kl_loss": "kl_coef", "entropy_bonus": "entropy_coef"}
"""Part of the loss -> the metric of its coefficient; the others enter the loss as they are. The
entropy bonus is subtracted."""

_TABLE = tomllib.loads(files("assay.train").joinpath("metrics.toml").read_text(encoding="utf-8"))
NAMES: Mapping[str, frozenset[str]] = {
    group: frozenset(names.split()) for group, names in _TABLE["names"].items()
}
"""By what computes them."""
METHODS: Mapping[str, frozenset[str]] = {
    method: frozenset[str]().union(*(NAMES[group] for group in groups.split()))
    for method, groups in _TABLE["methods"].items()
}
"""By the name of the method."""
PREFERENCE, OWN = NAMES["preference"], NAMES["own"]


def is_written(metric: str, method: str) -> bool:
    """Whether a method may write a metric of this name."""
    if metric.startswith((PART, SOURCE_REWARD, ENGINE)):
        return method not in ("sft", "dpo")
    return metric in METHODS[method] or metric.startswith(SOURCE_SHARE)
