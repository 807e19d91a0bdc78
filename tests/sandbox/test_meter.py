"""All that a process started is found, where the kernel lists children and where it does not."""

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from assay.sandbox.call_watch import tree, tree_cpu_seconds

BUSY = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done"


@pytest.fixture
def family() -> Iterator[psutil.Process]:
    """A process that another thread started, with a child and a grandchild of its own."""
    made: list[subprocess.Popen[bytes]] = []
    script = f"sh -c '{BUSY}; sleep 60; :' & sleep 60; :"
    thread = threading.Thread(target=lambda: made.append(subprocess.Popen(["sh", "-c", script])))
    thread.start()
    thread.join()
    top = psutil.Process(made[0].pid)
    until = time.monotonic() + 30
    while len(top.children(recursive=True)) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    yield top
    for process in (*top.children(recursive=True), top):
        process.kill()
    made[0].wait()


@pytest.mark.parametrize("listed", [True, False])
def test_children_and_their_children_are_found(
    family: psutil.Process, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {each.pid for each in family.children(recursive=True)}
    if not listed:
        monkeypatch.setattr(Path, "iterdir", lambda _: iter([Path("/proc/no/task")]))
    assert {each.pid for each in tree(family.pid)[1:]} == expected and len(expected) == 3
    assert family.pid in {each.pid for each in tree(None)}


def test_the_time_of_a_grandchild_counts(family: psutil.Process) -> None:
    assert tree_cpu_seconds(family.pid) > 0
    assert tree_cpu_seconds() >= tree_cpu_seconds(family.pid)
