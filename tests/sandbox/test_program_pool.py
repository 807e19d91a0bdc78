"""Programs ask the lab and are answered; what the lab, the host or the machine does wrong is told
apart from what programs do; nothing of one program reaches the next, and nothing is left over."""

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from assay.sandbox import isolation, pipes
from assay.sandbox import pool as pools
from assay.sandbox.isolation import Mode
from assay.sandbox.limits import CallLimits, CallOutcome, Limits
from assay.sandbox.pool import WorkerPool
from tests.sandbox.test_worker import eventually

SMALL = Limits(cpu_seconds=20, memory_bytes=1 << 30, file_bytes=1 << 20, processes=8)
CALLS = CallLimits(calls=8, together=4, request_bytes=10_000, reply_bytes=10_000)
SERVE = "tests.sandbox.asking:serve"
MODES: list[Mode] = ["limits-only"]
if isolation.isolation_available().tool:
    MODES.append("namespaces")


def echo(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {"name": name, **arguments}


def run(
    pool: WorkerPool, work: str, host: Any = echo, deadline: float = 30.0, **arguments: Any
) -> CallOutcome:
    return pool.run({"work": work, **arguments}, host, deadline)


def value(pool: WorkerPool, work: str, host: Any = echo, **arguments: Any) -> Any:
    found = run(pool, work, host, **arguments)
    assert found.failure is None, found
    return found.value


def works(pool: WorkerPool) -> bool:
    return value(pool, "chain", names=["a", "b"]) == [{"name": "a", "n": 0}, {"name": "b", "n": 1}]


def supervisor(pool: WorkerPool) -> psutil.Process:
    process = pool._workers[0]._process
    assert process
    started = psutil.Process(process.pid)
    # The tool that makes the namespaces stands before it.
    return started.children()[0] if pool._workers[0]._isolation.tool else started


BOTH = [
    pytest.param(mode, marks=[pytest.mark.slow] if mode != MODES[-1] else [], id=mode)
    for mode in MODES
]


@pytest.fixture(params=BOTH)
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    before, files = psutil.Process().children(recursive=True), psutil.Process().num_fds()
    with WorkerPool(SERVE, 1, SMALL, request.param, calls=CALLS) as served:
        yield served
    assert [p for p in psutil.Process().children(recursive=True) if p not in before] == []
    assert psutil.Process().num_fds() <= files


def test_calls_are_answered_one_after_the_other_at_once_and_from_several_event_loops(
    pool: WorkerPool,
) -> None:
    names = ["a", "b", "käse\n\u2028"]
    wanted = [{"name": name, "n": n} for n, name in enumerate(names)]
    for work in ("chain", "gather", "in_threads"):
        assert value(pool, work, names=names) == wanted


def test_programs_run_under_limits_alone_where_the_user_says_so(tmp_path: Path) -> None:
    left = tmp_path / "left"
    with WorkerPool(SERVE, 1, SMALL, "limits-only", calls=CALLS) as pool:
        assert works(pool)
        assert value(pool, "writes", path=str(left)) == [] and left.exists()
        scratch = Path(pool._workers[0]._scratch)
        assert run(pool, "asks_and_sleeps", deadline=0.2, names=["a"]).failure == "deadline"
        assert works(pool) and not list(scratch.iterdir())
    assert not scratch.exists()


def test_calls_made_together_are_open_together_up_to_the_limit_and_the_others_wait(
    pool: WorkerPool,
) -> None:
    together = threading.Barrier(CALLS.together)

    def host(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
        together.wait(30)
        return echo(name, arguments, number)

    assert len(value(pool, "gather", host, names=["a"] * 2 * CALLS.together)) == 8
    assert run(pool, "gather", names=["a"] * 9) == CallOutcome(
        failure="calls", why="more than 8 calls"
    )


def test_much_that_is_said_both_ways_at_once_blocks_nobody() -> None:
    names, reply = ["x" * 200_000] * 16, {"text": "y" * 900_000}
    with WorkerPool(SERVE, 1, SMALL, MODES[-1], calls=CallLimits()) as pool:
        for _ in range(5):
            assert value(pool, "asks_and_leaves", lambda *_: reply, names=names) == "left 16"


def test_a_program_that_opens_more_calls_at_once_than_it_may_is_ended(pool: WorkerPool) -> None:
    names = ["a"] * (CALLS.together + 1)
    over = threading.Event()
    found = run(pool, "gather_unbounded", lambda *_: {"on": over.wait(1.0)}, names=names)
    assert found == CallOutcome(failure="calls", why="more than 4 calls open at once")
    assert works(pool)


def test_the_clock_stands_still_while_a_program_waits_for_the_lab(pool: WorkerPool) -> None:
    def host(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
        time.sleep(1.2)
        return {}

    assert works(pool)
    found = run(pool, "chain", host, 2.0, names=["a", "b"])
    assert found == CallOutcome([{}, {}])


def test_computing_behind_an_open_call_is_the_programs_own_time(pool: WorkerPool) -> None:
    assert works(pool)
    answer = threading.Event()
    found = run(pool, "burns_behind_a_call", lambda *_: {"on": answer.wait(5.0)}, 0.3, names=["a"])
    assert found == CallOutcome(failure="deadline", why="still running at its deadline")


def test_a_second_limit_counts_the_time_of_the_lab_too(pool: WorkerPool) -> None:
    assert works(pool)
    arguments = {"work": "chain", "names": ["a"]}
    found = pool.run(arguments, lambda *_: {"on": time.sleep(0.6)}, 30.0, longest=0.2)
    assert found.why == "still running after 0.2 seconds in all"
    assert works(pool)


def test_what_the_host_raises_first_ends_the_program_at_once_and_is_raised_unchanged(
    pool: WorkerPool,
) -> None:
    raised = [KeyError("first"), SystemExit("second")]
    both = threading.Barrier(2)

    def host(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
        both.wait(30)
        time.sleep(0.2 * int(name))
        raise raised[int(name)]

    for work in ("gather", "asks_and_sleeps"):
        with pytest.raises(KeyError) as found:
            run(pool, work, host, names=["0", "1"])
        assert found.value is raised[0]
    assert works(pool)


def test_no_question_outlives_the_run_and_what_it_raises_late_is_raised(pool: WorkerPool) -> None:
    answered: list[str] = []

    def host(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
        time.sleep(0.3)
        answered.append(name)
        if name == "raises":
            raise KeyError("late")
        return {}

    assert value(pool, "asks_and_leaves", host, names=["a", "b"]) == "left 2"
    assert sorted(answered) == ["a", "b"]
    with pytest.raises(KeyError, match="late"):
        run(pool, "asks_and_leaves", host, names=["raises"])
    assert works(pool)


@pytest.mark.parametrize("reply", [{"n": float("nan")}, {"n": {1}}, 7])
def test_a_reply_that_is_no_json_is_the_hosts_mistake(pool: WorkerPool, reply: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        run(pool, "chain", lambda *_: reply, names=["a"])
    assert works(pool)


def test_what_is_too_long_or_no_json_raises_where_the_program_asks(pool: WorkerPool) -> None:
    large = {"text": "x" * CALLS.reply_bytes}
    why = "RuntimeError: the answer is over 10000 bytes"
    assert value(pool, "refused", lambda *_: large, arguments={}) == why
    for wrong in (10**30, "\ud800"):
        assert value(pool, "refused", arguments={"n": wrong}).startswith("ValueError: ")
    found = run(pool, "refused", arguments={"text": "x" * 10_000})
    assert found == CallOutcome(failure="calls", why="a call over 10000 bytes")
    found = run(pool, "not_a_number")
    assert found.failure == "exception" and "JSON" in found.why


def test_arguments_that_are_no_json_are_the_callers_mistake(pool: WorkerPool) -> None:
    for wrong in ({1}, float("nan")):
        with pytest.raises((TypeError, ValueError)):
            run(pool, "chain", names=wrong)
    assert works(pool)


def test_programs_side_by_side_get_their_own_answers() -> None:
    met = threading.Barrier(2)

    def host_of(program: int) -> Any:
        def host(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
            if name == "first":
                met.wait(30)
            return {"program": program}

        return host

    names = ["first", "b", "c", "d"]
    with (
        WorkerPool(SERVE, 2, SMALL, MODES[-1], calls=CALLS) as pool,
        ThreadPoolExecutor(6) as threads,
    ):
        runs = [threads.submit(value, pool, "gather", host_of(n), names=names) for n in range(6)]
        assert [each.result() for each in runs] == [[{"program": n}] * 4 for n in range(6)]


def test_a_worker_that_died_before_it_asked_is_replaced_and_one_that_asked_is_not_asked_again(
    pool: WorkerPool,
) -> None:
    asked: list[str] = []

    def host(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
        asked.append(name)
        supervisor(pool).kill()
        return {}

    assert works(pool)
    supervisor(pool).kill()
    assert works(pool)
    found = run(pool, "chain", host, names=["a", "b"])
    assert found == CallOutcome(failure="crash", why="the worker process died")
    assert asked == ["a"]
    assert works(pool)


def test_a_supervisor_that_is_silent_is_killed_with_all_it_started(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert works(pool)
    monkeypatch.setattr(pools, "GRACE_SECONDS", 0.2)
    stopped = supervisor(pool)
    stopped.send_signal(signal.SIGSTOP)
    found = run(pool, "chain", deadline=0.2, names=[])
    assert found.why == "the worker gave no answer and was killed"
    assert eventually(lambda: not stopped.is_running())
    monkeypatch.undo()
    assert works(pool)


def test_a_supervisor_that_stops_before_it_reads_an_answer_is_silent(monkeypatch) -> None:
    def stops(*_: Any) -> dict[str, str]:
        supervisor(pool).send_signal(signal.SIGSTOP)
        return {"t": "x" * 900_000}

    with WorkerPool(SERVE, 1, SMALL, "limits-only", calls=CallLimits()) as pool:
        assert works(pool)
        monkeypatch.setattr(pools, "GRACE_SECONDS", 0.2)
        assert run(pool, "chain", stops, 0.2, names=["a"]).failure == "deadline"


def test_a_reply_without_the_nonce_is_believed_by_nobody(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert works(pool)
    real = pipes.signed
    monkeypatch.setattr(pipes, "signed", lambda nonce, line: real(bytes(16), line))
    found = run(pool, "chain", names=[])
    assert found == CallOutcome(failure="crash", why="the reply is not the supervisor's")
    monkeypatch.undo()
    assert works(pool)


def test_an_interrupted_run_leaves_nothing_for_the_next(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert works(pool)
    answer, real = threading.Event(), pipes.wait_ready

    def interrupted(*arguments: Any) -> list[int]:
        ready = real(*arguments)
        if asked.is_set():
            raise KeyboardInterrupt
        return ready

    asked = threading.Event()

    def host(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
        asked.set()
        answer.wait(30)
        return {"late": True}

    monkeypatch.setattr(pipes, "wait_ready", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(pool, "chain", host, names=["a"])
    monkeypatch.undo()
    answer.set()
    assert works(pool)


def test_nothing_that_passed_through_is_in_the_memory_of_the_next_program(
    pool: WorkerPool,
) -> None:
    first, last = b"\x7f assay-p", b"robe-7\x7f\x01\x02"
    both = (first + last).decode("latin-1")
    halves = {"first": list(first), "last": list(last)}
    spoken = "".join(f"\\u{ord(c):04x}" if not 32 <= ord(c) < 127 else c for c in both)
    on_the_wire = {"first": list(spoken[:9].encode()), "last": list(spoken[9:].encode())}
    found = value(pool, "chain", lambda *_: {"reply": both}, names=[both, both])
    assert found == [{"reply": both}] * 2
    for each in (halves, on_the_wire):
        assert value(pool, "counted", **each) == 0
    assert value(pool, "planted", **halves) >= 1, "the search finds what is there"


def test_the_nonce_is_nowhere_in_a_programs_memory(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    nonce = bytes.fromhex("1f8b5ac3d94e70b26b13e7529ac4d108")
    monkeypatch.setattr(pools.os, "urandom", lambda size: nonce)
    for found in (nonce, nonce.hex().encode()):
        half = len(found) // 2
        halves = {"first": list(found[:half]), "last": list(found[half:])}
        assert value(pool, "counted", **halves) == 0


def test_a_closed_pool_runs_nothing(pool: WorkerPool) -> None:
    assert works(pool)
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        run(pool, "chain", names=[])
