"""An id means one thing, also where a row is called what a sample of another is."""

from pathlib import Path
from typing import Any

import pytest

from assay.runs.history import find_samples
from assay.runs.records import SAMPLES, write_samples
from assay.runs.run_directory import RunDirectory
from tests.pages.synthetic import empty_run

EMPTY = {"text": "", "parts": "{}", "why": "", "ended": "stop", "tokens": [], "behaviour_logps": []}


def sample(row: str, number: int) -> dict[str, Any]:
    line = {**dict.fromkeys(SAMPLES.names), **EMPTY, "step": 1, "row_id": row, "sample": number}
    return {**line, "sample_id": f"rl/1/{row}#{number}"}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Rows `a`, `a#1`, which is also a sample's id, and `b#0`, which is none."""
    run = empty_run(tmp_path)
    lines = [sample(row, n) for row in ("a", "a#1", "b#0") for n in (0, 1)]
    write_samples(run.samples("rl", 1), lines)
    return run


@pytest.mark.parametrize("place", ["", "rl/1/"])
@pytest.mark.parametrize(
    ("id_", "meant"),
    [
        ("a#1", ["a#1"]),
        ("a#1#0", ["a#1#0"]),
        ("a", ["a#0", "a#1"]),
        ("b#0", ["b#0#0", "b#0#1"]),
    ],
)
def test_a_samples_id_is_that_sample_and_a_rows_id_all_of_the_row(run, place, id_, meant):
    found = find_samples(run, place + id_)
    assert [line["sample_id"].removeprefix("rl/1/") for line in found] == meant
