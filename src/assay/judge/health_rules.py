"""The health rules as data: the metric each watches, its condition, its advice, and English words.

`health_checks` applies them and fills the gaps in braces; pages in another language bring the same
keys. A rule applies only where the stage recorded its metric, so rules for metrics of other tasks
cost nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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
)
STAGNANT = (
    *(Advice("raise_temperature", "signal_share", below=0.3), MORE_DATA),
    Advice("reweight_reward", "reward_mean", below=0.8),
)
LONGER = (Advice("overlong", "truncated_share", above=0.1), Advice("length"))
COLLAPSED = (RAISE_TEMPERATURE, Advice("entropy"))
MALFORMED = (CHANGE_PROMPT, Advice("reweight_reward"))

RULES: Mapping[str, Rule] = {
    "no_signal": Rule("low", ("signal_share",), SIGNAL_WARNING, 0.0, SILENT),
    "truncated": Rule("high", ("truncated_share",), 0.3, 0.95, (Advice("max_tokens"),)),
    "abstentions": Rule("high", ("abstained_share",), 0.02, 0.2, (Advice("abstentions"),)),
    "zero_gradient": Rule("zero", ("grad_norm",), None, 0.0, (Advice("gradient"),)),
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
    "over_budget": Rule("budget", (), 1.0, 1.0, (Advice("budget"),)),
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
        # Of runs from before every task had the metric.
        more["format_share"] = part
    requests, failures = (_asked(line, end) for end in ("/requests", "/failures"))
    if requests and "api_error_share" not in line:
        more["api_error_share"] = failures / requests
    clipped = [line[key] for key in ("clip_low_share", "clip_high_share") if key in line]
    if clipped and None not in clipped:
        more["clipped_share"] = sum(clipped)
    return {**line, **more}


def _asked(line: Mapping[str, Any], end: str) -> float:
    """What all helper models together were asked, or failed to answer."""
    found = (
        value for key, value in line.items() if key.startswith("helper/") and key.endswith(end)
    )
    return sum(value or 0 for value in found)


OF_SAMPLES = frozenset(
    {
        *("truncated", "length_explosion", "repeated_samples", "alike_programs"),
        *("reward_without_gain", "format_falling", "stagnant_reward", "rising_fallbacks"),
    }
)
"""Rules about what a model samples. Stored candidates and their rewards stay what they are,
whatever a stage learns: their means say which rows came when."""
STORED_ADVICE: Mapping[str, tuple[str, ...]] = {"no_signal": ("stored_groups",)}
"""Advice of other rules where candidates are stored, in place of sampling in another way."""


WHAT: Mapping[str, str] = {
    "no_signal": "almost no group carries signal",
    "truncated": "completions are cut at the token limit",
    "abstentions": "rewards fail: completions stay unscored",
    "zero_gradient": "nothing is being learned",
    "non_finite_gradient": "gradients were not finite",
    "rollout_gap": "rollout and training disagree about log-probs",
    "entropy_collapse": "entropy has collapsed",
    "length_explosion": "completions grow without end",
    "kl_blow_up": "the policy runs away from its reference",
    "stale_reference": "updates work against a stale policy",
    "repeated_samples": "the samples of a prompt repeat each other",
    "alike_programs": "the programs of a prompt are nearly all alike",
    "reward_without_gain": "the reward rises while the dev score falls",
    "format_falling": "fewer answers have the right form",
    "stagnant_reward": "the reward does not rise",
    "fallbacks": "many answers needed the fallback",
    "rising_fallbacks": "more and more answers need the fallback",
    "rising_api_errors": "more and more calls fail",
    "falling_speed": "steps have become slow",
    "over_budget": "the run costs more than its budget",
    "loss_parts": "the parts of the loss do not add up to it",
    "fallback_contradiction": "the fallback count is 0 beside errors that cause a fallback",
    "impossible_share": "a share lies outside 0 to 1",
    "signal_without_spread": "groups carry signal although all rewards are equal",
}

EVIDENCE: Mapping[str, str] = {
    "high": "{metric}: {value} on average over the last {steps:steps}, limit {limit}",
    "low": "{metric}: {value} on average over the last {steps:steps}, limit {limit}",
    "grown": "{metric}: from {start} at first to {now} over the last {steps:steps}, "
    "{ratio} times as much, limit {limit}",
    "shrunk": "{metric}: from {start} at first to {now} over the last {steps:steps}, "
    "{ratio} of it left, limit {limit}",
    "rising": "{metric}: from {start} to {now} in {steps:steps}, {slope} a step ({low} to {high}), "
    "limit {limit} in all",
    "falling": "{metric}: from {start} to {now} in {steps:steps}, {slope} a step ({low} to "
    "{high}), limit {limit} in all",
    "flat": "{metric}: from {start} to {now} in {steps:steps}, {slope} a step ({low} to {high}); "
    "even the upper limit makes less than {limit} in all",
    "zero": "{metric}: 0 in each of the last {steps:steps}",
    "not_zero": "{metric}: not 0 in all of the last {steps:steps}, {value} at the end",
    "broken": "{metric}: not finite in {broken} of {steps:steps}, {skipped} updates skipped",
    "spent": "{metric}: {spent} spent of {budget}",
    "will_spend": "{metric}: {spent} spent of {budget}; {forecast} ({low} to {high}) by step {at}, "
    "if the remaining steps cost what the last {steps} cost",
    "dev": "reward from {start} to {now}; dev score {before} at step {first} to {after} at step "
    "{last}, p = {p}",
    "loss_parts": "{off} of {steps:steps}; at step {step} {names} = {total} and the loss is {loss}",
    "fallback_in_steps": "{fallback} 0 in all of {steps:steps} beside {errors} in sum",
    "impossible_share": "{key} is {value} at step {step}",
    "signal_without_spread": "{count:steps}, the first is step {step}",
}

ADVICE: Mapping[str, str] = {
    "signal": "raise the temperature or the group size, or choose prompts that the model solves "
    "sometimes",
    "stored_groups": "train on stored groups whose candidates earn different rewards",
    "too_hard": "the reward is nearly always low: change the prompt, take easier prompts, or train "
    "with SFT first",
    "more_data": "the reward is nearly always high: more data or harder data, or stop here",
    "low_temperature": "the temperature is below 0.7, which is the likely cause",
    "raise_temperature": "raise the temperature",
    "change_prompt": "change the prompt: show the form that is wanted, or an example",
    "reweight_reward": "reweight the reward: give the parts that stand still, or fall, more weight",
    "max_tokens": "raise sampling.max_tokens, or teach the model to end its answers first",
    "abstentions": "read the reasons in the samples; correct the reward or raise its deadline",
    "gradient": "look for groups without signal, masked-out tokens or frozen parameters",
    "finite": "lower the learning rate, or train in fp32",
    "gap": "use one precision for both, and check that both render prompts and apply the "
    "temperature alike",
    "entropy": "raise clip_high, add an entropy or KL term, or stop here",
    "overlong": "many are cut at the limit: punish long completions (overlong), and look for "
    "repetition in the samples",
    "length": "read the longest samples: the reward may pay for length",
    "kl": "lower the learning rate, raise kl.coef, or go back to an earlier checkpoint",
    "renew_reference": "sample afresh more often (fewer epochs and minibatches, a lower learning "
    "rate), or start a new round from the best checkpoint",
    "read_rewarded": "read the best rewarded samples: the reward can be earned without the skill",
    "fallback": "read the answers that fell back; count a fallback as a failure in the reward",
    "endpoint": "read the errors; ask more slowly, or give calls more time",
    "speed": "look at the length of the completions, and at what else the machine does",
    "budget": "stop here, take fewer steps or shorter completions, or raise the budget on purpose",
    "loss_parts": "a term is missing from the log, or was logged before it was scaled",
    "fallback_contradiction": "count a fallback where it happens, and score it as a failure",
    "impossible_share": "look at what is divided by what",
    "signal_without_spread": "one of signal_share and reward_std is not what its name says",
}

ENGLISH: Mapping[str, Mapping[str, str]] = {
    "health": WHAT,
    "health_evidence": EVIDENCE,
    "health_advice": ADVICE,
}
"""In the sections of a page's catalogue."""
