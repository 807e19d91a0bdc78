"""Fixtures that every test may use: where other people's data lies, one thread for torch, and no
search of what was imported for garbage."""

import gc
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


def pytest_collection_finish() -> None:
    """Takes what was imported and collected out of the search for garbage.

    The lab collects garbage after each model that it drops. Half a million objects of torch, of
    transformers and of pytest's own made that three quarters of a tiny run's time.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows the figures that tests measured, and how many could not look at the shared oracles."""
    for report in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get(
        "failed", []
    ):
        for name, value in report.user_properties:
            if name == "shown" and report.when == "call":
                terminalreporter.write_line(str(value))
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum("ASSAY_SHARED is absent" in str(report.longrepr) for report in skipped)
    terminalreporter.write_line(f"skipped because ASSAY_SHARED is absent: {count}")
