"""A metered helper model: what each call cost is recorded, bounded, and paid once."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assay.data.row import Message
from assay.errors import InputError
from assay.experiment.helper_tables import HelperSpec
from assay.lab.models.helper_models import HelperModels
from assay.lab.models.metering import most_tokens
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.endpoint import client
from assay.runs.cost_ledger import CostLedger, LedgerUnusable, read_calls
from assay.tasks.helper_model import Caller, HelperModel, OverBudget
from tests.rollout.engines.endpoint.fault_server import FaultServer, fault_server
from tests.scripted_helper import questions

GREEDY, DRAWN = Sampling(0.0, 8), Sampling(1.0, 8)
PRICED = {"price": {"prompt": 1000.0, "completion": 10000.0}}
ANSWERED = 2 * 1_000_000 + 3 * 10_000_000
"""Nano-units of a question of two words and the server's three tokens."""
MOST = 8 * 10_000_000
"""Of `max_tokens`; what the prompt adds is `most_tokens`."""


@pytest.fixture(autouse=True)
def without_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.001)


def helpers_at(server: FaultServer, folder: Path, **table: object) -> HelperModels:
    values = {"source": "openai:m", "endpoint": server.url, "timeout": 1.0, "deadline": 9.0}
    spec = HelperSpec.model_validate({**values, **PRICED, **table})
    helpers = HelperModels({"executor": spec}, folder, None)  # type: ignore[arg-type]
    helpers.record_in(folder)
    return helpers


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """One that always answers."""
    with fault_server(FaultServer(lambda n: "answer")) as found:
        yield found


def said(text: str = "some question") -> tuple[Message, ...]:
    return (Message("user", text),)


def key(sample: int = 0) -> SampleKey:
    return SampleKey(0, "row", sample)


def reserved() -> int:
    return most_tokens(said()) * 1_000_000 + MOST


def ask(helper: HelperModel, text: str = "some question", sampling: Sampling = DRAWN):
    return helper.answer(questions([said(text)], sampling, [key()]))[0]


def rows(folder: Path, *names: str) -> list[tuple]:
    return [tuple(getattr(call, name) for name in names) for call in read_calls(folder)]


def test_an_answer_and_its_row_say_what_it_cost_and_for_whom(tmp_path):
    with fault_server(FaultServer(lambda n: "later" if n == 0 else "answer")) as server:
        helpers = helpers_at(server, tmp_path)
        helpers.stage("rl", 4)
        answer = ask(helpers["executor"].called_by(Caller("", 0, "p", "4/p#1", "Custom")))
    assert answer.cost == ANSWERED / 1e9 and not answer.remembered
    (call,) = read_calls(tmp_path)
    assert (call.stage, call.step, call.problem, call.completion) == ("rl", 4, "p", "4/p#1")
    assert (call.model, call.source, call.operator) == ("executor", "openai:m", "Custom")
    assert (call.status, call.attempts, call.cost, call.uncertain) == ("answered", 2, ANSWERED, 0)
    assert (call.prompt_tokens, call.completion_tokens) == (2, 3)
    assert (call.prompt_price, call.completion_price) == (10**12, 10**13)
    assert call.seconds > 0 and call.at.startswith(f"{datetime.now(UTC):%Y}")


@pytest.mark.parametrize("fault", ["silent", "truncated", "cut"])
def test_a_lost_attempt_counts_beside_the_answer_and_does_not_change_its_cost(tmp_path, fault):
    with fault_server(FaultServer(lambda n: "answer" if n else fault)) as server:
        answer = ask(helpers_at(server, tmp_path)["executor"])
    assert answer.cost == ANSWERED / 1e9
    assert rows(tmp_path, "cost", "uncertain") == [(ANSWERED, reserved())]


def test_a_kill_in_the_second_attempt_leaves_what_both_may_cost(tmp_path):
    left: list[tuple] = []

    def fault(n: int) -> str:
        left.extend(rows(tmp_path, "status", "uncertain") if n else [])
        return "answer" if n else "silent"

    with fault_server(FaultServer(fault)) as server:
        ask(helpers_at(server, tmp_path)["executor"])
    assert left == [("sent", 2 * reserved())]


def test_a_call_without_an_answer_cost_nothing_for_sure_and_what_was_lost_at_most(tmp_path):
    faults = ["silent", "429", "500"]
    with fault_server(FaultServer(lambda n: faults[n] if n < 3 else "429")) as server:
        answer = ask(helpers_at(server, tmp_path)["executor"])
    assert answer.failure == "endpoint: HTTP 429: {}"
    (call,) = read_calls(tmp_path)
    assert (call.status, call.cost, call.uncertain) == ("failed", 0, reserved())
    assert call.attempts == client.ATTEMPTS and "HTTP 429" in call.why


