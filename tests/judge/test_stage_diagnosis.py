"""Health rules: each fires on its fault, none on a healthy run; advice depends on what is seen."""

import numpy as np
import pytest

from assay.errors import Finding
from assay.judge.health_checks import CHECKS, Evidence, Spending, check_health
from assay.judge.health_rules import BONUSES, IDLE, PENALTIES, RULES, STORED_ADVICE
from assay.judge.intervals import Interval
from assay.judge.selection import Forecast
from assay.pages.words import words
from tests.english import english
from tests.judge.simulated import single_pass

RISING_DEV = [(0, single_pass([0] * 60)), (20, single_pass([1] * 30 + [0] * 30))]
FALLING_DEV = [
    (0, single_pass([1] * 30 + [0] * 30)),
    (20, single_pass([1] * 10 + [0] * 50)),
]


def healthy(seed: int = 0, steps: int = 30) -> list[dict]:
    """A stage in which everything moves a little and nothing is wrong."""
    draw = np.random.default_rng(seed)

    def share(middle: float) -> float:
        return float(np.clip(draw.normal(middle, 0.01), 0, 1))

    return [
        {
            "stage": "rl",
            "step": step,
            "seconds": 20 + draw.random(),
            "completion_tokens": 2000 + 100 * draw.random(),
            "signal_share": share(0.6),
            "truncated_share": share(0.02),
            "abstained_share": 0.0,
            "repeated_share": share(0.1),
            "grad_norm": 0.8 + 0.1 * draw.random(),
            "rollout_gap_mean": 0.044,
            "rollout_gap_k3": 0.002,
            "kl": 0.001 * step,
            "clip_low_share": 0.001,
            "clip_high_share": 0.002,
            "length_mean": 40 + draw.normal(),
            "entropy": 1.2 - 0.01 * step,
            "reward_mean": 0.2 + 0.015 * step + 0.02 * draw.normal(),
            "format_share": share(0.95),
            "fallback_share": share(0.01),
            "api_error_share": share(0.02),
            "skipped_steps": 0,
        }
        for step in range(1, steps + 1)
    ]


def with_fault(**fault: object) -> list[dict]:
    """Values, or functions of the step, that go wrong after step 10."""
    return [
        {**line, **{k: v(line["step"]) if callable(v) else v for k, v in fault.items()}}
        if line["step"] > 10
        else line
        for line in healthy()
    ]


PARTS = {BONUSES: ["part/bonus"], PENALTIES: ["part/penalty"]}


def fired(metrics: list[dict], dev=(), spending=()) -> dict[str, Finding]:
    found = check_health(Evidence(metrics, dev, spending, PARTS)).findings
    return {each.code: each for each in found}


@pytest.mark.parametrize("seed", range(25))
def test_a_healthy_run_has_no_findings(seed):
    assert fired(healthy(seed), RISING_DEV) == {}


