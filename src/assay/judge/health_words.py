"""The English words of the health rules: what was found, its evidence, and what to do.

Pages in another language bring the same keys. Gaps in braces are filled by `stage_diagnosis`.
"""

from collections.abc import Mapping

WHAT: Mapping[str, str] = {
    "no_signal": "almost no group carries signal",
    "truncated": "completions are cut at the token limit",
    "abstentions": "rewards abstain",
    "zero_gradient": "nothing is being learned",
    "non_finite_gradient": "gradients were not finite",
    "rollout_gap": "rollout and training disagree about log-probs",
    "entropy_collapse": "entropy has collapsed",
    "length_explosion": "completions grow without end",
    "kl_blow_up": "the policy runs away from its reference",
    "stale_reference": "updates work against a stale policy",
    "repeated_samples": "the samples of a prompt repeat each other",
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
    "broken": "{metric}: not finite in {broken} of {steps:steps}, {skipped} updates skipped",
    "spent": "{metric}: {spent} spent of {budget}",
    "will_spend": "{metric}: {spent} spent of {budget}; {forecast} ({low} to {high}) by step {at}, "
    "if the remaining steps cost what the last {steps} cost",
    "dev": "reward from {start} to {now}; dev score {before} at step {first} to {after} at step "
    "{last}, p = {p}",
    "contradiction": "{evidence}",
}

ADVICE: Mapping[str, str] = {
    "signal": "raise the temperature or the group size, or choose prompts that the model solves "
    "sometimes",
    "too_hard": "the reward is nearly always low: change the prompt, take easier prompts, or train "
    "with SFT first",
    "more_data": "the reward is nearly always high: more data or harder data, or stop here",
    "raise_temperature": "raise the temperature",
    "change_prompt": "change the prompt: show the form that is wanted, or an example",
    "reweight_reward": "reweight the reward: give the parts that stand still, or fall, more weight",
    "max_tokens": "raise sampling.max_tokens, or teach the model to end its answers first",
    "abstentions": "read the reasons in the samples; mend the reward or raise its deadline",
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