def test_tokens_that_were_not_counted_cost_an_unknown_amount_within_the_reservation(tmp_path):
    with fault_server(FaultServer(lambda n: "uncounted")) as server:
        answer = ask(helpers_at(server, tmp_path)["executor"])
    assert answer.cost is None and answer.text
    assert rows(tmp_path, "cost", "uncertain") == [(None, reserved())]


@pytest.mark.parametrize("scope", ["step", "run"])
def test_a_call_that_could_cost_more_than_is_left_is_not_sent(server, tmp_path, scope):
    room = (ANSWERED + reserved()) / 1e9
    helpers = helpers_at(server, tmp_path, budget={scope: room})
    helper = helpers["executor"].called_by(Caller("rl", 1, "p"))
    assert ask(helper).text == ask(helper).text
    with pytest.raises(OverBudget, match=rf"model\.executor\.budget\.{scope}"):
        ask(helper)
    assert server.charged == len(read_calls(tmp_path)) == 2


def test_a_repetition_that_has_no_room_is_not_sent(tmp_path):
    budget = {"run": (reserved() + 1) / 1e9}
    with fault_server(FaultServer(lambda n: "truncated")) as server:
        helper = helpers_at(server, tmp_path, budget=budget)["executor"]
        with pytest.raises(OverBudget, match=r"budget\.run"):
            ask(helper)
    assert rows(tmp_path, "status", "attempts", "uncertain") == [("failed", 1, reserved())]


def test_a_batch_that_runs_over_budget_keeps_the_answers_that_it_paid_for(server, tmp_path):
    budget = {"run": (2 * ANSWERED + reserved()) / 1e9}
    helpers = helpers_at(server, tmp_path, budget=budget, concurrency=1, cache=True)
    batch = [said(f"question {n}") for n in range(8)]
    keys = [key(n) for n in range(8)]
    with pytest.raises(OverBudget):
        helpers["executor"].answer(questions(batch, DRAWN, keys))
    assert server.charged == 3
    kept = helpers["executor"].answer(questions(batch[:3], DRAWN, keys[:3]))
    assert all(answer.remembered for answer in kept) and server.charged == 3


def test_a_session_that_goes_on_counts_what_the_ledger_holds(server, tmp_path):
    budget = {"run": (2 * ANSWERED + reserved()) / 1e9}
    for _ in range(3):
        helpers = helpers_at(server, tmp_path, budget=budget)
        ask(helpers["executor"])
        helpers.release()
    with pytest.raises(OverBudget):
        ask(helpers_at(server, tmp_path, budget=budget)["executor"])
    assert server.charged == 3


def test_a_greedy_answer_of_an_endpoint_is_paid_for_once_and_a_hit_is_labelled(server, tmp_path):
    helpers = helpers_at(server, tmp_path)
    first, again = (ask(helpers["executor"], sampling=GREEDY) for _ in range(2))
    helpers.release()
    other_session = ask(helpers_at(server, tmp_path)["executor"], sampling=GREEDY)
    assert (
        (first.text, first.cost) == (again.text, ANSWERED / 1e9) == (other_session.text, first.cost)
    )
    assert again.remembered and again.cost == 0 and other_session.remembered
    assert (first.saved, again.saved) == (0, ANSWERED / 1e9), "what it would have cost"
    assert rows(tmp_path, "status", "cost") == [
        ("answered", ANSWERED),
        ("remembered", 0),
        ("remembered", 0),
    ]
    assert helpers.costs()["helper/executor/remembered"] == 1 and server.charged == 1


def test_drawn_answers_are_asked_anew_unless_told_and_then_remembered_by_draw(server, tmp_path):
    helper = helpers_at(server, tmp_path)["executor"]
    helper.answer(questions([said()] * 2, DRAWN, [key(0), key(0)]))
    assert server.charged == 2
    cached = helpers_at(server, tmp_path / "..", cache=True)["executor"]
    cached.answer(questions([said()], DRAWN, [key(0)]))
    other, same = cached.answer(questions([said()] * 2, DRAWN, [key(1), key(0)]))
    assert not other.remembered and same.remembered and server.charged == 4


