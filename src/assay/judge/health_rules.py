"""The health rules as data: the metric each watches, its condition and its advice.

A rule applies only where the stage recorded its metric, so rules for metrics of other tasks cost
nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

WINDOW = 10
"""Steps that a rule calls recent."""
LONG = 2 * WINDOW
"""Steps that a rule over a trend looks at."""
IDLE = 5
"""Steps after which a part of an algorithm that did nothing is told; fewer where a stage ends."""

Kind = str
"""`high`, `low`: the mean of the recent steps against a threshold. `grown`, `shrunk`: that mean as
a multiple of the mean of the first steps. `rising`, `falling`: a slope whose 99 % interval leaves
0 and that comes to the threshold over the steps looked at. `growing`: such a rise over all steps of
the stage, as a share of where it began. `flat`: a slope that cannot come to the
threshold. `zero`: 0 in every recent step. `broken`: values that were not finite. `budget`: spending
as a multiple of what the experiment allows. `dev`: the reward rises while the dev score falls.
`idle`: nothing, at most the threshold, in each of the last IDLE steps that count. `never`: the same
in every such step of the stage. Where no step counts, and without a threshold, it is a note.
`first`: the first step's value. `turned`: a slope above 0 since the lowest value. `peak`: the last
dev score is worse than the best before it. `start`: no evaluation shows the last checkpoint better
than the stage's start."""


Side = Literal["above", "below"]


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
    advise: float | None = None
    """The threshold of a note."""
    where: str = ""
    """Only steps in which this metric is above 0 count, of `idle` and `never`; "": all."""

    @property
    def nothing(self) -> float:
        """Of `idle` and `never`: the most that counts as nothing."""
        return self.error or self.warning or 0.0

    @property
    def side(self) -> Side:
        """Where the values lie that it finds fault with."""
        return "below" if self.kind in ("low", "shrunk", "flat") else "above"


SIGNAL_WARNING = 0.1
"""Below this share of groups with signal, a stage learns next to nothing."""
LOW_TEMPERATURE = 0.7
"""Below it, samples of one prompt are alike for this reason alone."""
COLD = Advice("low_temperature", "temperature", below=LOW_TEMPERATURE)
RAISE_TEMPERATURE = Advice("raise_temperature")
CHANGE_PROMPT = Advice("change_prompt")
MORE_DATA = Advice("more_data", "reward_mean", above=0.8)
ALIKE = (COLD, RAISE_TEMPERATURE, MORE_DATA)
SILENT = (
    *(Advice("too_hard", "reward_mean", below=0.2), MORE_DATA),
    *(Advice("raise_temperature", "entropy", below=0.5), Advice("signal")),
    Advice("kl_on_ties", "kl_coef", above=0.0),
)
STAGNANT = (
    *(Advice("raise_temperature", "signal_share", below=0.3), MORE_DATA),
    Advice("reweight_reward", "reward_mean", below=0.8),
)
LONGER = (Advice("overlong", "truncated_share", above=0.1), Advice("length"))
COLLAPSED = (RAISE_TEMPERATURE, Advice("entropy"))
MALFORMED = (CHANGE_PROMPT, Advice("reweight_reward"))
THOUGHTLESS = (
    Advice("no_thought", "share_without_cot", above=0.5),
    Advice("unclosed_thought", "share_cot_unclosed", above=0.5),
    Advice("no_bonus"),
)
DEAD_BONUS = 1e-3
"""A bonus of less than this share of the advantages that it is added to counts as none: one answer
with a thought among hundreds without is still plain GRPO. EGPO's caps are at 0.5 and 0.2."""
MOVED = "moved"
"""A derived metric: 1 at the steps after one that moved the weights."""
BONUSES, PENALTIES = "part/*", "penalty/*"
"""Stand for the parts of a reward table that add to the reward, and those that take from it."""

