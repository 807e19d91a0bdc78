"""Samples of steps and answers of evaluations are read as one; an id means one thing."""

from pathlib import Path

import pytest

from assay.data.episode import Reward
from assay.runs.history import Sample, find_samples, samples_in
from assay.runs.records import ANSWERS, write_samples, write_table
from assay.runs.run_directory import RunDirectory
from tests.pages.synthetic import empty_run
from tests.sample_lines import sample_line


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Rows `a`, `a#1`, which is also a sample's id, and `b#0`, which is none."""
    run = empty_run(tmp_path)
    lines = [sample_line(1, row, n) for row in ("a", "a#1", "b#0") for n in (0, 1)]
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


def test_a_completion_and_an_answer_are_read_as_one_type(tmp_path: Path):
    judged = {"parts": '{"format": 1.0}', "facts": '{"calls": 2}', "outcome": "timed out"}
    own = {**sample_line(1, "a", 0), **judged, "visit": 3, "reward": 0.5, "why": "late"}
    own |= {"advantage": -1.0, "behaviour_logps": [-0.5, 0.0]}
    write_samples(tmp_path / "step.parquet", [own])
    answer = {**dict.fromkeys(ANSWERS.names), **judged, "sample_id": "e/base/a#2", "item_id": "a"}
    answer |= {"repeat": 2, "output": "x", "score": 0.5, "why": "late", "ended": "stop"}
    write_table(tmp_path / "base.parquet", [answer | {"error": "", "tokens": [1, 2]}], ANSWERS)
    ((one,), (other,)) = (
        samples_in(tmp_path / name, tokens=True) for name in ("step.parquet", "base.parquet")
    )
    both = {"parts": {"format": 1.0}, "facts": {"calls": 2}, "outcome": "timed out", "why": "late"}
    both |= {"row": "a", "text": "x", "reward": 0.5, "ended": "stop", "tokens": (1, 2), "length": 2}
    extra = {"step": 1, "visit": 3, "advantage": -1.0, "logps": (-0.5, 0.0)}
    assert one == Sample(id="rl/1/a#0", number=0, **extra, **both)  # type: ignore[arg-type]
    assert other == Sample(id="e/base/a#2", number=2, **both)  # type: ignore[arg-type]
    assert one.judgement == Reward(0.5, {"format": 1.0}, "late", "timed out", {"calls": 2})
    assert [each.tokens for each in samples_in(tmp_path / "step.parquet")] == [()]
