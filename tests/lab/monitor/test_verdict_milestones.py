"""Milestones on a verdict: met, missed or undecided by the judge, from the records of both."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.judge.health_checks import RuleState
from assay.lab.monitor.progress import progress
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import Selection, write_selections
from tests.lab.monitor.program_runs import Made, program_run
from tests.pages.synthetic import RECORD, add_scores

TABLE = """
[milestone.above]
about = "step 20 above baseline"
stage = "rl"
step = 20
evaluation = "dev"
verdict = "{verdict}"
against = "{against}"
"""
DEV = replace(RECORD, name="dev", benchmark="train", role="select")


def run_with(root: Path, steps: int = 20, verdict: str = "better", against: str = "base"):
    tables = TABLE.format(verdict=verdict, against=against)
    return program_run(root, lambda s, p, n: Made(), steps, (1, 2), tables=tables)


def measure(run: RunDirectory, right: int, checkpoint: str, items: int = 60) -> None:
    add_scores(run, checkpoint, [1.0] * right + [0.0] * (items - right), DEV)


def state(run: RunDirectory, last: int | None = None) -> RuleState:
    found = progress(run, "rl", last=last)
    assert found is not None
    (one,) = [each for each in found.states if each.consequence == "expect"]
    return one


@pytest.mark.parametrize(
    ("verdict", "right", "expected"),
    [
        ("better", 50, "met"),
        ("better", 5, "missed"),
        ("better", 32, "undecided"),
        ("equivalent", 32, "undecided"),
    ],
)
def test_the_verdict_of_the_judge_decides(tmp_path, verdict, right, expected):
    run = run_with(tmp_path, verdict=verdict)
    measure(run, 30, "base")
    measure(run, right, "rl.step-000020")
    found = state(run)
    assert found.state == expected and found.reading is not None
    assert found.reading.value == pytest.approx(right / 60 - 0.5)
    assert found.reading.figures["items"] == "60"


def test_before_its_step_it_is_pending_and_without_records_not_recorded(tmp_path):
    run = run_with(tmp_path)
    assert state(run, last=19).state == "pending"
    assert (state(run).state, state(run).reading) == ("not recorded", None)
    measure(run, 50, "rl.step-000020")
    assert state(run).state == "not recorded"


def test_a_run_may_be_compared_with_an_earlier_checkpoint_and_with_the_chosen_one(tmp_path):
    run = run_with(tmp_path / "a", against="rl.step-10")
    measure(run, 10, "rl.step-000010")
    measure(run, 50, "rl.step-000020")
    assert state(run).state == "met"
    chosen = run_with(tmp_path / "b", against="rl.best")
    measure(chosen, 50, "rl.step-000010")
    measure(chosen, 10, "rl.step-000020")
    assert state(chosen).state == "not recorded", "nothing is chosen yet"
    best = Selection("rl.step-000010", "base", "dev", 0.8, looks=2)
    write_selections(chosen.path, "rl", [best])
    assert state(chosen).state == "missed"
