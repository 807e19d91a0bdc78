"""The ledger of a run: nothing that may have been charged is missing, whatever dies."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.rollout.engines.endpoint.openai_text import EndpointAnswer
from assay.runs.cost_ledger import LEDGER, CostLedger, LedgerCall, LedgerUnusable, read_calls

CALL = LedgerCall("2026-11-24T00:00:00.000Z", "m", "openai:m", prompt_price=1, completion_price=2)


def call(**fields: object) -> LedgerCall:
    return LedgerCall(**{name: getattr(CALL, name) for name in CALL.__slots__} | fields)  # type: ignore[arg-type]


def opened(folder: Path) -> CostLedger:
    ledger = CostLedger()
    ledger.move_to(folder)
    return ledger


def test_a_call_reads_as_it_was_written_last(tmp_path):
    ledger = opened(tmp_path)
    place = ledger.write(call(uncertain=70, stage="rl", step=3, problem="p", operator="Custom"))
    (began,) = read_calls(tmp_path)
    assert (began.status, began.cost, began.most) == ("sent", None, 70)
    ended = call(status="answered", cost=10**15, attempts=2, seconds=0.25, why="–\u2028")
    ledger.write(ended, place)
    assert read_calls(tmp_path) == [ended] == ledger.calls()


KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from assay.runs.cost_ledger import CostLedger, LedgerCall
ledger, call = CostLedger(), LedgerCall("", "m", "openai:m")
ledger.move_to(Path(sys.argv[1]))
ledger.add([replace(call, status="answered", cost=5)])
ledger.write(replace(call, uncertain=70))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_on_its_way_when_the_process_was_killed_still_counts(tmp_path):
    process = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert process.returncode == -signal.SIGKILL
    assert [each.most for each in read_calls(tmp_path)] == [5, 70]
    opened(tmp_path).add([call(cost=1)])
    assert [each.most for each in read_calls(tmp_path)] == [5, 70, 1]


def test_what_was_asked_before_the_run_was_made_is_in_its_ledger(tmp_path):
    ledger = CostLedger()
    ledger.write(call(problem="check"))
    ledger.move_to(tmp_path)
    ledger.write(call(problem="work"))
    ledger.move_to(tmp_path)
    assert [each.problem for each in read_calls(tmp_path)] == ["check", "work"]


def test_threads_write_side_by_side_and_nothing_is_lost(tmp_path):
    ledger = opened(tmp_path)

    def write(number: int) -> None:
        for _ in range(50):
            place = ledger.write(call(step=number))
            ledger.write(call(step=number, status="answered", cost=1), place)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    calls = read_calls(tmp_path)
    assert len(calls) == 400 == sum(each.cost or 0 for each in calls)


def test_the_first_of_two_answers_to_the_same_stays(tmp_path):
    ledger = opened(tmp_path)
    first = EndpointAnswer("Paris", "stop", 3, None)
    for said in (first, EndpointAnswer("Rome", "stop", 3, 1)):
        ledger.write(call(), None, "k", said)
    assert ledger.known("k") == first and ledger.known("other") is None
    ledger.close()
    assert opened(tmp_path).known("k") == first


def test_a_ledger_that_is_none_is_named_in_one_line(tmp_path):
    (tmp_path / LEDGER).write_text("not a database, but long enough to be taken for one" * 40)
    for work_ in (read_calls, opened):
        with pytest.raises(LedgerUnusable, match=r"costs\.sqlite: the cost ledger cannot be used"):
            work_(tmp_path)


def test_of_calls_that_are_written_together_all_are_there_or_none(tmp_path):
    ledger = opened(tmp_path)
    with ledger.together():
        first, second = (ledger.write(call(problem=name)) for name in "ab")
        assert read_calls(tmp_path) == []
    assert [each.problem for each in read_calls(tmp_path)] == ["a", "b"]
    wrong = call(problem="c", cost=1 << 70)
    with pytest.raises((LedgerUnusable, OverflowError)), ledger.together():
        ledger.write(call(problem="changed"), second)
        ledger.write(wrong)
    ledger.write(call(problem="again"), first)
    assert [each.problem for each in read_calls(tmp_path)] == ["again", "b"]
