"""The worker survives whatever a call does, says what happened, and leaves nothing running."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from assay.errors import RunFailure
from assay.sandbox.isolation import isolation_available
from assay.sandbox.limits import CallOutcome, Limits
from assay.sandbox.pool import Worker, WorkerPool

HERE = Path(__file__).parent
TOGETHER = "over the memory limit with all its processes"
SMALL = Limits(cpu_seconds=1, memory_bytes=1 << 30, file_bytes=1 << 20, processes=8)


def call(function: str, deadline: float = 20.0, limits: Limits = SMALL, **arguments) -> CallOutcome:
    with Worker(f"tests.sandbox.faults:{function}", limits) as worker:
        return worker.call(arguments, deadline)


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it comes true within a time that no machine exceeds."""
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


@pytest.fixture(autouse=True)
def no_process_stays() -> Iterator[None]:
    # Other tests of this process may hold pools that end with it.
    before = psutil.Process().children(recursive=True)
    yield
    assert [p for p in psutil.Process().children(recursive=True) if p not in before] == []


def test_values_come_back_as_json() -> None:
    value = {"text": "käse\n\u2028", "list": [1, 2.5, None, True]}
    assert call("echo", value=value) == CallOutcome(value=value)


@pytest.mark.parametrize(
    ("function", "arguments", "failure", "why"),
    [
        ("raise_error", {}, "exception", "KeyError: 'nothing here'"),
        ("system_exit", {}, "exception", "SystemExit: no more"),
        ("not_json", {}, "exception", "TypeError: Object of type set is not JSON serializable"),
        ("leave", {"code": 3}, "crash", "ended with exit code 3"),
        ("leave", {"code": 0}, "crash", "ended with exit code 0"),
        ("segfault", {}, "crash", "killed by signal 11: Segmentation fault"),
        ("hog", {}, "memory", "MemoryError: over the memory limit"),
        ("burn", {}, "cpu", "over the limit of CPU time"),
        ("burn_in_children", {"children": 2}, "cpu", "over the limit of CPU time"),
        ("large", {"size": 2 << 20}, "output", "answer over 1048576 bytes"),
        ("many_processes", {}, "processes", "more than 8 processes"),
        ("many_hogs", {"children": 4, "megabytes": 350}, "memory", TOGETHER),
        ("big_file", {}, "exception", "OSError: [Errno 27] File too large"),
    ],
)
def test_each_failure_has_its_kind_and_the_worker_serves_on(
    function: str, arguments: dict, failure: str, why: str
) -> None:
    # Touching a gigabyte page by page can itself take more than a second of CPU time.
    limits = replace(SMALL, cpu_seconds=20) if "hog" in function else SMALL
    with Worker("tests.sandbox.faults:named", limits) as worker:
        found = worker.call({"function": function, "arguments": arguments}, 30.0)
        assert found == CallOutcome(failure=failure, why=why)  # type: ignore[arg-type]
        assert worker.call({"function": "count", "arguments": {}}, 30.0) == CallOutcome(1)


def test_what_the_worker_loaded_is_no_memory_of_the_processes_that_share_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "loaded.py").write_text(
        'from tests.sandbox.faults import many_hogs\nheld = bytearray(b"x") * (250 << 20)\n'
    )
    with Worker("loaded:many_hogs", SMALL, folders=[str(tmp_path)]) as worker:
        assert worker.call({"children": 6, "megabytes": 1}, 1.0).failure == "deadline"


def test_nothing_that_is_printed_can_be_taken_for_the_answer() -> None:
    assert call("shout", megabytes=20) == CallOutcome(value="done")


FORGED = [
    *("no json\n", '{"other": 1}\n', "[" * 100_000 + "\n"),
    '{"failure": "deadline"}\n',  # what only its supervisor may say of a call
]


@pytest.mark.parametrize("line", FORGED)
def test_a_forged_answer_that_is_none_is_a_crash(line: str) -> None:
    why = "the answer is not in the worker's form"
    assert call("forge", line=line) == CallOutcome(failure="crash", why=why)


def test_a_forged_answer_cannot_reach_into_the_next_call() -> None:
    with Worker("tests.sandbox.faults:forge", SMALL) as worker:
        first = worker.call({"line": '{"value": 1}\n{"value": 2}\n'}, 20.0)
        second = worker.call({"line": '{"value": 3}\n'}, 20.0)
    assert (first.value, second.value) == (1, 3)


def test_a_call_that_closes_its_pipe_is_a_crash() -> None:
    assert call("close_the_pipe").failure == "crash"


def test_an_endless_loop_ends_at_its_deadline_and_the_next_call_works() -> None:
    with Worker("tests.sandbox.faults:sleep") as worker:
        assert worker.call({"seconds": 1000}, 0.3).failure == "deadline"
        assert worker.call({"seconds": 0.01}, 20.0) == CallOutcome(value=0.01)
    assert call("loop", deadline=0.3).failure == "deadline"


@pytest.mark.parametrize("own_session", [False, True])
@pytest.mark.parametrize("then_return", [False, True])
def test_a_grandchild_dies_with_its_call(
    tmp_path: Path, own_session: bool, then_return: bool
) -> None:
    pid_file = tmp_path / "pid"
    with Worker("tests.sandbox.faults:grandchild") as worker:
        outcome = worker.call(
            {"pid_file": str(pid_file), "own_session": own_session, "then_return": then_return},
            30.0 if then_return else 1.0,
        )
        # The worker still runs: it was the end of the call that ended the grandchild.
        assert not psutil.pid_exists(int(pid_file.read_text()))
    assert outcome.value == "returned" if then_return else outcome.failure == "deadline"


