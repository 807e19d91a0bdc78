"""Every health rule has a state with the figure behind it; findings are the states not ok."""

from collections.abc import Sequence

import pytest

from assay.judge.health_checks import RuleState, Spending, check_health
from assay.judge.health_rules import RULES
from assay.judge.scores import item_scores
from assay.judge.trends import forecast_total


def lines(steps: int, **metrics: object) -> list[dict[str, object]]:
    return [
        {"step": step, **{k: v(step) if callable(v) else v for k, v in metrics.items()}}
        for step in range(1, steps + 1)
    ]


def state(rule: str, found: Sequence[RuleState]) -> RuleState:
    (one,) = [each for each in found if each.rule == rule]
    return one


def test_every_rule_is_told_once_where_nothing_is_recorded():
    found = check_health([]).states
    assert [each.rule for each in found] == list(RULES)
    assert {each.state for each in found} == {"not recorded"}


def test_a_rule_that_finds_nothing_has_its_figure():
    found = state("truncated", check_health(lines(12, truncated_share=lambda s: 0.1)).states)
    assert found.state == "ok" and found.reading is not None
    assert found.reading.value == pytest.approx(0.1)
    assert found.reading.figures["value"] == "10.0%" and found.reading.figures["limit"] == "30.0%"


@pytest.mark.parametrize(("share", "expected"), [(0.29, "ok"), (0.3, "warning"), (0.96, "error")])
def test_the_state_follows_the_thresholds(share, expected):
    found = state("truncated", check_health(lines(3, truncated_share=share)).states)
    assert found.state == expected
    assert found.reading is not None and found.reading.value == pytest.approx(share)


def test_a_trend_of_few_steps_is_no_state_of_health():
    found = check_health(lines(5, format_share=0.9, reward_mean=0.5)).states
    assert state("format_falling", found).state == "too few steps"
    assert state("stagnant_reward", found).state == "too few steps"
    longer = check_health(lines(20, format_share=0.9, reward_mean=lambda s: s / 20)).states
    assert state("format_falling", longer).state == "ok"
    rising = state("stagnant_reward", longer)
    assert rising.state == "ok" and rising.reading is not None
    assert rising.reading.evidence == "rising"


def test_values_that_are_not_finite_are_not_healthy():
    found = check_health(lines(12, kl=None)).states
    assert state("kl_blow_up", found).state == "not finite"


def test_a_moving_gradient_is_ok_and_says_what_it_is():
    found = state("zero_gradient", check_health(lines(12, grad_norm=lambda s: s / 4)).states)
    assert found.state == "ok" and found.reading is not None
    assert found.reading.figures["value"] == "3"


def test_a_budget_has_the_share_that_is_spent_or_foretold():
    ahead = forecast_total([1.0, 1.1, 0.9, 1.0], 6, 10)
    assert ahead is not None
    spending = [Spending("cost", 4.0, 20.0, ahead), Spending("seconds", 9.0, 8.0, None)]
    cost, seconds = (s for s in check_health([], (), spending).states if s.rule == "over_budget")
    assert (cost.metric, cost.state, seconds.state) == ("cost", "ok", "error")
    assert cost.reading is not None
    assert cost.reading.value == pytest.approx(ahead.interval.low / 20)


def test_dev_scores_that_hold_are_ok():
    def scores(right: int):
        return item_scores([(f"i{n}", 0, float(n < right)) for n in range(40)], None, (0.0, 1.0))

    rising = lines(12, reward_mean=lambda s: 0.1 * s)
    held = state(
        "reward_without_gain", check_health(rising, [(1, scores(20)), (9, scores(21))]).states
    )
    fallen = state(
        "reward_without_gain", check_health(rising, [(1, scores(30)), (9, scores(5))]).states
    )
    assert (held.state, fallen.state) == ("ok", "error")
    assert state("reward_without_gain", check_health(rising).states).state == "not recorded"
