"""Rewards of executions: correctness rules, and the report's own numbers come out as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import Message, Row
from assay.errors import InputError
from assay.labs.workflows.execution import (
    FAILED,
    Execution,
    OperatorCall,
    ScoreTerms,
    accuracy,
    net,
    solved,
)
from assay.tasks.helper_model import HelperAnswer
from tests.experiments.files import shipped

REPORT = shipped("workflows/report_003.py")
V1, V2, correct, weighted, levels = (
    getattr(REPORT, name) for name in ("V1", "V2", "correct", "weighted", "levels")
)
FAILURES = ("invalid program", "operator error", "timeout", "over budget")
share = st.floats(0, 0.49)
amount = st.floats(0, 1e6)


def row(kind: str = "math", gold: str = "42", entry_point: str = "") -> Row:
    extra = {"problem_type": kind, "entry_point": entry_point}
    return Row("a", (Message("user", "?"),), gold=gold, extra=extra)


def execution(outcome: str, cost: float | None = 0.0, tokens: int = 0, **fields) -> Execution:
    answer = HelperAnswer("", prompt_tokens=tokens, cost=cost)
    call = OperatorCall("Custom", {}, {}, "", [answer])
    return Execution(outcome, calls=(call,), **fields)  # type: ignore[arg-type]


@given(
    share,
    share,
    amount,
    st.integers(0, 10**9),
    st.floats(1e-9, 1e3),
    st.floats(1, 1e6),
    st.floats(0, 1, exclude_max=True),
)
def test_no_cost_and_no_length_makes_a_wrong_answer_worth_more_than_a_right_one(
    cost: float,
    length: float,
    spent: float,
    tokens: int,
    full_cost: float,
    full_tokens: float,
    near: float,
) -> None:
    if cost + length >= 0.5:
        with pytest.raises(InputError, match="outweigh"):
            ScoreTerms(cost, full_cost, length, full_tokens)
        return
    terms = ScoreTerms(cost, full_cost, length, full_tokens)
    dear = solved(execution("solved", spent, tokens), 1.0, row(), terms).value
    cheap = solved(execution("wrong", 0.0, 0), near, row(), terms).value
    assert dear is not None and cheap is not None and dear >= 0.5 > cheap >= 0
    for outcome in FAILURES:
        failed = solved(execution(outcome), None, row(), terms).value
        assert failed == FAILED < cheap


def test_the_terms_are_shares_of_the_score_that_grow_to_their_full_size() -> None:
    terms = ScoreTerms(0.1, 0.01, 0.2, 1000.0)
    found = solved(execution("solved", 0.005, 250), 1.0, row(), terms)
    assert found.value == pytest.approx(1 - 0.05 - 0.05)
    assert found.parts == pytest.approx({"correct": 1, "cost_term": -0.05, "length_term": -0.05})
    assert solved(execution("solved", 9.0, 10**6), 1.0, row(), terms).value == pytest.approx(0.7)
    assert found.outcome == "right" and found.facts["problem_type"] == "math"


def test_a_failed_executor_is_an_abstention_whatever_the_reward() -> None:
    failed = execution("executor failure", why="no answer: HTTP 500")
    for found in (
        solved(failed, None, row(), ScoreTerms()),
        accuracy(failed, None, row()),
        weighted(failed, None, row(), V1),
        levels(failed, None, row()),
    ):
        assert found.value is None and found.why == "no answer: HTTP 500"


@pytest.mark.parametrize(
    ("answer", "points"),
    [
        ("\\boxed{42}", 10),
        ("it is 42.00005", 10),
        ("42.05", 8),
        ("42.9", 5),
        ("43", 2),
        ("50", 2),
        ("52", -5),
        ("1,042", -5),
        ("none", -8),
    ],
)
def test_points_of_a_number_are_those_of_the_reports_code(answer: str, points: float) -> None:
    assert correct(row(), answer) == points


@given(amount, st.floats(0, 1), st.sampled_from([None, 0.0, 0.3, 1.0]), amount)
def test_net_is_the_score_minus_the_price_of_its_cost(
    price: float, spent: float, score: float | None, saved: float
) -> None:
    """Whoever asked first, and whatever the answer is worth; the negative control is price 0."""
    outcome = "invalid program" if score is None else ("solved" if score == 1 else "wrong")
    call = OperatorCall("Custom", {}, {}, answers=[HelperAnswer("", cost=spent, saved=saved)])
    ran = Execution(outcome, calls=(call,))
    worth = FAILED if score is None else score
    assert net(ran, score, row(), price).value == worth - price * (spent + saved)
    assert net(ran, score, row(), 0.0).value == worth
    assert net(ran, score, row(), price, failed=0.0).value == (score or 0.0) - price * (
        spent + saved
    )


def test_net_abstains_where_the_cost_is_not_known_or_nobody_is_to_blame() -> None:
    unknown = net(execution("solved", cost=None), 1.0, row(), 1.0)
    assert unknown.value is None and "price" in unknown.why
    assert net(execution("executor failure", why="HTTP 500"), None, row(), 1.0).value is None
    failed = net(execution("timeout", cost=0.5), None, row(), 1.0)
    assert failed.outcome == "timeout" and failed.value == FAILED - 0.5
