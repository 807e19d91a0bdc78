"""Two hundred calls at once to a server that fails: budgets hold by the server's own account."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.data.row import Message
from assay.experiment.helper_tables import HelperSpec
from assay.experiment.price_table import NANO
from assay.lab.models.helper_models import HelperModels
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.endpoint import client
from assay.runs.cost_ledger import LedgerCall, read_calls
from assay.tasks.helper_model import Caller, OverBudget
from tests.lab.run.test_executor_at_an_endpoint import COMPLETION, PROMPT, charged_by
from tests.rollout.engines.endpoint.fault_server import FaultServer, drawn, fault_server
from tests.scripted_helper import questions

BAD = ("429", "later", "500", "truncated", "cut", "silent", "endless", "slow", "uncounted")
FAULTS = (*["answer"] * 9, *BAD)
MOST = 8
"""Tokens that an answer may have; the server writes 3."""
DRAWN = Sampling(1.0, MOST)


@pytest.fixture(autouse=True)
def without_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.001)


def helpers_at(url: str, folder: Path, **table: object) -> HelperModels:
    spec = HelperSpec.model_validate(
        {
            "source": "openai:m",
            "endpoint": url,
            "price": {"prompt": PROMPT, "completion": COMPLETION},
            "concurrency": 200,
            "deadline": 4.0,
            "timeout": 1.2,
            **table,
        }
    )
    helpers = HelperModels({"executor": spec}, folder, None)  # type: ignore[arg-type]
    helpers.record_in(folder)
    return helpers


def asked(number: int) -> tuple[Message, ...]:
    return (Message("user", f"question {number}"),)


def most_of(calls: list[LedgerCall]) -> float:
    return sum(call.most for call in calls) / NANO


def ask_all(helpers: HelperModels, count: int = 200) -> list[OverBudget | None]:
    """One call from each of so many threads, all at once."""
    barrier = threading.Barrier(count)

    def ask(number: int) -> OverBudget | None:
        helper = helpers["executor"].called_by(Caller("rl", 1, f"p{number % 20}", str(number)))
        barrier.wait()
        try:
            helper.answer(questions([asked(number)], DRAWN, [SampleKey(0, "r", number)]))
        except OverBudget as error:
            return error
        return None

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(ask, range(count)))


@pytest.mark.parametrize("scope", ["run", pytest.param("step", marks=pytest.mark.slow)])
def test_two_hundred_calls_at_once_use_up_the_budget_and_never_more(tmp_path, scope):
    budget = 8.0  # for about a hundred reservations
    with fault_server(FaultServer(drawn(FAULTS, 1), seconds=0.1)) as server:
        helpers = helpers_at(server.url, tmp_path, budget={scope: budget})
        raised = [error for _ in range(2) for error in ask_all(helpers) if error is not None]
        helpers.release()
    calls = read_calls(tmp_path)
    assert 0 < charged_by(server) <= most_of(calls) <= budget
    assert most_of(calls) > 0.9 * budget, "what was reserved and not spent was given back"
    assert raised and all(f"budget.{scope}" in str(error) for error in raised)
    assert len(calls) + len(raised) >= 400, "a repetition without room raises as well"
    assert {call.status for call in calls} <= {"answered", "failed"}
    assert set(server.done) == set(FAULTS) and server.at_once > 20
