"""Registers all rules of the audit by name, and applies them."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from assay.data.reported.reported_record import Reported
from assay.errors import Finding, worst_first
from assay.judge.audit import arithmetic, claims, trials
from assay.judge.audit.cells import Rule

RULES: tuple[Rule, ...] = (
    arithmetic.impossible_scores,
    arithmetic.not_from_counts,
    arithmetic.score_not_from_counts,
    arithmetic.running_count_fell,
    arithmetic.loss_identity,
    arithmetic.quotient,
    arithmetic.wrong_change,
    arithmetic.mark_not_mean,
    arithmetic.average_not_mean,
    arithmetic.harmonic_from_counts,
    claims.not_comparable,
    claims.label_disagrees,
    claims.two_numbers,
    claims.same_values,
    claims.never_run,
    claims.inside_noise,
    claims.own_test_disagrees,
    claims.difference_inside_noise,
    claims.unpaired,
    claims.repeats_alike,
    claims.nested_subsets,
    trials.few_trials,
    trials.few_items,
    trials.rate_inside_noise,
    trials.cumulative_as_rate,
    trials.extrapolation,
    trials.limit_not_shown,
    trials.best_of_many,
    claims.misread_direction,
    claims.cause_without_effect,
    claims.effect_without_control,
    claims.left_open,
)


def audit(report: Reported) -> list[Finding]:
    """The findings of all rules in a record: errors first, then warnings, then notes.

    Without a number of items or a count nothing is an error: the figures may be of another kind.
    """
    found = [flaw for rule in RULES for flaw in rule(report)]
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