@pytest.mark.parametrize(
    ("text", "sampling"),
    [("another question", GREEDY), ("some question", Sampling(0.0, 9)), ("some question", DRAWN)],
)
def test_another_question_or_setting_is_another_answer(server, tmp_path, text, sampling):
    helper = helpers_at(server, tmp_path, cache=True)["executor"]
    ask(helper, sampling=GREEDY)
    assert not ask(helper, text, sampling).remembered


def test_an_unknown_price_is_not_0(server, tmp_path):
    helpers = helpers_at(server, tmp_path, price="unknown")
    assert ask(helpers["executor"]).cost is None
    assert rows(tmp_path, "cost", "uncertain", "prompt_price") == [(None, 0, None)]
    assert "helper/executor/cost" not in helpers.costs()


def test_an_endpoint_that_refuses_everybody_closes_the_call_in_the_ledger(tmp_path):
    with pytest.raises(InputError), fault_server(FaultServer(lambda n: "denied")) as server:
        ask(helpers_at(server, tmp_path)["executor"])
    assert rows(tmp_path, "status", "cost", "uncertain") == [("failed", 0, 0)]


def test_bytes_and_messages_bound_the_tokens_of_a_prompt():
    short, long = most_tokens(said("a")), most_tokens(said("aé水"))
    assert long - short == len("é水".encode())
    assert most_tokens(said("a") * 2) > short + 1


@pytest.mark.parametrize(
    ("fault", "too_long"), [("too long", True), ("too large", True), ("bad", False)]
)
def test_a_request_that_the_model_cannot_read_is_told_from_one_that_is_refused(
    tmp_path, fault, too_long
):
    with fault_server(FaultServer(lambda n: fault)) as server:
        answer = ask(helpers_at(server, tmp_path)["executor"])
    assert answer.failure and answer.too_long == too_long


def test_what_an_evaluation_asks_is_no_cost_of_the_step_after_it(server, tmp_path):
    helpers = helpers_at(server, tmp_path)
    helpers.stage("rl", 1)
    with helpers.evaluation("dev", "rl.step-000000"):
        ask(helpers["executor"])
    ask(helpers["executor"])
    assert helpers.step_costs()["helper/executor/requests"] == 1


def test_who_is_left_behind_and_asks_later_is_billed_to_its_own_step(server, tmp_path):
    helpers = helpers_at(server, tmp_path)
    helpers.stage("rl", 1)
    left_behind = helpers["executor"].called_by(Caller())
    helpers.stage("rl", 2)
    ask(left_behind.called_by(Caller(problem="p", operator="Custom")))
    ask(helpers["executor"].called_by(Caller(problem="p")))
    assert rows(tmp_path, "stage", "step", "problem") == [("rl", 1, "p"), ("rl", 2, "p")]


def test_calls_that_begin_together_are_all_written_before_any_is_sent(tmp_path):
    seen: list[int] = []

    def look(number: int) -> str:
        seen.append(len(read_calls(tmp_path)))
        return "answer"

    with fault_server(FaultServer(look, seconds=0.2)) as server:
        helper = helpers_at(server, tmp_path, concurrency=30, timeout=4.0)["executor"]
        helper.answer(
            questions([said(f"q{n}") for n in range(30)], DRAWN, [key(n) for n in range(30)])
        )
    assert seen == [30] * 30
    assert {call.status for call in read_calls(tmp_path)} == {"answered"}


def test_a_call_that_the_ledger_cannot_hold_is_not_sent(server, tmp_path, monkeypatch):
    def full(ledger: CostLedger, *entry):
        raise LedgerUnusable("the disk is full")

    helper = helpers_at(server, tmp_path)["executor"]
    monkeypatch.setattr(CostLedger, "write", full)
    with pytest.raises(LedgerUnusable, match="the disk is full"):
        helper.answer(questions([said()] * 3, DRAWN, [key(n) for n in range(3)]))
    assert not server.done


def test_what_begins_beside_a_call_without_room_is_not_sent_and_frees_its_room(server, tmp_path):
    budget = {"run": (2 * reserved() + 10) / 1e9}
    helper = helpers_at(server, tmp_path, budget=budget, concurrency=4)["executor"]
    with pytest.raises(OverBudget):
        helper.answer(questions([said()] * 4, DRAWN, [key(n) for n in range(4)]))
    assert not server.done
    assert rows(tmp_path, "status", "cost", "uncertain") == [("failed", 0, 0)] * 2
    assert [each.text for each in helper.answer(questions([said()] * 2, DRAWN, [key(0), key(1)]))]
    assert server.charged == 2
