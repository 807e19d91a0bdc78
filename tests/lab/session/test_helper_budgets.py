"""Budgets of a helper model: no order of calls spends more, and everybody pays for their own."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.lab.models.metering import HelperBudgets
from assay.runs.cost_ledger import LedgerCall
from assay.tasks.helper_model import BudgetScope, Caller, OverBudget

ONE = Caller("rl", 1, "p1", "0")
LIMITS: dict[BudgetScope, int] = {"step": 200, "run": 300}

STEP = st.tuples(
    st.sampled_from([(s, p) for s in (1, 2, 3) for p in ("p1", "p2")]),
    st.integers(0, 70),
    st.floats(0, 1),
    st.booleans(),
)


@given(st.lists(STEP, max_size=60))
def test_no_order_of_reservations_spends_more_than_a_limit(steps):
    budgets = HelperBudgets("m", LIMITS)  # type: ignore[arg-type]
    open_: list[tuple[Caller, int, int]] = []
    worst: dict[object, int] = {}

    def add(caller: Caller, amount: int) -> None:
        for key in ("run", caller.step):
            worst[key] = worst.get(key, 0) + amount

    for (step, problem), amount, share, ends in steps:
        caller = Caller("rl", step, problem, "0")
        try:
            budgets.reserve(caller, amount)
        except OverBudget:
            pass
        else:
            open_.append((caller, amount, round(amount * share)))
            add(caller, amount)
        if ends and open_:
            caller, reserved, spent = open_.pop(0)
            budgets.settle(caller, reserved, spent)
            add(caller, spent - reserved)
        for key, amount in worst.items():
            assert amount <= LIMITS["run" if key == "run" else "step"]


@pytest.mark.parametrize("scope", LIMITS)
def test_a_limit_is_reached_to_the_last_unit_and_refuses_the_next(scope):
    budgets = HelperBudgets("m", {scope: LIMITS[scope]})
    budgets.reserve(ONE, LIMITS[scope])
    with pytest.raises(OverBudget, match=rf"^model\.m\.budget\.{scope}: "):
        budgets.reserve(ONE, 1)


def test_steps_and_evaluations_have_budgets_of_their_own():
    budgets = HelperBudgets("m", {"step": 20})
    for completion in ("0", "1"):
        budgets.reserve(Caller("rl", 1, "p1", completion), 10)
    with pytest.raises(OverBudget, match="step"):
        budgets.reserve(Caller("rl", 1, "p1", "2"), 1)
    budgets.reserve(Caller("rl", 2, "p1", "2"), 10)
    budgets.reserve(Caller("dev", 1, "p1", "2"), 10)


def test_earlier_sessions_count_on_run_and_step():
    budgets = HelperBudgets("m", {"step": 100, "run": 150})
    earlier = LedgerCall("", "m", "openai:m", stage="rl", problem="p1", completion="0")
    budgets.restart(
        [
            replace(earlier, step=1, cost=60, uncertain=30),
            replace(earlier, step=2, cost=None, uncertain=20),
            replace(earlier, step=1, model="other", cost=10**6),
        ]
    )
    budgets.reserve(ONE, 10)
    with pytest.raises(OverBudget, match="step"):
        budgets.reserve(ONE, 1)
    budgets.reserve(Caller("rl", 3, "p1", "0"), 30)
    with pytest.raises(OverBudget, match="run"):
        budgets.reserve(Caller("rl", 4, "p2", "0"), 1)
