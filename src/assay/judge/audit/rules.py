"""All rules of the audit by name, and the function that asks them."""

from assay.data.reported.record import Reported
from assay.judge.audit import (
    arithmetic,
    averages,
    claims,
    counts,
    fairness,
    harmonic,
    noise,
    signal,
    trials,
)
from assay.judge.audit.flaw import Flaw, Rule

RULES: dict[str, Rule] = {
    "impossible granularity": arithmetic.impossible_granularity,
    "items score in parts": arithmetic.items_score_in_parts,
    "fraction of plausible": arithmetic.fraction_of_plausible,
    "not from counts": arithmetic.not_from_counts,
    "score not from counts": counts.score_not_from_counts,
    "failures left out": counts.failures_left_out,
    "running count fell": arithmetic.running_count_fell,
    "loss identity": arithmetic.loss_identity,
    "quotient": arithmetic.quotient,
    "wrong change": arithmetic.wrong_change,
    "mark not mean": arithmetic.mark_not_mean,
    "average not mean": averages.average_not_mean,
    "harmonic from counts": harmonic.harmonic_from_counts,
    "several factors": fairness.several_factors,
    "different data": fairness.different_data,
    "different items": counts.different_items,
    "label disagrees": fairness.label_disagrees,
    "two numbers": fairness.two_numbers,
    "same values": fairness.same_values,
    "never run": fairness.never_run,
    "inside noise": noise.inside_noise,
    "own test disagrees": noise.own_test_disagrees,
    "items unknown": noise.items_unknown,
    "claim without items": noise.claim_without_items,
    "difference inside noise": noise.difference_inside_noise,
    "unpaired": noise.unpaired,
    "repeats alike": noise.repeats_alike,
    "nested subsets": noise.nested_subsets,
    "few trials": trials.few_trials,
    "few items": trials.few_items,
    "rate inside noise": trials.rate_inside_noise,
    "cumulative as rate": trials.cumulative_as_rate,
    "extrapolation": trials.extrapolation,
    "limit not shown": trials.limit_not_shown,
    "best of many": trials.best_of_many,
    "no signal": signal.no_signal,
    "misread direction": claims.misread_direction,
    "cause without effect": claims.cause_without_effect,
    "effect without control": claims.effect_without_control,
    "left open": claims.left_open,
}

ORDER = {"error": 0, "warning": 1, "note": 2}


def audit(report: Reported) -> list[Flaw]:
    """What all rules find in a record: errors first, then warnings, then notes."""
    found = [flaw for rule in RULES.values() for flaw in rule(report)]
    return sorted(found, key=lambda flaw: ORDER[flaw.severity])