def test_a_call_sees_no_environment_no_descriptors_and_an_empty_folder_that_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_KEY", "secret")
    secret = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(secret, True)
    with Worker("tests.sandbox.faults:surroundings") as worker:
        first, second = worker.call({}, 20.0).value, worker.call({}, 20.0).value
        assert not Path(first["folder"]).exists()
    os.close(secret)
    for seen in (first, second):
        assert seen["environment"] == {}
        assert seen["files"] == ["left"]
        assert seen["descriptors"] == [0, 1, 2, 3, 4]  # 3 is the answer, 4 the listing itself
        assert seen["session"]
    assert not Path(first["folder"]).parent.exists()


def test_a_function_that_cannot_be_imported_is_no_outcome() -> None:
    with (
        Worker("tests.sandbox.faults:missing") as worker,
        pytest.raises(RunFailure, match="missing"),
    ):
        worker.call({}, 1.0)
    with Worker("no_such_module:f") as worker, pytest.raises(RunFailure, match="no_such"):
        worker.call({}, 1.0)


def test_a_killed_supervisor_is_a_crash_and_the_next_call_works(tmp_path: Path) -> None:
    assert call("kill_supervisor", pid_file=str(tmp_path / "pid")).failure == "crash"
    assert eventually(lambda: not psutil.pid_exists(int((tmp_path / "pid").read_text())))
    before = psutil.Process().children()
    with Worker("tests.sandbox.faults:echo") as worker:
        assert worker.call({"value": 1}, 20.0).value == 1
        scratch = Path(worker._scratch)
        (supervisor,) = [p for p in psutil.Process().children() if p not in before]
        supervisor.kill()
        assert eventually(lambda: supervisor.status() == "zombie")
        assert worker.call({"value": 2}, 20.0).value == 2
    assert not scratch.exists()


def test_the_pool_keeps_the_order_and_a_stuck_call_holds_up_no_other() -> None:
    seconds = [0.2, 1000.0, 0.0, 0.1, 0.05]
    with WorkerPool("tests.sandbox.faults:sleep", 2) as pool:
        outcomes = pool.map([{"seconds": each} for each in seconds], 1.5)
    assert [outcome.value for outcome in outcomes] == [0.2, None, 0.0, 0.1, 0.05]
    assert outcomes[1].failure == "deadline"


@pytest.mark.parametrize(
    ("isolation", "how"),
    [
        ("limits-only", "forked"),
        ("namespaces", ""),
        ("limits-only", "asking"),
        ("namespaces", "asking"),
    ],
)
def test_nothing_outlives_a_lab_that_is_killed(isolation: str, how: str) -> None:
    if isolation == "namespaces" and not isolation_available().tool:
        pytest.skip("no namespaces on this machine")
    lab = subprocess.Popen(
        [sys.executable, str(HERE / "lab.py"), isolation, how], stdout=subprocess.PIPE, text=True
    )
    assert lab.stdout
    *scratch, pids = lab.stdout.readline().split(" ", 1)
    started = [int(pid) for pid in pids.split()]
    assert len(started) >= 2
    lab.kill()
    lab.wait()
    lab.stdout.close()
    assert eventually(lambda: not any(map(psutil.pid_exists, started)))
    assert scratch == [""] or not Path(scratch[0]).exists()


def test_a_worker_that_is_killed_from_outside_is_tried_again_once(tmp_path: Path) -> None:
    with Worker("tests.sandbox.faults:killed_first_time", SMALL) as worker:
        assert worker.call({"folder": str(tmp_path), "times": 1}, 20.0).value == "lived"
        twice = worker.call({"folder": str(tmp_path), "times": 9}, 20.0)
        assert twice == CallOutcome(failure="crash", why="the worker process died")
        assert len(list(tmp_path.iterdir())) == 1 + 2


def test_a_worker_that_dies_while_it_starts_is_no_failure_of_the_run(tmp_path: Path) -> None:
    once = tmp_path / "once"
    (tmp_path / "dies.py").write_text(
        "import os, pathlib\n"
        f"once = pathlib.Path({str(once)!r})\n"
        "if not once.exists():\n"
        "    once.touch()\n"
        "    os.kill(os.getpid(), 9)\n"
        "def answer(): return 7\n"
    )
    (tmp_path / "dead.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    with Worker("dies:answer", SMALL, folders=[str(tmp_path)]) as worker:
        assert worker.call({}, 20.0).value == 7
    with Worker("dead:answer", SMALL, folders=[str(tmp_path)]) as worker:
        died = CallOutcome(failure="crash", why="the worker process died")
        assert worker.call({}, 20.0) == died


def lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_forking_children_end_with_the_worker_and_leave_the_lab_an_outcome(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("assay.sandbox.pool.GRACE_SECONDS", 0.5)
    why = "the worker gave no answer and was killed"
    groups: list[int] = []
    with Worker("tests.sandbox.faults:fork_and_stop_supervisor") as worker:
        for _ in range(2):
            pid_file = tmp_path / "pid"
            outcome = worker.call({"children": 25, "pid_file": str(pid_file)}, 1.0)
            assert outcome == CallOutcome(failure="deadline", why=why)
            groups.append(int(pid_file.read_text()))
    assert eventually(lambda: not any(map(lives, groups)))
