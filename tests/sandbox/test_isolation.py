"""Untrusted code in namespaces reaches no network, writes nothing, and sees no other process."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.errors import RunFailure
from assay.sandbox import isolation
from assay.sandbox.isolation import Isolation, candidates, isolation_for
from assay.sandbox.limits import Outcome
from assay.sandbox.pool import Worker

TOOLS = {candidate.tool: candidate for candidate in candidates()}


@pytest.fixture(params=sorted(TOOLS))
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way in turn, whichever the machine would choose."""
    candidate = TOOLS[request.param]
    refusal = isolation._try(candidate)
    if refusal:
        pytest.skip(f"{request.param}: {refusal}")
    monkeypatch.setattr(isolation, "isolation_available", lambda: candidate)
    return request.param


def inside(function: str, **arguments) -> Outcome:
    with Worker(f"tests.sandbox.faults:{function}", isolation="namespaces") as worker:
        return worker.call(arguments, 30.0)


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_there_is_no_network_not_even_to_this_machine(tool: str, port: int) -> None:
    with Worker("tests.sandbox.faults:connect") as worker:
        assert worker.call({"port": port}, 30.0) == Outcome()
    # The worker's loopback is down.
    refusals = ("OSError: [Errno 101]", "ConnectionRefusedError: [Errno 111]")
    assert inside("connect", port=port).why.startswith(refusals)


def test_nothing_on_disk_can_be_written_or_made_writable(tool: str) -> None:
    here = Path(__file__).parent / "written"
    for path in (here, Path("/etc/written"), Path("/proc/sys/kernel/hostname")):
        assert inside("try_to_write", path=str(path)).failure == "exception"
    assert not here.exists()
    assert inside("remount_writable").value != 0


def test_the_private_tmp_is_writable_and_is_not_the_real_one(tool: str, tmp_path: Path) -> None:
    outcome = inside("try_to_write", path="/tmp/assay-isolation-test")
    assert outcome == Outcome(value="written")
    assert not Path("/tmp/assay-isolation-test").exists()


def test_no_other_process_is_in_sight(tool: str) -> None:
    seen = inside("processes_in_sight").value
    assert os.getpid() not in seen
    assert len(seen) == 2  # the supervisor and the call


def test_only_harmless_devices_are_there(tool: str) -> None:
    disks = [path for path in Path("/dev").iterdir() if path.is_block_device()]
    for disk in disks[:1]:
        assert inside("open_path", path=str(disk), flags=os.O_RDONLY).failure == "exception"
    assert inside("open_path", path="/dev/null", flags=os.O_WRONLY) == Outcome()


def test_the_kernel_cannot_be_reached_through_proc(tool: str) -> None:
    outcome = inside("open_path", path="/proc/sysrq-trigger", flags=os.O_WRONLY)
    assert outcome.failure == "exception"


def test_limits_and_deadline_hold_in_namespaces(tool: str) -> None:
    assert inside("segfault").why == "killed by signal 11: Segmentation fault"
    assert inside("hog").failure == "memory"
    with Worker("tests.sandbox.faults:loop", isolation="namespaces") as worker:
        assert worker.call({}, 0.3).failure == "deadline"
        assert worker.call({}, 0.3).failure == "deadline"


def test_without_namespaces_a_worker_is_refused_unless_the_user_chose_limits_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    isolation.isolation_available.cache_clear()
    with pytest.raises(RunFailure, match=r"unshare is not installed.*limits-only"):
        Worker("tests.sandbox.faults:echo", isolation="namespaces")
    isolation.isolation_available.cache_clear()
    assert isolation_for("limits-only") == Isolation("")


def test_a_tool_that_fails_is_not_available_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Isolation("unshare --user", ("sh", "-c", "echo refused >&2; exit 3"))
    assert isolation._try(broken) == "refused"


def test_limits_only_needs_no_libseccomp() -> None:
    code = "import sys; sys.modules['pyseccomp'] = None; import assay.sandbox.supervisor"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_the_user_may_not_read_is_left_out_of_the_import_path() -> None:
    """A folder, a module and a whole entry that an unprivileged lab may not look into, and a link
    to nothing, as editors make them."""
    read, write = os.pipe()
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        for each in ("pkg", "secret", "closed"):
            (folder / each).mkdir()
            (folder / each / "__init__.py").touch()
        (folder / "module.py").touch()
        (folder / "locked.py").touch(mode=0o000)
        (folder / ".#module.py").symlink_to("nowhere")
        for each, mode in (("secret", 0o000), ("closed", 0o111), (".", 0o755)):
            (folder / each).chmod(mode)
        child = os.fork()
        if child == 0:
            try:
                if os.getuid() == 0:
                    os.setresuid(65534, 65534, 65534)
                entries = (folder, folder / "closed", folder / "secret" / "inner")
                found = [path for entry in entries for path in isolation._importable(entry)]
                os.write(write, " ".join(found).replace(f"{name}/", "").encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        for each in ("secret", "closed"):
            (folder / each).chmod(0o755)
    os.close(write)
    assert os.read(read, 1 << 16).decode() == "module.py closed pkg"
