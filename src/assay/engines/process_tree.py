"""Runs another tool and all that it starts: measured while it works, and ended with this process.

`python -m assay.engines.process_tree COMMAND...` stands between the two. It is a subreaper, so that
every process the tool started is its descendant, even one in a session of its own or without a
parent, as Ray's are. When its input ends, which also happens when this process is killed with
SIGKILL, or when the tool itself ends, it kills all of them, and ends as the tool did.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

import psutil

from assay.sandbox.call_process import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    process_control,
)
from assay.sandbox.call_watch import Meter, end_descendants

LOOK_SECONDS = 0.1
MARK = "ASSAY_TOOL_OF"
"""The environment's name of what a tool works for."""


@dataclass(frozen=True)
class Running:
    """A tool at work."""

    process: "subprocess.Popen[bytes]"

    def wait(self, seconds: float) -> int | None:
        """After so long, its exit code, negative for a signal; None while it works."""
        time.sleep(seconds)
        # It stays to be waited for, so that what it took can still be read.
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if (end := os.waitid(os.P_PID, self.process.pid, how)) is None:
            return None
        return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status


@contextmanager
def running(
    command: Sequence[str],
    folder: Path,
    log: Path,
    environment: Mapping[str, str],
    mark: str,
    meter: Meter,
) -> Iterator[Running]:
    """Start `command` in `folder`, its output appended to `log`. Nothing of it outlives the block,
    and nothing of an earlier one with this `mark` lives beside it."""
    end_marked(mark)
    try:
        with (
            log.open("ab") as stream,
            ending(command, stream, folder, {**environment, MARK: mark}) as process,
            meter.watching(process.pid),
        ):
            yield Running(process)
    finally:
        end_marked(mark)


@contextmanager
def ending(
    command: Sequence[str],
    words: IO[bytes],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> "Iterator[subprocess.Popen[bytes]]":
    """`command` at work with all its output in `words`; nothing of it outlives the block, or this
    process."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, *command],  # no module of the folder is meant
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=words,
        stderr=words,
        env=environment,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


LAST_WORDS = 400


def how_ended(code: int) -> str:
    """An exit code, negative for a signal, in words."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def last_words(text: str) -> str:
    """The last line of what a program wrote."""
    lines = text.strip().splitlines()
    return lines[-1][-LAST_WORDS:] if lines else "it says nothing"


def last_words_in(log: Path) -> str:
    """The last line of a program's log."""
    return last_words(log.read_text(encoding="utf-8", errors="replace"))


def surroundings(*foreign: str) -> dict[str, str]:
    """This process's environment as a program in an environment of its own gets it, without names
    that are meant for Assay."""
    names = ("PYTHONPATH", "VIRTUAL_ENV", *foreign)
    return {name: value for name, value in os.environ.items() if name not in names}


def end_marked(mark: str) -> None:
    """Kill what is left of a tool whose process between was killed itself."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                process.kill()


def main(command: Sequence[str]) -> NoReturn:
    """Run `command` until it ends or the input does, and leave nothing of it."""
    handle(signal.SIG_IGN)  # they are for the process that started this one
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    tool = os.fork()
    if tool == 0:
        begin(command)
    code = watch(tool)
    end_descendants(tool)
    if code is not None and code < 0:
        handle(signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def handle(how: signal.Handlers) -> None:
    """What the signals do that ask a process to end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, how)


def begin(command: Sequence[str]) -> NoReturn:
    """Become the tool, which ends with the process between even where that is killed."""
    process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
    handle(signal.SIG_DFL)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execvp(command[0], list(command))


def watch(tool: int) -> int | None:
    """How the tool ended, negative for a signal; None where the input ended first. Waits for
    processes that lost their parent meanwhile."""
    while True:
        ready, _, _ = select.select([0], [], [], LOOK_SECONDS)
        if ready and not os.read(0, 1):
            return None
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == tool:
                return os.waitstatus_to_exitcode(status)
            if ended == 0:
                break


if __name__ == "__main__":
    main(sys.argv[1:])
