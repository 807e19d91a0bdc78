"""Every health rule has a state with the figure behind it; findings are the states not ok."""

from collections.abc import Sequence

from assay.judge.health_checks import Evidence, RuleState, check_health
from assay.judge.health_rules import RULES


def lines(steps: int, **metrics: object) -> list[dict[str, object]]:
    return [
        {"step": step, **{k: v(step) if callable(v) else v for k, v in metrics.items()}}
        for step in range(1, steps + 1)
    ]


def state(rule: str, found: Sequence[RuleState]) -> RuleState:
    (one,) = [each for each in found if each.rule == rule]
    return one


def test_every_rule_is_told_once_where_nothing_is_recorded():
    found = check_health(Evidence([])).states
    assert [each.rule for each in found] == list(RULES)
    assert {each.state for each in found} == {"not recorded"}


def test_a_trend_of_few_steps_is_no_state_of_health():
    found = check_health(Evidence(lines(5, format_share=0.9, reward_mean=0.5))).states
    assert state("format_falling", found).state == "too few steps"
    assert state("stagnant_reward", found).state == "too few steps"
    longer = check_health(
        Evidence(lines(20, format_share=0.9, reward_mean=lambda s: s / 20))
    ).states
    assert state("format_falling", longer).state == "ok"
    rising = state("stagnant_reward", longer)
    assert rising.state == "ok" and rising.reading is not None
    assert rising.reading.evidence == "rising"
