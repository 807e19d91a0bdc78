"""`assay run` in a real terminal of 100 columns, and what Ctrl-C there says."""

import os
import pty
import re
import sys

import pytest

from tests.cli.conftest import TinyLab

CODE = "import sys; sys.argv[0] = 'assay'; from assay.cli import start; start()"
NARROW = ["bash", "-c", 'stty cols 100; unset COLUMNS; exec "$@"', "bash"]


def typed(stop: bytes, *words: object) -> tuple[int, list[str]]:
    """The exit code and lines of `assay WORDS`; Ctrl-C is typed once it wrote `stop`."""
    written = bytearray()

    def read(terminal: int) -> bytes:
        before = stop in written
        written.extend(piece := os.read(terminal, 1 << 16))
        if stop in written and not before:
            os.write(terminal, b"\x03")
        return piece

    status = pty.spawn([*NARROW, sys.executable, "-c", CODE, *map(str, words)], read, lambda _: b"")
    text = re.sub(r"\x1b\[[\d;]*m|\r", "", written.decode())
    return os.waitstatus_to_exitcode(status), text.splitlines()


@pytest.mark.slow
def test_a_run_fits_its_terminal_and_ctrl_c_names_the_command_that_goes_on(lab: TinyLab):
    run = ("run", lab.file, "--lab", lab.root, "--set", "stage.rl.steps=200")
    code, lines = typed(b"rl 1/200", *run)
    assert code == 130 and "interrupted; continue with 'assay resume tiny'" in lines[-1]
    assert max(map(len, lines)) <= 100
    # No line of a step goes on in the next one.
    at = next(line for line in lines if line.startswith("rl 1/200"))
    assert "reward" in at and at.endswith(" left")
