"""Operators give what AFlow's own code (github.com/FoundationAgents/AFlow at 364399e) gives for the
same replies: the values are those that it gave."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from assay.labs.workflows import executor
from assay.labs.workflows.executor import ExecutorSetup, OperatorHost
from assay.labs.workflows.task import human_eval
from assay.rl.policy import Sampling
from assay.tasks.helper_model import HelperAnswer
from tests.labs.workflows.aflow_cases import FAILS, STYLES, fence, letters, programmed

ROW = human_eval("test").rows[0]
Case = dict[str, Any]


@dataclass
class Replies:
    """A model that answers by a list, and keeps what it was asked."""

    replies: list[str]
    asked: list[str] = field(default_factory=list)
    name: str = "executor"
    sampling: Sampling = Sampling(0.0)

    def called_by(self, caller) -> "Replies":
        return self

    def answer(self, batch) -> list[HelperAnswer]:
        self.asked.append(batch[0].messages[0].content)
        return [HelperAnswer(self.replies[len(self.asked) - 1])]


def called(case: Case) -> tuple[dict[str, Any], list[str], OperatorHost]:
    """The reply to a program's call, and what the model was asked for it."""
    model = Replies(case["replies"])
    extra = {**ROW.extra, "public_tests": case["tests"], "entry_point": "twice"}
    row = replace(ROW, extra=extra)
    host = OperatorHost(ExecutorSetup(model, row, "draws"))  # type: ignore[arg-type]
    return dict(host(case["operator"], case["arguments"], 0)), model.asked, host


def result(case: Case) -> dict[str, Any]:
    return called(case)[0]["result"]


@pytest.fixture(autouse=True)
def unshuffled(monkeypatch) -> None:
    """The order of an ensemble's solutions, which is drawn, stays."""

    class Ordered:
        def __init__(self, seed: int):
            pass

        def sample(self, population: list[str], k: int) -> list[str]:
            return list(population)

    monkeypatch.setattr(executor.random, "Random", Ordered)


@pytest.mark.parametrize("style", STYLES)
def test_programmer_returns_what_solve_returns_and_nothing_that_is_printed(style: str) -> None:
    reply = result(programmed(STYLES[style]))
    others = {
        "prints and returns nothing": "None",
        "nothing": "None",
        "helpers and constants": "5.0",
        "float": "0.30000000000000004",
        "list": "[1, 'a']",
        "text with space around": " 7 \n",
    }
    assert reply["output"] == others.get(style, "7")


def test_programmers_last_error_is_its_output_and_is_counted() -> None:
    reply, asked, host = called(programmed(*[FAILS["raises"]] * 3))
    output = reply["result"]["output"]
    assert output.startswith("Execution error: name 'x' is not defined\n")
    assert output.endswith("NameError: name 'x' is not defined")
    assert "sandbox" not in output, "the program's own frames alone"
    assert len(asked) == 3
    assert [call.error for call in host.calls] == ["code"]


def test_a_retry_is_shown_the_code_that_failed_and_why() -> None:
    reply, asked, host = called(programmed(FAILS["raises"], STYLES["returned"]))
    assert reply["result"]["output"] == "7"
    assert "def solve():\n    return x\n\nExecution error: name 'x'" in asked[1]
    assert "failed" not in asked[0]
    assert [call.error for call in host.calls] == [""]


def test_code_that_hangs_is_told_so(monkeypatch) -> None:
    monkeypatch.setattr(executor, "CODE_SECONDS", 0.3)
    hangs = fence("def solve():\n    while True:\n        pass")
    assert result(programmed(*[hangs] * 3))["output"] == "Code execution timed out"


def test_a_reply_without_code_ends_programmer_at_once() -> None:
    reply, asked, _ = called(programmed("7"))
    assert (reply["result"], len(asked)) == ({"code": "", "output": "No code generated"}, 1)


def test_an_unreadable_vote_is_dropped_and_the_first_vote_wins_a_tie() -> None:
    assert result(letters("MdEnsemble", "none", "B", "Z", "", "A and B")) == {"solution": "seven"}
    assert result(letters("MdEnsemble", "D", "B", "B", "D", "A")) == {"solution": "eight"}
    nobody, *_ = called(letters("MdEnsemble", *["none"] * 5))
    assert nobody["error"] == "malformed"


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ("x: int = 3\ndef solve():\n    return x", "3"),
        (
            "seen = []\nfor n in range(3):\n    seen.append(n)\ndef solve():\n    return len(seen)",
            "3",
        ),
        ("memo = {}\nmemo[0] = 4\ndef solve():\n    return memo[0]", "4"),
        (
            "try:\n    import no\nexcept ImportError:\n    no = 5\ndef solve():\n    return no",
            "5",
        ),
        ("a, b = 1, 2\ndef solve():\n    return a + b", "3"),
    ],
)
def test_what_solve_needs_is_run_and_what_it_does_not_need_is_not(lines: str, value: str) -> None:
    assert result(programmed(fence(lines)))["output"] == value