RULES: Mapping[str, Rule] = {
    "no_signal": Rule("low", ("signal_share",), SIGNAL_WARNING, 0.0, SILENT),
    "zero_gradient": Rule("zero", ("grad_norm",), None, 0.0, (Advice("gradient"),)),
    # What makes an algorithm itself, by the metric that a stage records where it is set.
    "no_bonus": Rule(
        "idle", ("bonus_to_advantage",), None, DEAD_BONUS, THOUGHTLESS, where="signal_share"
    ),
    "no_kl": Rule("idle", ("kl",), None, 0.0, (Advice("no_kl"),), where=MOVED),
    "no_entropy_bonus": Rule("idle", ("entropy_bonus",), None, 0.0, (Advice("entropy"),)),
    "no_entropy_cut": Rule("idle", ("entropy_cut_share",), None, 0.0, (Advice("entropy"),)),
    "no_punishment": Rule(
        "idle", ("part/overlong",), None, 0.0, (Advice("no_punishment"),), where="truncated_share"
    ),
    "no_teaching": Rule("idle", ("divergence",), None, 0.0, (Advice("no_teaching"),)),
    "no_reward_part": Rule("never", (BONUSES,), None, 0.0, (Advice("no_reward_part"),)),
    "no_penalty": Rule("never", (PENALTIES,), None, None, ()),
    "no_raised_clip": Rule("never", ("clip_raised_share",), 0.0, None, (Advice("no_raised_clip"),)),
    "no_replacement": Rule("never", ("groups_replaced",), None, None, ()),
    "no_mask": Rule("never", ("masked_share",), None, None, ()),
    "no_curriculum": Rule("never", ("left_out_share",), 0.0, None, (Advice("no_curriculum"),)),
    "truncated": Rule("high", ("truncated_share",), 0.3, 0.95, (Advice("max_tokens"),)),
    "abstentions": Rule("high", ("abstained_share",), 0.02, 0.2, (Advice("abstentions"),)),
    "non_finite_gradient": Rule("broken", ("grad_norm",), 0.0, 0.0, (Advice("finite"),)),
    # bf16 rollout against fp32 training measures 0.044.
    "rollout_gap": Rule("high", ("rollout_gap_mean",), 0.1, 0.5, (Advice("gap"),)),
    "entropy_collapse": Rule("shrunk", ("entropy",), 0.1, None, COLLAPSED),
    "length_explosion": Rule("grown", ("length_mean",), 2.0, 4.0, LONGER),
    "kl_blow_up": Rule("high", ("kl",), 0.2, 1.0, (Advice("kl"),)),
    "stale_reference": Rule("high", ("clipped_share",), 0.2, 0.5, (Advice("renew_reference"),)),
    "repeated_samples": Rule("high", ("repeated_share",), 0.7, 0.95, ALIKE),
    "alike_programs": Rule("low", ("different_trees_share",), 0.1, None, ALIKE),
    "reward_without_gain": Rule("dev", ("reward_mean",), None, None, (Advice("read_rewarded"),)),
    "format_falling": Rule("falling", ("format_share",), 0.02, 0.1, MALFORMED),
    "stagnant_reward": Rule("flat", ("reward_mean",), 0.05, None, STAGNANT),
    "fallbacks": Rule("high", ("fallback_share",), 0.05, 0.2, (Advice("fallback"),)),
    "rising_fallbacks": Rule(
        "rising", ("fallback_share",), 0.02, 0.1, (Advice("fallback"), CHANGE_PROMPT)
    ),
    "rising_api_errors": Rule(
        "rising", ("api_error_share",), 0.02, 0.1, (Advice("endpoint"), CHANGE_PROMPT)
    ),
    "falling_speed": Rule("shrunk", ("tokens_per_second",), 0.5, 0.25, (Advice("speed"),)),
    "growing_memory": Rule(
        "growing", ("peak_memory_mb", "host_memory_mb"), 0.2, 0.5, (Advice("memory"),)
    ),
    "over_budget": Rule("budget", (), 1.0, 1.0, (Advice("budget"),)),
    # What to do otherwise: notes.
    "keep_start": Rule("start", (), None, None, (Advice("keep_start"),)),
    "dev_fell": Rule("peak", (), None, None, (Advice("stop_early"),)),
    "loss_turned": Rule("turned", ("validation_loss",), None, None, (Advice("stop_early"),)),
    "kl_at_start": Rule("first", ("kl",), None, None, (Advice("kl_at_start"),), advise=0.01),
    "kl_returns": Rule("falling", ("kl",), None, None, (Advice("kl_returns"),), advise=0.0),
}
"""By name, in the order in which they are looked at."""


def derived(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """A line with the metrics that follow from others."""
    more: dict[str, float] = {}
    tokens, seconds = line.get("completion_tokens", line.get("tokens")), line.get("seconds")
    if tokens and seconds:
        more["tokens_per_second"] = tokens / seconds
    part = line.get("part/format")
    if part is not None and "format_share" not in line:
        # Of runs whose task has not the metric.
        more["format_share"] = part
    requests, failures = (
        sum(v or 0 for key, v in line.items() if key.startswith("helper/") and key.endswith(end))
        for end in ("/requests", "/failures")
    )
    if requests and "api_error_share" not in line:
        more["api_error_share"] = failures / requests
    clipped = [line[key] for key in ("clip_low_share", "clip_high_share") if key in line]
    if clipped and None not in clipped:
        more["clipped_share"] = sum(clipped)
    return {**line, **more}


OF_SAMPLES = frozenset(
    {
        *("truncated", "length_explosion", "repeated_samples", "alike_programs"),
        *("reward_without_gain", "format_falling", "stagnant_reward", "rising_fallbacks"),
    }
)
"""Rules about what a model samples. Stored candidates and their rewards stay what they are,
whatever a stage learns: their means say which rows came when."""
STORED_ADVICE = {"no_signal": {"advice": ("stored_groups",)}}
"""Advice of other rules where candidates are stored, in place of sampling in another way."""