FAULTS = [
    ("no_signal", {"signal_share": 0.0}, "error", "0.0%"),
    ("truncated", {"truncated_share": 1.0}, "error", "100.0%"),
    ("abstentions", {"abstained_share": 0.3}, "error", "30.0%"),
    ("zero_gradient", {"grad_norm": 0.0}, "error", "10 step"),
    ("non_finite_gradient", {"grad_norm": None}, "error", "20 of 30"),
    ("non_finite_gradient", {"skipped_steps": 2}, "warning", "2 updates skipped"),
    ("rollout_gap", {"rollout_gap_mean": 0.7}, "error", "limit 0.500"),
    ("entropy_collapse", {"entropy": 0.05}, "warning", "0.044 of it left"),
    ("length_explosion", {"length_mean": 90.0}, "warning", "times as much"),
    ("kl_blow_up", {"kl": 0.3}, "warning", "0.300"),
    ("stale_reference", {"clip_high_share": 0.3}, "warning", "30.1%"),
    ("repeated_samples", {"repeated_share": 0.8}, "warning", "80.0%"),
    ("alike_programs", {"different_trees_share": 0.05}, "warning", "5.0%"),
    ("format_falling", {"format_share": lambda s: 0.95 - 0.003 * s}, "warning", "a step"),
    ("format_falling", {"format_share": lambda s: 0.95 - 0.03 * s}, "error", "limit 10.0%"),
    ("stagnant_reward", {"reward_mean": lambda s: 0.4 + 0.001 * (s % 3)}, "warning", "less than"),
    ("fallbacks", {"fallback_share": 0.1}, "warning", "10.0%"),
    ("rising_api_errors", {"api_error_share": lambda s: 0.01 * (s - 10)}, "error", "a step"),
    ("falling_speed", {"seconds": 200.0}, "error", "limit 0.25"),
    ("growing_memory", {"peak_memory_mb": lambda s: 4000 + 100 * s}, "warning", "a step"),
    ("no_bonus", {"bonus_to_advantage": 5e-4, "share_without_cot": 1.0}, "error", "5 steps"),
    ("no_kl", {"kl": 0.0}, "error", "kl: exactly 0 in all 5 steps"),
    ("no_entropy_bonus", {"entropy_bonus": 0.0}, "error", "exactly 0"),
    ("no_entropy_cut", {"entropy_cut_share": 0.0}, "error", "exactly 0"),
    ("no_punishment", {"part/overlong": 0.0}, "error", "exactly 0"),
    ("no_teaching", {"divergence": 0.0}, "error", "exactly 0"),
    ("no_reward_part", {"part/bonus": 0.0}, "error", "part/bonus: exactly 0 in all 20 steps"),
    ("no_raised_clip", {"clip_raised_share": 0.0}, "warning", "all 20 steps"),
    ("no_curriculum", {"left_out_share": 0.0}, "warning", "all 20 steps"),
    ("loss_turned", {"validation_loss": lambda s: 2 + 0.1 * (s - 10)}, "note", "rises in between"),
    ("kl_returns", {"kl": lambda s: 0.05 - 0.001 * s}, "note", "a step"),
]


@pytest.mark.parametrize(("rule", "fault", "severity", "evidence"), FAULTS)
def test_each_rule_fires_on_its_fault_alone(rule, fault, severity, evidence):
    found = fired(with_fault(**fault))
    assert list(found) == [rule]
    said = english(found[rule])
    assert said.severity == severity
    assert evidence in said.evidence
    assert said.what and said.fix


NOTED = [
    {"groups_replaced": 0.0},
    {"masked_share": 0.0},
    {"part/penalty": 0.0},
    {"part/overlong": 0.0, "truncated_share": 0.0},
    {"bonus_to_advantage": 0.0, "signal_share": 0.0},
]


@pytest.mark.parametrize("fault", NOTED, ids=lambda fault: next(iter(fault)))
def test_a_part_that_had_no_occasion_to_act_is_a_note_and_no_fault(fault):
    health = check_health(Evidence([{**line, **fault} for line in healthy()], parts=PARTS))
    (said,) = (english(each) for each in health.findings if each.code == "no_occasion")
    assert said.severity == "note" and said.evidence.startswith(f"{next(iter(fault))}: ")
    assert "0 in all 30 steps" in said.evidence


def test_a_part_that_did_nothing_is_told_after_some_steps_or_where_the_stage_has_ended():
    idle = {"bonus_to_advantage": 0.0, "entropy_bonus": 0.0, "part/bonus": 0.0}
    short = [{**line, **idle} for line in healthy(0, IDLE - 1)]
    rules = {"no_bonus", "no_entropy_bonus", "no_reward_part"}
    assert not rules & fired(short).keys()
    ended = check_health(Evidence(short, parts=PARTS, ended=True))
    assert {each.code for each in ended.findings} == rules
    assert rules <= fired([{**line, **idle} for line in healthy(0, IDLE)]).keys()


