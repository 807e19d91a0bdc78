"""Fixtures that every test may use: where other people's data lies, one thread for torch."""

import os
from pathlib import Path

import pytest

# Read when torch is imported. Test processes with a thread for each core take many times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
SHARED = Path(os.environ.get("ASSAY_SHARED", Path(__file__).parents[1].parent / "shared"))


@pytest.fixture
def shared() -> Path:
    """The folder of real rows and oracles; the test is skipped, and counted, where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("ASSAY_SHARED is absent")
    return SHARED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many tests could not look at the shared oracles."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum("ASSAY_SHARED is absent" in str(report.longrepr) for report in skipped)
    terminalreporter.write_line(f"skipped because ASSAY_SHARED is absent: {count}")
