"""The page on the demos lab lists the experiments that ship, which can all be read."""

import tomllib

import pytest

from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import RceStage
from assay.lab.sweep.read_sweep import read_sweep
from tests.docs.pages import DOCS, blocks

FOLDER = DOCS.parent / "experiments" / "demos"
FILES = sorted(FOLDER.rglob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_of_the_demos_lab_can_be_read(file) -> None:
    values = tomllib.loads(file.read_text(encoding="utf-8"))
    if "base" in values:
        assert read_sweep(file).sweep.name == values["name"]
    else:
        assert read_experiment(file).name == values["name"]


def test_the_file_of_the_page_is_an_experiment() -> None:
    (text,) = blocks("demos-lab.md", "toml")
    made = Experiment.model_validate({"name": "page", "task": "demos", **tomllib.loads(text)})
    stage = made.stage["rce"]
    assert made.selections["beams"].width == 3
    assert isinstance(stage, RceStage) and stage.stored


def test_all_files_of_the_reports_ask_the_same_frozen_model_about_pools_of_64() -> None:
    """Report 002 compared runs whose data differed; a file that drifts would do so again."""
    made = [read_experiment(FOLDER / f"{name}.toml") for name in ("sequences", "rce", "grpo")]
    assert len({each.helpers["frozen"].source for each in made}) == 1
    assert len({str(each.data["queries"]) for each in made}) == 1
    assert made[1].selections == made[2].selections
    assert {(each.data["queries"].options or {})["pool"] for each in made} == {64}
