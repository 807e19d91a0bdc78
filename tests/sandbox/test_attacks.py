"""Code in namespaces cannot answer for other calls, reach the machine, or stay behind.

Each attack is first shown to work where it can: without namespaces, or from outside.
"""

import errno
import os
import platform
import socket
from pathlib import Path

import pytest

from assay.sandbox import isolation, pool
from assay.sandbox.isolation import candidates
from assay.sandbox.limits import Limits, Outcome
from assay.sandbox.pool import Worker

ROOT = Path(__file__).parents[2]
TOOLS = {candidate.tool: candidate for candidate in candidates()}
# x86-64 and aarch64 have the newer calls under the same numbers.
NEWER = {
    "io_uring_setup": [425, 8, 0],
    "clone3": [435, 0, 0],
    "pidfd_getfd": [438, 0, 0, 0],
    "memfd_secret": [447, 0],
}
CALLS = {
    "x86_64": {
        "ptrace": [101, 16, 1, 0, 0],
        "process_vm_writev": [311, 1, 0, 0, 0, 0, 0],
        "userfaultfd": [323, 0],
        "unshare": [272, 0x10000000],
        "clone into a user namespace": [56, 0x10000000 | 17, 0, 0, 0, 0],
        "mount": [165, 0, 0, 0, 0, 0],
        "bpf": [321, 0, 0, 0],
        "keyctl": [250, 0, 0, 0, 0, 0],
        "shmget": [29, 0, 1 << 28, 0o1600],
        "msgget": [68, 0, 0o1600],
        "semget": [64, 0, 1, 0o1600],
        "mq_open": [240, 0, 0, 0, 0],
        "memfd_create": [319, 0, 0],
    },
    "aarch64": {
        "ptrace": [117, 16, 1, 0, 0],
        "process_vm_writev": [271, 1, 0, 0, 0, 0, 0],
        "userfaultfd": [282, 0],
        "unshare": [97, 0x10000000],
        "clone into a user namespace": [220, 0x10000000 | 17, 0, 0, 0, 0],
        "mount": [40, 0, 0, 0, 0, 0],
        "bpf": [280, 0, 0, 0],
        "keyctl": [219, 0, 0, 0, 0, 0],
        "shmget": [194, 0, 1 << 28, 0o1600],
        "msgget": [186, 0, 0o1600],
        "semget": [190, 0, 1, 0o1600],
        "mq_open": [180, 0, 0, 0, 0],
        "memfd_create": [279, 0, 0],
    },
}


