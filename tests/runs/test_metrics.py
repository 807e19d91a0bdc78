"""metrics.jsonl: appended line by line, cut back to where a run resumes."""

import json
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


def test_a_line_holds_its_place_and_its_numbers(file):
    first = json.loads(file.read_text().splitlines()[0])
    assert first == {"stage": "sft", "step": 1, "seconds": 0.5, "nll": 1.0}


def test_numbers_that_json_has_not_become_null(tmp_path):
    append_metrics(tmp_path / "m", "sft", 1, 0.1, a=float("nan"), b=float("-inf"), c=1, d=True)
    (line,) = read_metrics(tmp_path / "m")
    assert line == {
        "stage": "sft",
        "step": 1,
        "seconds": 0.1,
        "a": None,
        "b": None,
        "c": 1,
        "d": True,
    }


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


def test_a_stage_that_wrote_nothing_yet_keeps_all_that_was(file):
    before = places(file)
    truncate_metrics(file, "later", 0)
    assert places(file) == before


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


def test_a_run_without_metrics_has_none(tmp_path):
    assert read_metrics(tmp_path / "absent") == []
    truncate_metrics(tmp_path / "absent", "sft", 0)
    assert read_metrics(tmp_path / "absent") == []
