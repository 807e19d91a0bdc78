"""What an endpoint was paid for is used and never paid for again, however it fails or work ends.

The server counts what it charged itself.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import pytest

from assay.errors import RunFailure
from assay.lab.synthesise import make
from assay.pages.html import body_html
from assay.pages.synthesis_page import synthesis_page
from assay.pages.words import words
from assay.rollout.engines.endpoint import client
from assay.runs.cost_ledger import read_calls
from tests.lab.synthesise.sums import asks, calls_of, made, make_sums, number_in, synthesise
from tests.rollout.engines.endpoint.fault_server import FaultServer, drawn, fault_server

FREE = ("429", "later", "500")
LOST = ("truncated", "cut")
"""Faults of answers that were made, charged, and never came."""
TABLE, FEW = "rows = 60\nsamples = 30", "rows = 24\nsamples = 12"
SEEDS = 4
MORE = "\nconcurrency = 16\ndeadline = 60.0\ntimeout = 10.0"
PRICE = "price = { prompt = 10.0, completion = 10000.0 }" + MORE
HASTY = PRICE.replace("timeout = 10.0", "timeout = 3.0")
"""For servers that say nothing."""


def says(text: str) -> str:
    """A row of its own for each prompt."""
    number = number_in(text)
    return made(number % 100 * SEEDS + number // 100)


@pytest.fixture(autouse=True)
def without_long_pauses(monkeypatch):
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.001)


def refused_first(text: str, before: int) -> str:
    """Most questions are refused once or twice before they are answered."""
    number = number_in(text)
    return FREE[number % 3] if before < number % 3 else "answer"


def served(faults, **given):
    return FaultServer(drawn(faults, 3), says=says, **given)


def test_refusals_are_asked_again_and_each_question_is_paid_for_once(tmp_path):
    with fault_server(served(("answer", *FREE))) as server:
        file = make_sums(tmp_path, FEW, url=server.url, seeds=SEEDS, model=PRICE)
        found = synthesise(file)
        refused = sum(server.done[fault] for fault in FREE)
        # One that was refused six times is unanswered until the command is called again.
        left = found.reasons["unanswered"]
        assert refused > 24 and server.charged == len(found.rows) + found.not_needed
        assert calls_of(file) == Counter(answered=server.charged, failed=left) - Counter()
        again = synthesise(file)
        assert server.charged == len(again.rows) + again.not_needed
    assert len(again.rows) == 24


@pytest.mark.parametrize("lost", [LOST, pytest.param(("silent",), marks=pytest.mark.slow)])
def test_answers_that_are_lost_on_their_way_are_no_rows_and_no_row_is_lost(tmp_path, lost):
    with fault_server(served(("answer", "answer", "answer", *FREE, *lost))) as server:
        file = make_sums(
            tmp_path, FEW, url=server.url, seeds=SEEDS, model=HASTY if "silent" in lost else PRICE
        )
        found = synthesise(file)
        for _ in range(3):
            found = synthesise(file)
        gone = sum(server.done[fault] for fault in lost)
    assert len(found.rows) == 24 and len({text for _, text in asks(found)}) == 24
    calls = read_calls(found.file.parent)
    answered = [call for call in calls if call.status == "answered"]
    assert gone > 3 and server.charged == len(answered) + gone
    # Nothing that came was asked for again, and the ledger bounds what was charged.
    assert len({(call.problem, call.completion) for call in answered}) == len(answered)
    charged = server.prompt_tokens * 10.0 + server.charged * server.completion_tokens * 10000.0
    assert sum(call.cost or 0 for call in calls) <= charged * 1e3
    assert charged * 1e3 <= sum(call.most for call in calls)


def test_an_unanswered_question_is_asked_by_the_next_command_and_its_row_takes_its_place(tmp_path):
    down = {2: 6, 101: 6}

    def by_text(text: str, before: int) -> str:
        return "500" if before < down.get(number_in(text), 0) else "answer"

    with fault_server(FaultServer(drawn(FREE), by_text, says)) as server:
        table = "rows = 8\nsamples = 2"
        file = make_sums(tmp_path, table, url=server.url, seeds=SEEDS, model=PRICE)
        found = synthesise(file)
        ids = [f"s{seed}/{sample}" for sample in range(2) for seed in range(SEEDS)]
        assert found.reasons == {"unanswered": 2} and server.charged == 6
        assert [row.id for row in found.rows] == [i for i in ids if i not in ("s0/1", "s1/0")]
        again = synthesise(file)
        assert server.charged == 8 and not again.refused
        assert [row.id for row in again.rows] == ids


def test_what_came_before_an_error_of_the_work_is_not_asked_again(tmp_path, monkeypatch):
    with fault_server(served(("answer",))) as server:
        file = make_sums(tmp_path, FEW, url=server.url, seeds=SEEDS, model=PRICE)
        with monkeypatch.context() as patch:
            patch.setattr(make.Making, "_read", lambda *given: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                synthesise(file)
        before = server.charged
        assert before > 12
        found = synthesise(file)
        assert not found.stopped and server.charged == 24 == calls_of(file)["answered"]
    assert max(Counter(server.texts).values()) == 1


def test_an_endpoint_that_refuses_the_key_ends_the_work_with_its_rows_kept(tmp_path):
    faults = lambda number: "answer" if number < 10 else "denied"  # noqa: E731
    with fault_server(FaultServer(faults, says=says)) as server:
        file = make_sums(tmp_path, FEW, url=server.url, seeds=SEEDS, model=PRICE)
        found = synthesise(file)
        (error,) = [each for each in found.findings if each.severity == "error"]
        assert "10 of 24 rows" in error.what and "HTTP 401" in error.what
        page = body_html(synthesis_page(found, words("en")))
        assert "HTTP 401" in found.stopped and "HTTP 401" in page
        rows = (tmp_path / "synthesised/sums/more/rows.jsonl").read_text().splitlines()
        assert len(rows) == 10 == server.charged
        server.faults = lambda number: "answer"
        whole = synthesise(file)
        assert len(whole.rows) == 24 == server.charged - whole.not_needed


def test_two_processes_do_not_pay_for_one_set_at_once(tmp_path):
    with fault_server(served(("answer",))) as server:
        file = make_sums(tmp_path, TABLE, url=server.url, seeds=SEEDS, model=PRICE)
        folder = tmp_path / "synthesised/sums/more"
        folder.mkdir(parents=True)
        with make.hold_run(folder), pytest.raises((RunFailure, Exception), match="is executing"):
            synthesise(file)
    assert server.charged == 0


@pytest.mark.slow
@pytest.mark.parametrize("after", [7, 30])
def test_after_kill_9_the_same_command_goes_on_and_pays_for_nothing_that_came(tmp_path, after):
    with fault_server(FaultServer(drawn(FREE), refused_first, says, seconds=0.05)) as server:
        file = make_sums(tmp_path, TABLE, url=server.url, seeds=SEEDS, model=PRICE)
        code = "from assay.cli.main import app; app()"
        command = [sys.executable, "-c", code, "--lab", str(tmp_path), "synthesise", str(file)]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
        while server.charged < after and process.poll() is None:
            time.sleep(0.005)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        came = Counter(call.status for call in read_calls(tmp_path / "synthesised/sums/more"))
        paid = server.charged
        assert came["answered"] and paid - came["answered"] <= 16, "those that were on their way"
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = synthesise(file)
        assert done.returncode == 0 or found.stopped == ""
        twice = [text for text, count in Counter(server.texts).items() if count > 1]
        assert twice  # refusals are asked again
        assert server.charged - paid == calls_of(file)["answered"] - came["answered"]
    unbroken = tmp_path / "unbroken"
    unbroken.mkdir()
    with fault_server(served(("answer",))) as server:
        whole = synthesise(make_sums(unbroken, TABLE, url=server.url, seeds=SEEDS, model=PRICE))
    assert asks(found) == asks(whole)
