"""Nothing of a tool outlives the process that started it, whichever of them is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from assay.engines.environments import running
from assay.sandbox.call_watch import ProcessMeter

TOOL = """
import os, subprocess, sys, time
if os.fork() == 0:  # a daemon: in a session of its own, without its parent
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1] + "/part", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + "/part", sys.argv[1] + "/daemon")  # whole, once it is there
        time.sleep(600)
    os._exit(0)
open(sys.argv[1] + "/child", "w").write(str(subprocess.Popen(["sleep", "600"]).pid))
while not os.path.exists(sys.argv[1] + "/daemon"): time.sleep(0.01)
open(sys.argv[1] + "/ready", "w").close()
exec(sys.argv[2])
"""
STARTER = """
import os, sys
from pathlib import Path
from assay.data.files import atomic_write_text
from assay.engines.environments import running
from assay.sandbox.call_watch import ProcessMeter
folder = Path(sys.argv[1])
with running(sys.argv[2:], folder, folder / "log", os.environ, str(folder), ProcessMeter()) as tool:
    atomic_write_text(folder / "between", str(tool.process.pid))
    while tool.wait(0.05) is None:
        pass
"""


def command(folder: Path, then: str) -> list[str]:
    return [sys.executable, "-c", TOOL, str(folder), then]


def started(folder: Path) -> "subprocess.Popen[bytes]":
    """A process that runs a tool without end, once all of it is there."""
    asked = command(folder, "time.sleep(600)")
    process = subprocess.Popen([sys.executable, "-c", STARTER, str(folder), *asked])
    wait_for(folder / "ready")
    wait_for(folder / "between")
    return process


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.02)


def alive(folder: Path) -> list[str]:
    """Which of a tool's processes live; one that nobody waited for yet does not."""
    found = psutil.process_iter(["status"])
    living = {each.pid for each in found if each.info["status"] != psutil.STATUS_ZOMBIE}
    return [n for n in ("child", "daemon") if int((folder / n).read_text()) in living]


def gone(folder: Path) -> None:
    while alive(folder):
        time.sleep(0.02)


def test_a_tool_ends_with_the_process_that_started_it_even_where_that_is_killed(
    tmp_path: Path,
) -> None:
    process = started(tmp_path)
    assert alive(tmp_path) == ["child", "daemon"]
    process.kill()
    process.wait()
    gone(tmp_path)


def test_what_is_left_of_a_tool_whose_keeper_was_killed_is_ended(tmp_path: Path) -> None:
    process = started(tmp_path)
    os.kill(int((tmp_path / "between").read_text()), signal.SIGKILL)
    process.wait()
    gone(tmp_path)


@pytest.mark.parametrize(
    ("then", "code"),
    [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9), ("os.kill(os.getpid(), 15)", -15)],
)
def test_a_tool_that_ends_says_how_and_leaves_nothing(tmp_path: Path, then: str, code: int) -> None:
    asked = tmp_path, tmp_path / "log", os.environ, str(tmp_path), ProcessMeter()
    with running(command(tmp_path, then), *asked) as tool:
        while (found := tool.wait(0.02)) is None:
            pass
    assert found == code
    assert alive(tmp_path) == []


@pytest.mark.slow
def test_what_a_tool_took_counts_those_that_ended_and_those_without_a_parent(
    tmp_path: Path,
) -> None:
    """1 CPU second of a child that ended, and 100 MiB that a daemon holds."""
    work = """
import json, resource
spent = "import time\\nwhile time.process_time() < 1: pass"
subprocess.run([sys.executable, "-c", spent])
holds = "import sys, time; x = bytearray(100 << 20); open(sys.argv[1], 'w'); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", holds, sys.argv[1] + "/used"], start_new_session=True)
time.sleep(600)
"""
    meter = ProcessMeter()
    asked = tmp_path, tmp_path / "log", os.environ, str(tmp_path), meter
    with running(command(tmp_path, work), *asked) as tool:
        while not (tmp_path / "used").exists():
            assert tool.wait(0.05) is None
        first = meter.taken()
        again = meter.taken()
    assert 1 <= first["cpu_seconds"] < 10 and again["cpu_seconds"] < 0.5
    assert 100 <= first["peak_memory_mb"] < 300
