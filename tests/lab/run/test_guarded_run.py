"""Real tiny runs: guards stop them and keep the checkpoint; the gate keeps or replaces starts."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from assay.errors import InputError, RunFailure
from assay.lab.monitor.observer import Silent
from assay.lab.run.resume import resume
from assay.pages.run_page import Reporting
from assay.runs.run_directory import RunDirectory, read_status, runs_of, stored_status, write_status
from assay.runs.run_files import read_selection
from tests.from_files import launch_or_resume, run_from
from tests.tiny_labs import make_lab

WHY = "a random model earns a part of what judges form alone"
SETTINGS = (
    "stage.sft.steps=32",
    "stage.sft.checkpoint_every=16",
    "stage.rl.steps=4",
    "stage.rl.checkpoint_every=4",
    "evaluate.dev.data=sums",
    "evaluate.dev.reward=repetition",
)
FEW = """
[evaluate.few]
data   = "sums.dev"
reward = "accuracy"
role   = "select"
checkpoints = ["rl.all"]
sampling = { max_tokens = 12 }
"""
GUARD = '\n[guard.always]\nstage = "rl"\nmetric = "groups"\nabove = 0.0\nsteps = 3\n'


def guarded_lab(folder: Path, tables: str = "") -> Path:
    """The tiny lab without its second report, with more tables in its file."""
    more = {'"base", "sft.best", "rl.last"': '"base", "sft.best", "rl.best", "rl.last"'}
    return make_lab(folder, until="[evaluate.sampled]", edits=more, tables=FEW + tables)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run that no guard disturbed."""
    return run_from(guarded_lab(tmp_path_factory.mktemp("whole")), SETTINGS, despite=WHY)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The same run, which a guard stopped in its last stage, at a step without a checkpoint due."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.raises(RunFailure, match="'always' stopped the run at rl step 3"):
        observer = Reporting(Silent())
        run_from(guarded_lab(folder, GUARD), SETTINGS, observer=observer, despite=WHY)
    (run,) = runs_of(folder, "tiny")
    return run


def weights(run: RunDirectory, stage: str, step: int) -> dict[str, bytes]:
    file = run.checkpoint(stage, step) / "model.safetensors"
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(file).items()}


def test_the_start_stays_the_best_where_no_later_checkpoint_was_shown_better(whole):
    chosen = read_selection(whole.path, "rl")
    assert chosen is not None and not chosen.promoted
    assert chosen.checkpoint == chosen.start == "sft.step-000032" and chosen.looks == 1
    assert [look.checkpoint for look in chosen.evidence] == ["rl.step-000004"]


def test_a_checkpoint_that_is_shown_better_takes_the_starts_place(whole):
    chosen = read_selection(whole.path, "sft")
    assert chosen is not None and chosen.promoted and chosen.start == "base"
    (look,) = [each for each in chosen.evidence if each.checkpoint == chosen.checkpoint]
    assert look.adjusted_p < 0.05


@pytest.mark.slow
def test_a_guard_stops_the_run_says_why_and_keeps_the_checkpoint(stopped, whole):
    status = read_status(stopped.path)
    assert (status.status, status.guard, status.stage, status.step) == ("failed", "always", "rl", 3)
    assert "groups was above 0 for 3 steps in a row" in status.message
    assert (stopped.checkpoint("rl", 3) / "optimizer.pt").is_file()
    assert not (stopped.checkpoint("rl", 4)).exists()
    assert weights(stopped, "sft", 32) == weights(whole, "sft", 32)


def test_a_stopped_run_leaves_a_report_that_says_so(stopped):
    page = (stopped.path / "reports/rl/step-000003.md").read_text(encoding="utf-8")
    assert "guard 'always' stopped the run" in page
    assert re.search(r"stopped the run\W+always", page)


def test_going_on_needs_an_explicit_wish_and_then_ends_as_if_nothing_had_been(stopped, whole):
    with pytest.raises(InputError, match="--past-guard"):
        resume(stopped)
    file = stopped.root / "tiny.toml"
    with pytest.raises(InputError, match="always"):
        launch_or_resume(file, SETTINGS, root=stopped.root, observer=Silent())
    # As if the process had died between the checkpoint and the note that a guard stopped it.
    status = stored_status(stopped.path)
    write_status(stopped.path, replace(status, status="running", guard="", message=""))
    with pytest.raises(RunFailure, match="rl step 3"):
        resume(stopped)
    assert read_status(stopped.path).guard == "always"
    resume(stopped, past_guard=True)
    ended = read_status(stopped.path)
    assert (ended.status, ended.guard) == ("finished", "")
    assert weights(stopped, "rl", 4) == weights(whole, "rl", 4)
    (passed,) = json.loads((stopped.path / "guards.json").read_text())
    assert (passed["guard"], passed["stage"], passed["step"]) == ("always", "rl", 3)
