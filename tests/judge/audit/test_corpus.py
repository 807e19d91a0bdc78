"""What the audit finds in logs whose authors had not seen its rules, and what it finds for nothing.

A fault counts as found when the audit gives an error or a warning of its class. An error or a
warning of no planted class is a false alarm, in sound logs and in faulty ones.
"""

import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assay.data.reported.read_reported import read_reported
from assay.errors import Finding, InputError
from assay.judge.audit.rules import audit_all

CORPUS = Path(__file__).parent / "corpus"
CLASSES: dict[str, set[str]] = {
    "impossible_score": {
        "impossible_granularity",
        "fraction_of_plausible",
        "no_count_gives_it",
        "score_not_from_counts",
    },
    "count_mismatch": {"not_from_counts", "no_count_gives_it", "score_not_from_counts"},
    "average_mismatch": {"average_not_mean", "mark_not_mean", "quotient"},
    "change_mismatch": {"wrong_change"},
    "contradiction": {"label_disagrees", "two_numbers", "contradicted"},
    "several_factors": {"several_factors", "different_data"},
    "different_items": {"different_items"},
    "dropped_failures": {"failures_left_out"},
    "missing_as_zero": {"not_run_as_zero"},
    "chosen_on_test": {"best_of_many", "chosen_on_test"},
    "noise_as_gain": {
        "inside_noise",
        "cells_inside_noise",
        "difference_inside_noise",
        "rate_inside_noise",
        "own_test_disagrees",
    },
    "no_effect_unproven": {"no_effect_not_shown", "difference_could_be_real"},
    "same_values": {"same_values", "mostly_same_values"},
    "no_signal": {"groups_without_signal", "signal_is_zero"},
    "wrong_direction": {
        "distance_misread",
        "policy_loss_read",
        "misread_direction",
    },
    "running_count_fell": {"running_count_fell", "running_rest_fell"},
    "cumulative_as_rate": {"cumulative_as_rate"},
    "extrapolation": {"forecast", "forecast_from_one"},
    "effect_without_control": {"effect_without_control", "never_run"},
}
"""Class of a planted fault -> the findings that name it."""
RECALL = {".md": 0.3, ".csv": 0.69, ".toml": 1.0}
"""Shares of the faults of each format that are found at least; prose is not read."""
MOST_ALARMS = 0
"""Sound logs, of 36, in which something is found."""


@dataclass(frozen=True, slots=True)
class Log:
    """One log of the corpus and what is known of it."""

    file: Path
    faults: tuple[str, ...]
    """Classes of the planted faults."""

    @property
    def held_out(self) -> bool:
        """Whether nobody looked at it while readers and rules were made better."""
        return int(self.file.name[:2]) % 2 == 0


@cache
def logs() -> tuple[Log, ...]:
    found = []
    for answers in sorted(CORPUS.glob("*/answers.toml")):
        for log in tomllib.loads(answers.read_text(encoding="utf-8"))["logs"]:
            classes = tuple(fault["class"] for fault in log["faults"])
            found.append(Log(answers.parent / log["file"], classes))
    return tuple(found)


@cache
def alarms(file: Path) -> tuple[Finding, ...]:
    """Errors and warnings; none where the log holds nothing that could be judged."""
    try:
        found = audit_all(read_reported(file).records)
    except InputError:
        return ()
    return tuple(flaw for flaw in found if flaw.severity != "note")


def count(chosen: Callable[[Log], bool]) -> tuple[Counter[str], Counter[str], list[str]]:
    """Faults found and planted by format, and what was found for nothing in sound logs."""
    found, planted, false = Counter(), Counter(), []
    for log in filter(chosen, logs()):
        keys = {flaw.code for flaw in alarms(log.file)}
        planted[log.file.suffix] += len(log.faults)
        found[log.file.suffix] += sum(bool(CLASSES[fault] & keys) for fault in log.faults)
        if not log.faults and keys:
            false.append(f"{log.file.relative_to(CORPUS)}: {', '.join(sorted(keys))}")
    return found, planted, false


def test_the_corpus_has_thirty_faulty_and_thirty_sound_logs_in_three_formats_and_two_languages():
    faulty = [log for log in logs() if log.faults]
    assert len(faulty) >= 30
    assert len(logs()) - len(faulty) >= 30
    for some in (faulty, [log for log in logs() if not log.faults]):
        kinds = {(log.file.suffix, log.file.parts[-3]) for log in some}
        assert len(kinds) == 6
    assert {fault for log in logs() for fault in log.faults} == CLASSES.keys()
    assert {str(log.file) for log in logs()} == {
        str(file) for file in CORPUS.glob("*/*/*") if file.is_file()
    }


def test_recall_and_false_alarms_are_at_least_as_good_as_docs_audit_says(
    record_property: Callable[[str, object], None],
):
    for name, chosen in (
        ("looked at", lambda log: not log.held_out),
        ("held out", lambda log: log.held_out),
        ("all", lambda log: True),
    ):
        found, planted, false = count(chosen)
        shares = ", ".join(f"{each} {found[each]} of {planted[each]}" for each in RECALL)
        sound = sum(not log.faults for log in filter(chosen, logs()))
        record_property(
            "shown",
            f"audit, logs {name}: faults found {shares}, in all {found.total()} of "
            f"{planted.total()}; false alarms in {len(false)} of {sound} sound logs {false or ''}",
        )
    for each, least in RECALL.items():
        assert found[each] / planted[each] >= least, each
    assert len(false) <= MOST_ALARMS, false