def test_a_kl_of_nothing_is_a_fault_only_after_the_weights_moved():
    """The first step compares the start with itself, and so does every step without an update."""
    first = [{**line, "kl": 0.0} for line in healthy(0, 1)]
    assert "no_kl" not in {each.code for each in check_health(Evidence(first, ended=True)).findings}
    still = [{**line, "kl": 0.0, "grad_norm": 0.0} for line in healthy()]
    assert "no_kl" not in fired(still)
    frozen = [{**line, "kl": 0.0, "learning_rate": 0.0} for line in healthy()]
    assert "no_kl" not in fired(frozen)
    moved = [{**line, "kl": 0.0} for line in healthy(0, IDLE + 1)]
    assert set(fired(moved)) == {"no_kl"} and fired(moved[:-1]) == {}


def test_every_rule_is_shown_to_fire():
    shown = {rule for rule, *_ in FAULTS}
    apart = {"rising_fallbacks", "over_budget", "kl_at_start"}
    apart |= {name for name, rule in RULES.items() if rule.warning is rule.error is None}
    assert shown | apart == set(RULES)
    assert {rule.kind for rule in RULES.values()} == set(CHECKS)


def test_what_to_do_otherwise_is_a_note():
    start, worse = FALLING_DEV[0][1], FALLING_DEV[1][1]
    looks = [(0, worse), (10, start), (20, worse)]
    assert "−33.3 (" in english(fired(healthy(), looks)["dev_fell"]).evidence
    fell, rose = {"a": (start, worse), "b": (start, start)}, {"a": (worse, start)}
    kept = check_health(Evidence(healthy(), reached=fell)).findings
    assert [each.code for each in kept] == ["keep_start", "keep_start"]
    assert not check_health(Evidence(healthy(), reached=fell | rose)).findings
    assert "kl_at_start" in fired([{**line, "kl": 0.02} for line in healthy()])


def test_a_reward_that_rises_while_dev_falls_is_an_error():
    said = english(fired(healthy(), FALLING_DEV)["reward_without_gain"])
    assert said.severity == "error"
    assert "0.500 at step 0 to 0.167 at step 20" in said.evidence


def budget(spent: float, low: float, high: float) -> Spending:
    forecast = Forecast(30, (low + high) / 2, Interval(low, high, ""), 10)
    return Spending("cost", spent, 2.5, forecast)


@pytest.mark.parametrize(
    ("spent", "low", "high", "severity"),
    [(3.0, 3.0, 4.0, "error"), (1.0, 2.6, 3.0, "warning"), (1.0, 2.0, 3.0, None)],
)
def test_a_budget_is_judged_by_what_is_spent_and_by_the_lower_limit_of_the_forecast(
    spent, low, high, severity
):
    found = fired(healthy(), (), [budget(spent, low, high)])
    assert (found["over_budget"].severity if found else None) == severity
    if severity == "warning":
        assert "2.8 (2.6 to 3) by step 30" in english(found["over_budget"]).evidence


@pytest.mark.parametrize(
    ("reward", "entropy", "advice"),
    [
        (0.05, 1.0, "too_hard"),
        (0.95, 1.0, "more_data"),
        (0.5, 0.1, "raise_temperature"),
        (0.5, 1.0, "signal"),
    ],
)
def test_advice_depends_on_what_else_the_steps_show(reward, entropy, advice):
    steps = [
        {"step": s, "signal_share": 0.0, "reward_mean": reward, "entropy": entropy}
        for s in range(1, 6)
    ]
    found = fired(steps)["no_signal"]
    assert found.values["advice"][0] == advice
    assert set(found.values["advice"]) == {advice, "signal"}


def test_groups_without_signal_are_named_before_what_a_learning_rate_mends():
    codes = [*fired(with_fault(kl=3.0, grad_norm=0.0, signal_share=0.0))]
    assert codes[0] == "no_signal" and "kl_blow_up" in codes


def test_every_rule_and_advice_has_words():
    keys = {advice.key for rule in RULES.values() for advice in rule.advice}
    keys |= {key for more in STORED_ADVICE.values() for key in more["advice"]}
    assert keys <= words().sections["fix"].keys()
    assert RULES.keys() <= words().sections["finding"].keys()
