"""Records of one finished run are measured side by side: each by one process, none twice."""

from dataclasses import replace

import pytest

from assay.errors import InputError
from assay.lab.evaluate.run_evaluation import claimed
from assay.lab.sweep.missing_runs import missing_work, shares
from assay.lab.sweep.read_sweep import read_sweep
from assay.runs.run_directory import hold_run, is_held
from tests.lab.pivot_lab import make_pivot_lab

SWEEP = 'name = "s"\nbase = "base.toml"\non = ["test"]\n[axes]\nstage.sft.batch = [2, 4]\n'


@pytest.fixture
def jobs(tmp_path):
    lab = make_pivot_lab(tmp_path)
    return [*missing_work(lab.root, read_sweep(lab.sweep(SWEEP))).jobs]


def test_a_finished_run_that_lacks_records_occupies_as_many_workers_as_it_has_use_for(jobs):
    first, second = jobs
    lacking = replace(second, had="unmeasured", records=3)
    assert shares([first, lacking], 1) == [first, lacking]
    assert shares([first, lacking], 2) == [first, lacking, lacking]
    assert shares([first, lacking], 8) == [first, lacking, lacking, lacking]


def test_those_that_measure_hold_a_run_together_and_training_holds_it_alone(tmp_path):
    with hold_run(tmp_path, shared=True):
        assert is_held(tmp_path)
        with hold_run(tmp_path, shared=True):
            pass
        with pytest.raises(InputError, match="executing"), hold_run(tmp_path):
            pass
    with (
        hold_run(tmp_path),
        pytest.raises(InputError, match="is executing"),
        hold_run(tmp_path, shared=True),
    ):
        pass


def test_a_record_is_made_by_one_process_alone(tmp_path):
    parts = tmp_path / "base.parts"
    with claimed(parts) as mine:
        with claimed(parts) as theirs:
            assert (mine, theirs) == (True, False)
        with claimed(tmp_path / "other.parts") as another:
            assert another
    with claimed(parts) as after:
        assert after
