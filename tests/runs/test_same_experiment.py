"""Which differences between a run and an experiment make another run of it."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.experiment.toml_write import experiment_toml
from assay.runs.registry import check_same
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import write_listed
from assay.runs.run_names import experiment_of

TEXT = """\
name = "e"
task = "workflows"
[model]
policy = "path:x"
[model.executor]
source = "path:y"
"""


@pytest.fixture
def made(tmp_path: Path) -> RunDirectory:
    """A run whose executor was in this process."""
    run = RunDirectory(tmp_path, "e", "1")
    run.path.mkdir(parents=True)
    write_listed(run.path, run.spec, experiment_toml(read_experiment(written(tmp_path, TEXT))))
    return run


def written(folder: Path, text: str) -> Path:
    file = folder / "e.toml"
    file.write_text(text)
    return file


def test_another_price_of_a_helper_is_another_setting(tmp_path, made):
    check_same(made, read_experiment(written(tmp_path, TEXT)))
    with pytest.raises(InputError, match=r"helpers\.executor\.price"):
        check_same(made, read_experiment(written(tmp_path, TEXT + 'price = "unknown"\n')))


def test_a_runs_experiment_is_read_again_where_its_file_is_another(made):
    write_listed(made.path, made.spec, TEXT)
    first = experiment_of(made)
    assert experiment_of(made) is first and first.helpers["executor"].source == "path:y"
    write_listed(made.path, made.spec, TEXT.replace("path:y", "path:longer"))
    assert experiment_of(made).helpers["executor"].source == "path:longer"
    made.spec.unlink()
    with pytest.raises(InputError, match="no such file"):
        experiment_of(made)
