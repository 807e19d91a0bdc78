"""Health rules: each fires on its fault, and none on a healthy run."""

import math

import numpy as np
import pytest

from assay.judge.findings import Finding, worst_first
from assay.judge.health import HEALTH_RULES, health, reward_without_gain
from tests.judge.simulated import single_pass

HEALTHY = [
    {
        "stage": "rl",
        "step": step,
        "signal_share": 0.6,
        "truncated_share": 0.02,
        "abstained_share": 0.0,
        "grad_norm": 0.8,
        "rollout_gap_mean": 0.044,
        "rollout_gap_k3": 0.002,
        "entropy": 1.2 - 0.01 * step,
        "reward_mean": 0.2 + 0.02 * step + 0.01 * (step % 2),
        "skipped_steps": 0,
    }
    for step in range(20)
]


def with_fault(**fault: object) -> list[dict]:
    return [{**step, **(fault if step["step"] >= 5 else {})} for step in HEALTHY]


def test_a_healthy_run_has_no_findings():
    improving = [(0, single_pass([0] * 60)), (20, single_pass([1] * 30 + [0] * 30))]
    assert health(HEALTHY, improving) == []


def test_a_stage_that_records_none_of_the_metrics_has_no_findings():
    assert health([{"stage": "sft", "step": 1, "nll": 2.0}]) == []
    assert health([]) == []


@pytest.mark.parametrize(
    ("rule", "fault", "severity", "evidence"),
    [
        ("no_signal", {"signal_share": 0.0}, "error", "0.0%"),
        ("no_signal", {"signal_share": 0.05}, "warning", "5.0%"),
        ("truncated", {"truncated_share": 1.0}, "error", "100.0%"),
        ("truncated", {"truncated_share": 0.4}, "warning", "40.0%"),
        ("abstentions", {"abstained_share": 0.05}, "warning", "5.0%"),
        ("abstentions", {"abstained_share": 0.3}, "error", "30.0%"),
        ("zero_gradient", {"grad_norm": 0.0}, "error", "10 steps"),
        ("non_finite_gradient", {"grad_norm": math.inf}, "error", "15 of 20"),
        ("non_finite_gradient", {"grad_norm": None}, "error", "15 of 20"),
        ("non_finite_gradient", {"skipped_steps": 2}, "warning", "2 skipped"),
        ("rollout_gap", {"rollout_gap_mean": 0.2}, "warning", "0.200"),
        ("rollout_gap", {"rollout_gap_mean": 0.7}, "error", "k3 0.0020"),
        ("entropy_collapse", {"entropy": 0.05}, "warning", "1.200"),
    ],
)
def test_each_rule_fires_on_its_fault_alone(rule, fault, severity, evidence):
    metrics = with_fault(**fault)
    fired = {name: found for name, check in HEALTH_RULES.items() if (found := check(metrics))}
    assert list(fired) == [rule]
    assert fired[rule].severity == severity
    assert evidence in fired[rule].evidence
    assert fired[rule].fix


def test_a_fault_that_has_passed_is_not_reported_as_present():
    metrics = [{**step, "signal_share": 0.0 if step["step"] < 8 else 0.6} for step in HEALTHY]
    assert health(metrics) == []


def test_a_reward_that_rises_while_dev_falls_is_an_error():
    falling = [(0, single_pass([1] * 30 + [0] * 30)), (20, single_pass([1] * 10 + [0] * 50))]
    found = reward_without_gain(HEALTHY, falling)
    assert found is not None and found.severity == "error"
    assert "0.500 at step 0 to 0.167 at step 20" in found.evidence


def test_a_dev_score_that_falls_within_noise_is_no_finding():
    noisy = [(0, single_pass([1] * 30 + [0] * 30)), (20, single_pass([1] * 28 + [0] * 32))]
    assert reward_without_gain(HEALTHY, noisy) is None


def test_a_flat_reward_with_a_falling_dev_score_is_another_matter():
    rng = np.random.default_rng(0)
    flat = [{"reward_mean": float(r)} for r in rng.normal(0.3, 0.05, 20)]
    falling = [(0, single_pass([1] * 30 + [0] * 30)), (20, single_pass([1] * 10 + [0] * 50))]
    assert reward_without_gain(flat, falling) is None


def test_findings_are_sorted_with_errors_first():
    found = [Finding(s, s, "", "") for s in ("note", "error", "warning", "error")]
    assert [f.severity for f in worst_first(found)] == ["error", "error", "warning", "note"]
