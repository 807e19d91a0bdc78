"""The health rules as data: what each watches, when it speaks, and what it advises.

How a kind of rule is checked is in `stage_diagnosis`; the words are in `health_words`. A rule
speaks only where the stage recorded its metric, so that rules for metrics of other tasks cost
nothing here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

WINDOW = 10
"""Steps that a rule calls recent."""
LONG = 2 * WINDOW
"""Steps that a rule over a trend looks at."""

Kind = Literal[
    "high", "low", "grown", "shrunk", "rising", "falling", "flat", "zero", "broken", "budget", "dev"
]
"""`high`, `low`: the mean of the recent steps against a threshold. `grown`, `shrunk`: that mean as
a multiple of the mean of the first steps. `rising`, `falling`: a slope whose 99 % interval leaves
0 and that comes to the threshold over the steps looked at. `flat`: a slope that cannot come to the
threshold. `zero`: 0 in every recent step. `broken`: values that were not finite. `budget`: spending
as a multiple of what the experiment allows. `dev`: the reward rises while the dev score falls."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do; given where the recent mean of `metric` lies on the side that is named."""

    key: str
    metric: str = ""
    """"" : always."""
    above: float | None = None
    below: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One health rule."""

    kind: Kind
    metrics: tuple[str, ...]
    """Each that the stage recorded is looked at."""
    warning: float | None
    """The threshold of a warning; None: the rule knows errors only."""
    error: float | None
    advice: tuple[Advice, ...]


SIGNAL_WARNING = 0.1
"""Below this share of groups with signal, a stage learns next to nothing."""
RAISE_TEMPERATURE = Advice("raise_temperature")
CHANGE_PROMPT = Advice("change_prompt")
REWEIGHT_REWARD = Advice("reweight_reward")

RULES: Mapping[str, Rule] = {
    "no_signal": Rule(
        "low",
        ("signal_share",),
        SIGNAL_WARNING,
        0.0,
        (
            Advice("too_hard", "reward_mean", below=0.2),
            Advice("more_data", "reward_mean", above=0.8),
            Advice("raise_temperature", "entropy", below=0.5),
            Advice("signal"),
        ),
    ),
    "truncated": Rule("high", ("truncated_share",), 0.3, 0.95, (Advice("max_tokens"),)),
    "abstentions": Rule("high", ("abstained_share",), 0.02, 0.2, (Advice("abstentions"),)),
    "zero_gradient": Rule("zero", ("grad_norm",), None, 0.0, (Advice("gradient"),)),
    "non_finite_gradient": Rule("broken", ("grad_norm",), 0.0, 0.0, (Advice("finite"),)),
    # bf16 rollout against fp32 training measures 0.044.
    "rollout_gap": Rule("high", ("rollout_gap_mean",), 0.1, 0.5, (Advice("gap"),)),
    "entropy_collapse": Rule(
        "shrunk", ("entropy",), 0.1, None, (RAISE_TEMPERATURE, Advice("entropy"))
    ),
    "length_explosion": Rule(
        "grown",
        ("length_mean",),
        2.0,
        4.0,
        (Advice("overlong", "truncated_share", above=0.1), Advice("length")),
    ),
    "kl_blow_up": Rule("high", ("kl",), 0.2, 1.0, (Advice("kl"),)),
    "stale_reference": Rule(
        "high", ("clipped_share", "stale_share"), 0.2, 0.5, (Advice("renew_reference"),)
    ),
    "repeated_samples": Rule(
        "high",
        ("repeated_share",),
        0.7,
        0.95,
        (RAISE_TEMPERATURE, Advice("more_data", "reward_mean", above=0.8)),
    ),
    "reward_without_gain": Rule("dev", ("reward_mean",), None, None, (Advice("read_rewarded"),)),
    "format_falling": Rule(
        "falling",
        ("format_share", "part/format"),
        0.02,
        0.1,
        (CHANGE_PROMPT, REWEIGHT_REWARD),
    ),
    "stagnant_reward": Rule(
        "flat",
        ("reward_mean",),
        0.05,
        None,
        (
            Advice("raise_temperature", "signal_share", below=0.3),
            Advice("more_data", "reward_mean", above=0.8),
            Advice("reweight_reward", "reward_mean", below=0.8),
        ),
    ),
    "fallbacks": Rule("high", ("fallback_share",), 0.05, 0.2, (Advice("fallback"),)),
    "rising_fallbacks": Rule(
        "rising", ("fallback_share",), 0.02, 0.1, (Advice("fallback"), CHANGE_PROMPT)
    ),
    "rising_api_errors": Rule(
        "rising", ("api_error_share",), 0.02, 0.1, (Advice("endpoint"), CHANGE_PROMPT)
    ),
    "falling_speed": Rule("shrunk", ("tokens_per_second",), 0.5, 0.25, (Advice("speed"),)),
    "over_budget": Rule("budget", (), 1.0, 1.0, (Advice("budget"),)),
}
"""By name, in the order in which they are looked at."""
