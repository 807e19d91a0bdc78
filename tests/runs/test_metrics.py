"""metrics.jsonl: appended line by line, cut back to where a run resumes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.runs.metrics import append_metrics, read_metrics, truncate_metrics

STAGES = {"sft": 4, "rl": 3}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for stage, steps in STAGES.items():
        for step in range(1, steps + 1):
            append_metrics(tmp_path / "m.jsonl", stage, step, 0.5, nll=1.0 / step)
    return tmp_path / "m.jsonl"


def places(file: Path) -> list[tuple[str, int]]:
    return [(line["stage"], line["step"]) for line in read_metrics(file)]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("step", range(5))
def test_what_was_written_after_the_place_goes(file, stage, step):
    before = places(file)
    truncate_metrics(file, stage, step)
    order = list(STAGES)
    at = order.index(stage)
    assert places(file) == [
        (s, n) for s, n in before if order.index(s) < at or (s == stage and n <= step)
    ]


@given(st.integers(1, 200))
def test_a_torn_last_line_does_not_count_wherever_it_was_torn(tmp_path_factory, cut):
    file = tmp_path_factory.mktemp("m") / "m.jsonl"
    append_metrics(file, "sft", 1, 0.5, nll=1.0)
    whole = file.read_bytes()
    append_metrics(file, "sft", 2, 0.5, nll=1.0)
    file.write_bytes(file.read_bytes()[: len(whole) + min(cut, len(whole) - 1)])
    assert places(file) == [("sft", 1)]
    truncate_metrics(file, "sft", 1)
    assert file.read_bytes() == whole
