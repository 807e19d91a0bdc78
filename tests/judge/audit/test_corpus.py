"""What the audit finds in records whose authors had not seen its rules: every planted fault, and an
error or a warning in no sound record."""

import tomllib
from pathlib import Path

import pytest

from assay.data.reported.read_reported import read_reported
from assay.judge.audit.rules import audit_all

CORPUS = Path(__file__).parent / "corpus"
CLASSES = {
    "impossible_score": {"impossible_granularity", "fraction_of_plausible"},
    "average_mismatch": {"mark_not_mean", "quotient"},
    "change_mismatch": {"wrong_change"},
    "contradiction": {"label_disagrees", "contradicted"},
    "several_factors": {"several_factors", "different_data"},
    "different_items": {"different_items"},
    "chosen_on_test": {"best_of_many", "chosen_on_test"},
    "noise_as_gain": {"inside_noise", "cells_inside_noise", "difference_inside_noise"},
    "no_effect_unproven": {"no_effect_not_shown", "difference_could_be_real"},
    "same_values": {"same_values", "mostly_same_values"},
    "wrong_direction": {"distance_misread", "policy_loss_read", "misread_direction"},
    "running_count_fell": {"running_count_fell", "running_rest_fell"},
    "cumulative_as_rate": {"cumulative_as_rate"},
    "extrapolation": {"forecast", "forecast_from_one"},
    "effect_without_control": {"effect_without_control", "never_run"},
}
"""Class of a planted fault -> the findings that name it."""
LOGS = [
    (file.parent / log["file"], [fault["class"] for fault in log["faults"]])
    for file in sorted(CORPUS.glob("*/answers.toml"))
    for log in tomllib.loads(file.read_text(encoding="utf-8"))["logs"]
]


@pytest.mark.parametrize(("file", "faults"), LOGS, ids=lambda each: getattr(each, "stem", None))
def test_planted_faults_are_found_and_sound_records_are_left_alone(file: Path, faults: list[str]):
    keys = {f.code for f in audit_all(read_reported(file).records) if f.severity != "note"}
    assert [fault for fault in faults if not CLASSES[fault] & keys] == []
    assert faults or not keys
