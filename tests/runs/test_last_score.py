"""The list of runs knows each run's score without opening its records."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.runs import registry
from assay.runs.registry import indexed_runs, last_score, note_run
from assay.runs.run_directory import stored_status, write_status
from tests.pages.synthetic import add_scores, empty_run


@pytest.fixture
def run(tmp_path: Path):
    run = empty_run(tmp_path)
    add_scores(run, "base", [0.0, 0.0, 1.0, 0.0])
    add_scores(run, "rl.step-000030", [1.0, 1.0, 1.0, 0.0])
    note_run(run)
    return run


def test_the_score_is_the_last_checkpoints_on_the_first_report(run):
    assert last_score(run) == (0.75, "held_out of rl.step-000030")
    (row,) = indexed_runs(run.root)
    assert (row.score, row.on) == (0.75, "held_out of rl.step-000030")


def test_a_finished_run_is_listed_from_the_index_alone(run, monkeypatch):
    indexed_runs(run.root)
    monkeypatch.setattr(registry, "last_score", lambda run: 1 / 0)
    monkeypatch.setattr(registry, "is_held", lambda run: 1 / 0)
    assert indexed_runs(run.root)[0].score == 0.75


def test_a_run_at_work_is_looked_at_again(run):
    write_status(run.path, replace(stored_status(run.path), status="running"))
    note_run(run)
    add_scores(run, "rl.step-000040", [1.0, 1.0, 1.0, 1.0])
    (row,) = indexed_runs(run.root)
    assert (row.status, row.score, row.on) == ("interrupted", 1.0, "held_out of rl.step-000040")
