"""The skill of episodes.md trains, measures, shows and replays as the page says."""

import json
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from assay.data.episode import Completion
from assay.data.row import Message
from assay.runs.history import evaluation_records
from assay.runs.run_directory import RunDirectory
from assay.tasks import task as registry
from tests import from_files
from tests.docs.pages import as_module
from tests.from_files import check_experiment
from tests.lengths import MODULE, make_lengths_lab


@pytest.fixture
def lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's module, registered as the page says."""
    module = as_module("episodes.md", MODULE, tmp_path, monkeypatch)
    monkeypatch.setitem(cast(dict[str, str], registry.TASKS), "lengths", MODULE)
    return module


@pytest.fixture
def run(lengths: Any, tmp_path: Path) -> RunDirectory:
    """The page's experiment, run."""
    (run,) = from_files.start(make_lengths_lab(tmp_path), root=tmp_path)
    return run


def test_the_rewards_judge_the_whole_conversation(lengths: Any) -> None:
    row = lengths.make_row(4)
    said = (Message("assistant", "abc"), Message("user", "Too short. Try again."))
    near = Completion("abc", messages=said)
    hit = Completion("abc\nabcd", messages=(*said, Message("assistant", "abcd")))
    assert lengths.close(row, near).value == 0.75
    assert lengths.close(row, hit).value == lengths.exact(row, hit).value == 1.0
    assert lengths.exact(row, near).value == 0.0
    assert lengths.close(row, Completion("")).value is None


def test_the_experiment_has_nothing_wrong(lengths: Any, tmp_path: Path) -> None:
    report = check_experiment(make_lengths_lab(tmp_path), root=tmp_path)
    assert not [f for f in report.findings if f.severity == "error"], report.findings


@pytest.mark.slow
def test_the_experiment_trains_and_measures_episodes(run: RunDirectory) -> None:
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert 1 <= line["turns_mean"] <= line["steps_mean"] <= 3
        assert line["tool_results_mean"] == line["failed_share"] == line["no_room_share"] == 0
    (record,) = evaluation_records(run)
    table = pq.read_table(record.file(run.evaluations, "rl.step-000003")).to_pylist()
    assert len(table) == 2 * 3
    assert {line["error"] for line in table} <= {"", "too_long", "too_short", "truncated"}
    for line in table:
        roles = [m["role"] for m in json.loads(line["messages"])]
        assert roles == (["assistant", "user"] * 3)[: len(roles)]
        assert len(line["turns"]) == roles.count("assistant")
        assert sum(t["actions"] for t in line["turns"]) == len(line["tokens"])
