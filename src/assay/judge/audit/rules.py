"""Registers all rules of the audit by name, and applies them."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from assay.data.reported.reported_record import Reported
from assay.errors import Finding, worst_first
from assay.judge.audit import arithmetic, comparison_rules, counts, noise, trials
from assay.judge.audit.cells import Rule

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
    "average not mean": arithmetic.average_not_mean,
    "harmonic from counts": counts.harmonic_from_counts,
    "several factors": comparison_rules.several_factors,
    "different data": comparison_rules.different_data,
    "different items": counts.different_items,
    "label disagrees": comparison_rules.label_disagrees,
    "two numbers": comparison_rules.two_numbers,
    "same values": comparison_rules.same_values,
    "never run": comparison_rules.never_run,
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
    "no signal": trials.no_signal,
    "misread direction": comparison_rules.misread_direction,
    "cause without effect": comparison_rules.cause_without_effect,
    "effect without control": comparison_rules.effect_without_control,
    "left open": comparison_rules.left_open,
}


def audit(report: Reported) -> list[Finding]:
    """The findings of all rules in a record: errors first, then warnings, then notes.

    Without a number of items or a count nothing is an error: the figures may be of another kind.
    """
    found = [flaw for rule in RULES.values() for flaw in rule(report)]
    if not counted(report):
        found = [replace(f, severity="warning") if f.severity == "error" else f for f in found]
    return worst_first(found)


def counted(report: Reported) -> bool:
    """Whether a record gives any number of items or any count."""
    runs = any(run.items or run.right for run in report.runs)
    readings = any(m.counts or m.totals or m.meaning == "count" for m in report.metrics)
    drawn = any(comparison.items for comparison in report.comparisons)
    return bool(report.scoring.items or runs or readings or drawn)


def audit_all(records: Iterable[Reported]) -> list[Finding]:
    """The findings of all tables of a file; a note on a whole table is given once."""
    found = list(chain.from_iterable(map(audit, records)))
    whole = [
        (f.code, f.values["about"]) if f.values["line"] is None and f.severity == "note" else i
        for i, f in enumerate(found)
    ]
    once = [flaw for i, flaw in enumerate(found) if whole[i] not in whole[:i]]
    return worst_first(once)
