"""math-verify's own verdicts in a worker agree with its own cases; rules are `judging`'s."""

import json
import threading
from pathlib import Path

import pytest

from assay.sandbox.limits import Outcome
from assay.sandbox.pool import Worker
from assay.tasks.math.answers import delimited
from tests.tasks.math.many import in_one_call

COMPARE = "assay.tasks.math.verify:compare"


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_all_math_verify_cases_have_the_stated_verdict(shared: Path) -> None:
    rows = read(shared / "data/oracle/math_verify_cases.jsonl")
    assert len(rows) == 130
    calls = [{"gold": row["gold"], "answer": row["answer"], **row["options"]} for row in rows]
    wrong = [
        (row["id"], value)
        for row, value in zip(rows, in_one_call("compare", calls), strict=True)
        if value is None or value["equal"] != bool(row["verdict"])
    ]
    assert wrong == []


NOT_READ = {
    "-1 + sqrt(3)": "a function written as plain text is not LaTeX",
    "\\beginboxed{8\\sqrt{6}}": "a misspelt command is not repaired",
}


def test_inspect_cases_agree_but_for_those_that_no_latex_reader_reads(shared: Path) -> None:
    rows = read(shared / "data/oracle/inspect_ai_math_cases.jsonl")
    assert len(rows) == 17
    calls = [{"gold": delimited(row["target"]), "answer": delimited(row["output"])} for row in rows]
    different = {
        row["output"]
        for row, value in zip(rows, in_one_call("compare", calls), strict=True)
        if value is None or value["equal"] != (row["expected"] == "C")
    }
    assert different == set(NOT_READ)


def test_it_works_off_the_main_thread() -> None:
    seen: list[Outcome] = []

    def compare() -> None:
        with Worker(COMPARE) as worker:
            seen.append(worker.call({"gold": "$1/3$", "answer": r"$\frac{2}{6}$"}, 60.0))

    thread = threading.Thread(target=compare)
    thread.start()
    thread.join()
    assert seen == [Outcome({"equal": True, "gold_read": True, "answer_read": True})]


@pytest.mark.parametrize(
    ("gold", "answer", "gold_read", "answer_read"),
    [("forty two", "$42$", False, True), ("$42$", "", True, False)],
)
def test_what_cannot_be_read_is_told_apart(
    gold: str, answer: str, gold_read: bool, answer_read: bool
) -> None:
    with Worker(COMPARE) as worker:
        value = worker.call({"gold": gold, "answer": answer}, 60.0).value
    assert value == {"equal": False, "gold_read": gold_read, "answer_read": answer_read}


def test_a_comparison_that_breaks_off_is_no_verdict() -> None:
    with Worker(COMPARE) as worker:
        broken = worker.call({"gold": "$12:00$", "answer": "$13:00$"}, 60.0)
        equal = worker.call({"gold": "$12:00$", "answer": "$12:00$"}, 60.0)
    assert broken.failure == "exception"
    assert equal.value["equal"]  # its other reading, as text, is equal


def test_an_answer_made_to_take_forever_ends_at_the_deadline() -> None:
    with Worker(COMPARE) as worker:
        outcome = worker.call({"gold": "$7$", "answer": r"$9^{9^{9^{9}}}$"}, 2.0)
    assert outcome.failure in ("deadline", "memory")
