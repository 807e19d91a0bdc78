"""Untrusted code in namespaces: what of the machine is out of reach, whichever way makes them.

`test_hostile_programs` attacks files, processes, sockets and limits from the inside of programs.
Each way of reaching out is first shown to work where it can: without namespaces.
"""

import errno
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import RunFailure
from assay.sandbox import isolation
from assay.sandbox.isolation import Isolation, candidates, isolation_for
from assay.sandbox.limits import CallOutcome, Limits
from assay.sandbox.pool import Worker

TOOLS = {candidate.tool: candidate for candidate in candidates()}
REFUSED = {
    "ptrace": [16, 1, 0, 0],
    "process_vm_writev": [1, 0, 0, 0, 0, 0],
    "pidfd_getfd": [0, 0, 0],
    "userfaultfd": [0],
    "io_uring_setup": [8, 0],
    "bpf": [0, 0, 0],
    "keyctl": [0, 0, 0, 0, 0],
    "unshare": [0x10000000],
    "clone": [0x10000000 | 17, 0, 0, 0, 0],  # into a user namespace
    "mount": [0, 0, 0, 0, 0],
    "shmget": [0, 1 << 28, 0o1600],
    "msgget": [0, 0o1600],
    "semget": [0, 1, 0o1600],
    "mq_open": [0, 0, 0, 0],
    "memfd_create": [0, 0],
    "memfd_secret": [0],
}
"""System calls with arguments."""


@pytest.fixture(params=sorted(TOOLS))
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way in turn, whichever the machine would choose."""
    candidate = TOOLS[request.param]
    refusal = isolation._try(candidate)
    if refusal:
        pytest.skip(f"{request.param}: {refusal}")
    monkeypatch.setattr(isolation, "isolation_available", lambda: candidate)
    return request.param


def inside(function: str, limits: Limits | None = None, **arguments) -> CallOutcome:
    with Worker(f"tests.sandbox.faults:{function}", limits, "namespaces") as worker:
        return worker.call(arguments, 30.0)


def test_there_is_no_network_not_even_to_this_machine(tool: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with Worker("tests.sandbox.faults:connect") as worker:
            assert worker.call({"port": port}, 30.0) == CallOutcome()
        # The worker's loopback is down.
        refusals = ("OSError: [Errno 101]", "ConnectionRefusedError: [Errno 111]")
        assert inside("connect", port=port).why.startswith(refusals)


def test_no_file_outside_private_folders_can_be_written_or_made_writable(tool: str) -> None:
    for path in (Path(__file__).parent / "written", Path("/proc/sys/kernel/hostname")):
        assert inside("try_to_write", path=str(path)).failure == "exception"
    assert not (Path(__file__).parent / "written").exists()
    assert inside("remount_writable").value != 0
    assert inside("try_to_write", path="/tmp/assay-isolation-test") == CallOutcome("written")
    assert not Path("/tmp/assay-isolation-test").exists()


def test_of_processes_and_devices_only_its_own_and_harmless_ones_are_in_sight(tool: str) -> None:
    seen = inside("processes_in_sight").value
    assert os.getpid() not in seen
    assert len(seen) == 2  # the supervisor and the call
    assert inside("open_path", path="/dev/null", flags=os.O_WRONLY) == CallOutcome()
    hidden = [path for path in Path("/dev").iterdir() if path.is_block_device()][:1]
    for path, flags in [*((disk, os.O_RDONLY) for disk in hidden), (SYSRQ, os.O_WRONLY)]:
        assert inside("open_path", path=str(path), flags=flags).failure == "exception"


SYSRQ = Path("/proc/sysrq-trigger")


def test_neither_the_users_files_nor_the_golds_can_be_read(tool: str, tmp_path: Path) -> None:
    gold = tmp_path / "gold.jsonl"
    gold.write_text("42")
    root = Path(__file__).parents[2]
    for path in (gold, root / "README.md", Path("/etc/passwd"), Path("/proc/1/environ")):
        assert path.exists()
        assert inside("read_file", path=str(path)).failure == "exception", path
    assert "def read_file" in inside("read_file", path=str(root / "tests/sandbox/faults.py")).value


def test_dangerous_system_calls_are_refused(tool: str) -> None:
    import pyseccomp  # which looks for its library

    known = {**REFUSED, "clone3": [0, 0]}
    number = pyseccomp.resolve_syscall
    calls = {name: [number(pyseccomp.Arch.NATIVE, name), *given] for name, given in known.items()}
    refused = inside("call_system", numbers=calls).value
    assert refused.pop("clone3") == errno.ENOSYS
    assert set(refused.values()) == {errno.EPERM}, refused


def test_sockets_of_families_without_namespaces_cannot_be_had(tool: str) -> None:
    had = inside("open_sockets", families=[*range(1, 46)]).value
    assert {socket.AF_UNIX} <= set(had) <= {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6}


def test_private_folders_hold_a_limited_number_of_files_and_bytes(tool: str) -> None:
    assert 3900 < inside("fill", folder="/tmp", size=0).value <= 4096
    assert 50 < inside("fill", folder="/dev/shm", size=1 << 20).value <= 64


def test_the_kernel_refuses_more_processes_than_the_limit(tool: str) -> None:
    if tool == "unshare --user" and os.geteuid() == 0:
        pytest.skip("the kernel counts no processes of root, in no user namespace")
    # The watch, which counts now and then, may see too many before the kernel refuses one.
    tries = (inside("fork_until_refused", Limits(processes=8)).value for _ in range(5))
    assert 7 <= next(each for each in tries if each is not None) <= 10


def test_a_call_may_lower_its_own_limits_and_rank(tool: str) -> None:
    assert inside("limit_itself").value == 20


def test_without_namespaces_a_worker_is_refused_unless_the_user_chose_limits_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    isolation.isolation_available.cache_clear()
    with pytest.raises(RunFailure, match=r"unshare is not installed.*limits-only"):
        Worker("tests.sandbox.faults:echo", isolation="namespaces")
    isolation.isolation_available.cache_clear()
    assert isolation_for("limits-only") == Isolation("")


def test_limits_only_needs_no_libseccomp() -> None:
    code = "import sys; sys.modules['pyseccomp'] = None; import assay.sandbox.supervisor"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_packages_of_a_plain_folder_have_their_versions_inside(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `pip install --target` leaves them: math-verify asks for ANTLR's version."""
    metadata = tmp_path / "parser_of_sums-4.13.2.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: parser-of-sums\nVersion: 4.13.2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert inside("version_of", package="parser-of-sums") == CallOutcome("4.13.2")