@pytest.fixture(params=sorted(TOOLS), autouse=True)
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way in turn, whichever the machine would choose."""
    refusal = isolation._try(TOOLS[request.param])
    if refusal:
        pytest.skip(f"{request.param}: {refusal}")
    monkeypatch.setattr(isolation, "isolation_available", lambda: TOOLS[request.param])
    return request.param


def inside(function: str, limits: Limits | None = None, **arguments) -> Outcome:
    with Worker(f"tests.sandbox.faults:{function}", limits, "namespaces") as worker:
        return worker.call(arguments, 30.0)


def test_a_call_cannot_write_the_replies_of_later_calls() -> None:
    with Worker("tests.sandbox.attack_and_judge:serve", isolation="namespaces") as judge:
        attack = judge.call({"attack": '{"value": true}\n' * 4}, 30.0)
        wrong = [judge.call({"gold": "42", "answer": str(n)}, 30.0) for n in range(3)]
    assert attack.value == []
    assert [outcome.value for outcome in wrong] == [False, False, False]


def test_a_reply_without_the_nonce_is_a_crash_and_the_worker_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Worker("tests.sandbox.faults:echo", isolation="namespaces") as served:
        assert served.call({"value": 1}, 30.0).value == 1
        real = pool.signed
        monkeypatch.setattr(pool, "signed", lambda nonce, line: real(bytes(16), line))
        assert served.call({"value": 2}, 30.0).why == "the reply is not the supervisor's"
        monkeypatch.setattr(pool, "signed", real)
        assert served.call({"value": 3}, 30.0).value == 3


def test_the_nonce_is_nowhere_in_the_calls_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    nonce = bytes.fromhex("1f8b5ac3d94e70b26b13e7529ac4d108")
    monkeypatch.setattr(pool.os, "urandom", lambda size: nonce)
    first, last = list(nonce[:8]), list(nonce[8:])
    assert inside("find_in_memory", first=first, last=last) == Outcome(value=0)
    first, last = list(b"\x7fassay-p"), list(b"robe-\x7f\x01\x02")
    planted = inside("find_planted", first=first, last=last)
    assert planted.value >= 1, "the search finds what is there"


def test_other_processes_cannot_be_traced_or_written_and_dangerous_calls_are_refused() -> None:
    refused = inside("call_system", numbers={**CALLS[platform.machine()], **NEWER}).value
    assert refused.pop("clone3") == errno.ENOSYS
    assert set(refused.values()) == {errno.EPERM}, refused


def test_sockets_of_families_without_namespaces_cannot_be_had() -> None:
    families = [*range(1, 46)]
    had = inside("open_sockets", families=families).value
    assert set(had) <= {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6}
    assert socket.AF_UNIX in had


def test_sockets_and_fifos_of_the_machine_are_out_of_reach(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "a.socket"))
        server.listen()
        os.mkfifo(tmp_path / "fifo")
        reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        for name in ("a.socket", "fifo"):
            path = str(tmp_path / name)
            with Worker("tests.sandbox.faults:reach") as outside:
                assert outside.call({"path": path}, 30.0).value == "reached"
            assert "FileNotFoundError" in inside("reach", path=path).why
        os.close(reader)


def test_neither_the_users_files_nor_the_golds_can_be_read(tmp_path: Path) -> None:
    gold = tmp_path / "gold.jsonl"
    gold.write_text("42")
    secrets = [gold, ROOT / "README.md", ROOT / "experiments" / "tools" / "demo.toml"]
    secrets += [Path("/etc/passwd"), Path("/etc/hostname"), Path("/proc/1/environ")]
    for path in secrets:
        assert path.exists()
        assert inside("read_file", path=str(path)).failure == "exception", path
    assert "def read_file" in inside("read_file", path=str(ROOT / "tests/sandbox/faults.py")).value


def test_what_a_call_leaves_in_its_folders_the_next_one_does_not_see() -> None:
    with Worker("tests.sandbox.faults:leave_files", isolation="namespaces") as served:
        first, second = served.call({}, 30.0).value, served.call({}, 30.0).value
    assert first == second
    assert not [path for path in second if path.endswith("left")]


@pytest.mark.parametrize("folder", ["/tmp", "/run", "/dev/shm"])
def test_private_folders_hold_a_limited_number_of_files_and_bytes(folder: str) -> None:
    assert 3900 < inside("fill", folder=folder, size=0).value <= 4096
    assert 50 < inside("fill", folder=folder, size=1 << 20).value <= 64


def test_a_fork_bomb_is_an_outcome_and_the_worker_serves_on() -> None:
    with Worker("tests.sandbox.faults:run_named", isolation="namespaces") as served:
        bomb = served.call({"name": "fork_for_ever"}, 3.0)
        assert bomb.failure in ("deadline", "processes"), bomb
        assert served.call({"name": "count"}, 30.0) == Outcome(value=1)


def test_the_kernel_refuses_more_processes_than_the_limit(tool: str) -> None:
    if tool == "unshare --user" and os.geteuid() == 0:
        pytest.skip("the kernel counts no processes of root, in no user namespace")
    limits = Limits(processes=8)
    assert 7 <= inside("fork_until_refused", limits).value <= 10


def test_the_supervisor_keeps_its_limits_and_its_rank_and_a_call_may_lower_its_own() -> None:
    assert inside("hinder_supervisor").value == []
    assert inside("limit_itself").value == 20


def test_the_supervisor_cannot_be_killed() -> None:
    assert inside("kill_pid_1").value in ("refused", "ignored")
