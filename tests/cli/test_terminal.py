"""`assay run` in a real terminal of 100 columns, and what Ctrl-C there says."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios

import pytest

from tests.cli.conftest import TinyLab

CODE = "import sys; sys.argv[0] = 'assay'; from assay.cli import start; start()"
WIDTH = 100


def typed(*words: object, stop: bytes) -> tuple[int, str]:
    """The exit code and all that `assay WORDS` writes; Ctrl-C is typed once it wrote `stop`."""
    child, terminal = pty.fork()
    if not child:
        os.environ |= {"OMP_NUM_THREADS": "1"}
        os.environ.pop("COLUMNS", None)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 40, WIDTH, 0, 0))
        os.execv(sys.executable, [sys.executable, "-c", CODE, *map(str, words)])
    written, waits = b"", True
    while piece := read(terminal):
        written += piece
        if waits and stop in written:
            waits = os.write(terminal, b"\x03") == 0
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(terminal)
    return code, re.sub(r"\x1b\[[\d;]*m|\r", "", written.decode())


def read(terminal: int) -> bytes:
    """What stands there next; nothing once the other side is gone."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


@pytest.mark.slow
def test_a_run_fits_its_terminal_and_ctrl_c_names_the_command_that_goes_on(lab: TinyLab):
    run = ("run", lab.file, "--lab", lab.root, "--set", "stage.rl.steps=200")
    code, written = typed(*run, stop=b"rl 1/200")
    lines = written.splitlines()
    assert code == 130 and "interrupted; continue with 'assay resume tiny'" in lines[-1]
    assert max(map(len, lines)) <= WIDTH
    # No line of a step goes on in the next one.
    at = next(i for i, line in enumerate(lines) if line.startswith("rl 1/200"))
    assert "reward" in lines[at] and lines[at].endswith(" left")
