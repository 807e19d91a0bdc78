"""What an experiment measures besides, once its run has finished, is measured without training."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.lab.monitor.observer import Silent
from assay.lab.sweep.missing_runs import missing_work
from assay.lab.sweep.read_sweep import read_sweep
from assay.lab.sweep.request import make_matrix
from assay.runs.history import evaluation_records, measured_checkpoints
from assay.runs.run_directory import RunDirectory, runs_of
from tests.from_files import launch_or_resume
from tests.tiny_labs import RL, make_lab

SWEEP = """\
name = "shots"
base = "base.toml"
on = ["test"]
[axes]
evaluate.test.take.rows = [2, 3]
"""
MORE = """[stage.more]
method = "sft"
data = "sums"
steps = 1
batch = 2
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over items whose only run has finished."""
    root = tmp_path_factory.mktemp("lab")
    edits = {RL: MORE, "steps  = 40": "steps = 2", "checkpoint_every = 8": ""}
    edits['["sft.all"]'] = '["base", "more.all"]'
    edits['"sft.best", "rl.last"'] = '"sft.last", "more.best"'
    make_lab(root, file="base.toml", until="[evaluate.sampled]", edits=edits)
    (root / "sweep.toml").write_text(SWEEP)
    fill(root)
    return root


def fill(root: Path) -> list[str]:
    """`assay fill` in this process; what became of each run."""
    work = missing_work(root, read_sweep(root / "sweep.toml"))
    return [
        done.did
        for job in work.jobs
        for done in launch_or_resume(
            job.plan.base, job.plan.overrides, root=root, observer=Silent()
        )
    ]


def weights(run: RunDirectory) -> dict[str, bytes]:
    files = run.path.glob("checkpoints/**/*.safetensors")
    return {str(file): file.read_bytes() for file in files} | {"spec": run.spec.read_bytes()}


def test_a_value_added_to_an_axis_of_an_evaluation_is_measured_without_training(made):
    (run,) = runs_of(made, "shots")
    before, metrics = weights(run), run.metrics.read_text()
    assert fill(made) == []
    (made / "sweep.toml").write_text(SWEEP.replace("[2, 3]", "[2, 3, 4]"))
    (job,) = missing_work(made, read_sweep(made / "sweep.toml")).jobs
    assert job.had == "unmeasured"
    assert fill(made) == ["measured"]
    assert (weights(run), run.metrics.read_text()) == (before, metrics)
    assert fill(made) == []
    matrix = make_matrix(made, made / "sweep.toml")
    cells = {cell.place[0]: (cell.state, cell.items) for cell in matrix.cells.values()}
    assert cells == {rows: ("measured", rows) for rows in (2, 3, 4)}
    assert {note.code for note in matrix.notes} <= {"unlearned_gate"}


def test_other_training_rows_than_the_runs_are_refused(made):
    file = made / "sums.jsonl"
    kept = file.read_text()
    (made / "sweep.toml").write_text(SWEEP.replace("[2, 3]", "[2, 3, 5]"))
    try:
        file.write_text(kept.replace("1 + 2 = ?", "1 + 2 equals?"))
        with pytest.raises(InputError, match="no longer the same"):
            fill(made)
    finally:
        file.write_text(kept)


def test_a_selecting_evaluation_that_lists_base_measures_it(made):
    """Its stage starts from another checkpoint, so that nothing else would have."""
    (run,) = runs_of(made, "shots")
    (dev,) = [record for record in evaluation_records(run) if record.role == "select"]
    assert "base" in measured_checkpoints(run, dev)
